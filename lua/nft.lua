--- The kernel's nftables ruleset as data, and questions about it. Reads only.
local cjson = require "cjson"

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

--- The verdict a rule ends in, or nil. @return "drop", "accept", ...
function nft.verdict(rule)
    for _, part in ipairs(rule.statements) do
        if part.verdict then
            return part.verdict
        end
    end
    return nil
end

--- What a rule's match on one thing compares with.
-- @param what "meta iifname", "tcp dport", ...
-- @return the JSON value (text, number, or a table such as a set), op; or nil when it has no such match
function nft.match(rule, what)
    for _, part in ipairs(rule.statements) do
        if part.match == what then
            return part.value, part.op
        end
    end
    return nil
end

--- How many matches a rule has: a rule with none takes everything.
function nft.match_count(rule)
    local count = 0
    for _, part in ipairs(rule.statements) do
        if part.match or part.other == "vmap" then
            count = count + 1
        end
    end
    return count
end

return nft
