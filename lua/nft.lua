--- The kernel's nftables ruleset as data, and questions about it. Reads only.
local cjson = require "cjson"
local inet = require "inet"

local nft = {}

-- The expression of a rule, flat: a match as { match = "meta iifname", op, value }, a verdict as
-- { verdict = "drop" }, anything else as { other = its key }.
local function left_text(left)
    if type(left) ~= "table" then
        return tostring(left)
    elseif left.meta then
        return "meta " .. left.meta.key
    elseif left.payload then
        return (left.payload.protocol or "?") .. " " .. (left.payload.field or "?")
    elseif left.ct then
        return "ct " .. left.ct.key
    end
    return next(left)
end

local VERDICTS = { accept = true, drop = true, reject = true, ["return"] = true, jump = true, ["goto"] = true }

local function statement(expression)
    local key, value = next(expression)
    if key == "match" then
        return { match = left_text(value.left), op = value.op, value = value.right }
    elseif VERDICTS[key] then
        local target = type(value) == "table" and value.target or nil
        return { verdict = key, target = target }
    end
    return { other = key }
end

local function add_rule(ruleset, rule)
    local statements = {}
    for i, expression in ipairs(rule.expr or {}) do
        statements[i] = statement(expression)
    end
    local chain = nft.chain(ruleset, rule.family, rule.table, rule.chain)
    if chain then
        table.insert(chain.rules, { statements = statements, handle = math.tointeger(rule.handle) })
    end
end

--- Reads what `nft -j list ruleset` printed.
-- @return { tables = { { family, name } }, chains = { { family, table, name, hook, type, priority,
--   policy, rules = { { statements, handle } } } } }; or nil, message
function nft.decode(text)
    local ok, data = pcall(cjson.decode, text)
    if not ok or type(data) ~= "table" or type(data.nftables) ~= "table" then
        return nil, "nft -j list ruleset: no ruleset"
    end
    local ruleset = { tables = {}, chains = {} }
    for _, entry in ipairs(data.nftables) do
        if entry.table then
            table.insert(ruleset.tables, { family = entry.table.family, name = entry.table.name })
        elseif entry.chain then
            local chain = entry.chain
            table.insert(ruleset.chains, {
                family = chain.family,
                table = chain.table,
                name = chain.name,
                hook = chain.hook,
                type = chain.type,
                priority = chain.prio and math.tointeger(chain.prio) or nil,
                policy = chain.policy,
                rules = {},
            })
        elseif entry.rule then
            add_rule(ruleset, entry.rule)
        end
    end
    return ruleset
end

--- The ruleset of the kernel, now.
-- @return as nft.decode; or nil, message, code
function nft.ruleset()
    local text, why, code = engine.call("nft.list")
    if not text then
        return nil, why, code
    end
    return nft.decode(text)
end

--- One chain, or nil.
function nft.chain(ruleset, family, name, chain_name)
    for _, chain in ipairs(ruleset.chains) do
        if chain.family == family and chain.table == name and chain.name == chain_name then
            return chain
        end
    end
    return nil
end

--- The base chains of one table on a hook ("input", "forward").
-- @return array of chains
function nft.base_chains(ruleset, family, name, hook)
    local out = {}
    for _, chain in ipairs(ruleset.chains) do
        if chain.family == family and chain.table == name and chain.hook == hook then
            out[#out + 1] = chain
        end
    end
    return out
end

-- Whether one element of a match's right side holds a packet's value.
local function holds_one(element, value)
    if type(element) ~= "table" then
        local text = tostring(math.tointeger(element) or element)
        local prefix = text:match("^(.*)%*$")
        return text == tostring(value) or prefix ~= nil and tostring(value):sub(1, #prefix) == prefix
    elseif element.prefix then
        return inet.within(tostring(value), ("%s/%d"):format(element.prefix.addr, element.prefix.len))
    elseif element.range then
        local low, high, number = tonumber(element.range[1]), tonumber(element.range[2]), tonumber(value)
        return low ~= nil and high ~= nil and number ~= nil and low <= number and number <= high
    end
    return false
end

local function holds(right, value)
    local elements = type(right) == "table" and (right.set or (#right > 0 and right)) or { right }
    for _, element in ipairs(elements) do
        if holds_one(element, value) then
            return true
        end
    end
    return false
end

-- Whether a packet has what a match asks for; false where the packet does not say.
local function matches(part, packet)
    local value = packet[part.match]
    if value == nil then
        return false
    end
    local held = holds(part.value, value)
    if part.op == "!=" then
        return not held
    end
    return held
end

-- Whether every match of a rule holds, and the verdict it then has.
local function rule_verdict(rule, packet)
    local verdict = nil
    for _, part in ipairs(rule.statements) do
        if part.match and not matches(part, packet) then
            return nil
        end
        verdict = verdict or part.verdict
    end
    return verdict
end

--- What a chain does with a packet. Jumps are not followed: a chain of ours has none.
-- @param chain as of nft.chain
-- @param packet what the packet is, by match: { ["meta iifname"] = "boxnet", ["ip daddr"] = "10.88.0.1",
--   ["udp dport"] = 53 }; a match on anything it does not name does not hold
-- @return "accept", "drop" or "reject"
function nft.evaluate(chain, packet)
    for _, rule in ipairs(chain.rules) do
        local verdict = rule_verdict(rule, packet)
        if verdict == "accept" or verdict == "drop" or verdict == "reject" then
            return verdict
        end
    end
    return chain.policy or "accept"
end

--- What a table does with a packet on a hook: the first of its base chains there that does not accept it.
-- @return "accept", "drop" or "reject"
function nft.verdict(ruleset, family, name, hook, packet)
    for _, chain in ipairs(nft.base_chains(ruleset, family, name, hook)) do
        local verdict = nft.evaluate(chain, packet)
        if verdict ~= "accept" then
            return verdict
        end
    end
    return "accept"
end

return nft
