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

---------------------------------------------------------------------------------------------------
-- The whole ruleset: what the kernel does with a packet, whoever wrote the rules. A match on something that the
-- packet does not say, or that is not read here (a set, a fib lookup, an iptables extension), may hold or not.

-- Protocols: a packet that is not of one has none of its fields.
local LAYERS = {}
for word in ("ip ip6 arp tcp udp icmp icmpv6 sctp dccp esp ah comp udplite igmp"):gmatch("%S+") do
    LAYERS[word] = true
end
-- Statements that decide nothing and match nothing.
local NEUTRAL = { counter = true, log = true, mangle = true, masquerade = true, snat = true, notrack = true }

--- A packet with what follows from what it says: its protocols, and that nobody has marked it.
-- @param packet as of nft.evaluate @param hook where it is met: on input it leaves by no link, on output it came
--   by none
-- @return a copy, with `layers`
function nft.packet(packet, hook)
    local out = { layers = {}, ["meta mark"] = 0, ["ct mark"] = 0 }
    local none = ({ input = "oif", output = "iif" })[hook]
    if none then
        out["meta " .. none], out["meta " .. none .. "name"] = "", ""
    end
    for key, value in pairs(packet) do
        out[key] = value
        local layer = key:match("^(%S+)")
        if LAYERS[layer] then
            out.layers[layer] = true
            if layer ~= "ip" and layer ~= "arp" then
                out["meta l4proto"], out["ip protocol"] = layer, layer
            end
        end
    end
    if out.layers.ip then
        out["ip version"], out["meta nfproto"], out["meta protocol"], out["ether type"] = 4, "ipv4", "ip", "ip"
    elseif out.layers.arp then
        out["meta protocol"], out["ether type"] = "arp", "arp"
    end
    return out
end

-- Whether an element of a match's right side can be read here.
local function is_plain(element)
    if type(element) ~= "table" then
        return not tostring(element):find("^@")
    end
    return element.prefix ~= nil or element.range ~= nil
end

local function all_plain(right)
    local elements = type(right) == "table" and (right.set or (#right > 0 and right)) or { right }
    if type(elements) ~= "table" then
        return false -- a named set
    end
    for _, element in ipairs(elements) do
        if not is_plain(element) then
            return false
        end
    end
    return true
end

-- "yes", "no" or "maybe".
local function holds_for(part, packet)
    local layer = part.match:match("^(%S+)")
    if packet[part.match] == nil then
        return LAYERS[layer] and not packet.layers[layer] and "no" or "maybe"
    elseif not all_plain(part.value) then
        return "maybe"
    end
    return matches(part, packet) and "yes" or "no"
end

-- Whether a rule applies ("yes", "no", "maybe"), and its verdict statement, if it has one.
local function rule_applies(rule, packet)
    local applies, verdict = "yes", nil
    for _, part in ipairs(rule.statements) do
        local one = "yes"
        if part.match then
            one = holds_for(part, packet)
        elseif part.other and not NEUTRAL[part.other] then
            one = "maybe"
        end
        if one == "no" then
            return "no"
        end
        applies = one == "maybe" and "maybe" or applies
        verdict = verdict or part.verdict and part
    end
    return applies, verdict
end

local DEPTH = 16 -- the kernel's own limit of jumps
local FINAL = { accept = true, drop = true, reject = true }

-- Walks a chain. Adds to `maybe` what a rule that may apply would have come to.
-- Returns a final verdict, or nil where the packet comes out at the chain's end.
local function walk(ruleset, chain, packet, maybe, depth)
    for _, rule in ipairs(chain.rules) do
        local applies, part = rule_applies(rule, packet)
        local verdict = part and part.verdict
        if applies ~= "no" and part and part.target then
            local target = nft.chain(ruleset, chain.family, chain.table, part.target)
            local reached = target and depth < DEPTH and walk(ruleset, target, packet, maybe, depth + 1)
            verdict = reached or part.verdict == "goto" and "return" or nil
        end
        if applies == "maybe" and verdict then
            maybe[verdict == "return" and "accept" or verdict] = true
        elseif applies == "yes" and FINAL[verdict] then
            return verdict
        elseif applies == "yes" and verdict == "return" then
            return nil
        end
    end
    return nil
end

--- What the kernel does with a packet on a hook: every base chain of these families must let it through.
-- @param ruleset as of nft.ruleset
-- @param families array ({ "inet", "ip" }) @param hook "input", "forward" or "output"
-- @param packet as of nft.packet
-- @return "accept", "drop" or "reject"; whether that is sure, a rule that is not read here apart; and the chain
--   that does not let it through, or may not
function nft.fate(ruleset, families, hook, packet)
    local fate, sure, where = "accept", true, nil
    for _, family in ipairs(families) do
        for _, chain in ipairs(ruleset.chains) do
            if chain.family == family and chain.hook == hook and chain.type == "filter" then
                local maybe = {}
                local verdict = walk(ruleset, chain, packet, maybe, 0) or chain.policy or "accept"
                local name = ("%s %s %s"):format(chain.family, chain.table, chain.name)
                if verdict ~= "accept" and not maybe.accept then
                    return verdict, true, name
                elseif verdict ~= "accept" then
                    fate, sure, where = verdict, false, name
                elseif (maybe.drop or maybe.reject) and fate == "accept" then
                    sure, where = false, name
                end
            end
        end
    end
    return fate, sure, where
end

return nft
