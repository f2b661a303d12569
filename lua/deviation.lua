--- How what is differs from what the contract says, as lines of text: setup.lua changes it, the doctor names it.
local contract = require "contract"

local deviation = {}

local RULE_KEYS = {
    "action", "source", "destination", "protocol", "source_port", "destination_port", "icmp_type",
    "icmp_code", "state",
}

--- A value for people: one line, a word for nothing.
function deviation.shown(value)
    if value == nil or value == "" then
        return "not set"
    end
    return (value:gsub("\n", "; "))
end

--- What of `wanted` is not so in `actual`: a map of the keys to be written, and a line for each.
-- @param prefix text before each key @param wanted, actual maps of texts
function deviation.keys(prefix, wanted, actual)
    local out, lines = {}, {}
    for _, key in ipairs(contract.sorted_keys(wanted)) do
        if (actual[key] or "") ~= wanted[key] then
            lines[#lines + 1] = ("%s%s: %s -> %s"):format(
                prefix, key, deviation.shown(actual[key]), deviation.shown(wanted[key]))
            out[key] = wanted[key]
        end
    end
    return out, lines
end

--- An ACL's rule as one line; two rules that do the same give the same line.
function deviation.rule(rule)
    local parts = {}
    for _, key in ipairs(RULE_KEYS) do
        if rule[key] and rule[key] ~= "" then
            parts[#parts + 1] = ("%s=%s"):format(key, rule[key])
        end
    end
    return table.concat(parts, " ")
end

--- The contract's rules as Incus keeps them: each with its state.
function deviation.with_state(rules)
    local out = {}
    for i, rule in ipairs(rules) do
        out[i] = { state = "enabled" }
        for key, value in pairs(rule) do
            out[i][key] = value
        end
    end
    return out
end

--- Which rules are missing and which are too many.
-- @param wanted as of deviation.with_state @param actual array of rules, as Incus has them
-- @return two arrays of lines, as of deviation.rule
function deviation.rules(wanted, actual)
    local have, missing = {}, {}
    for _, rule in ipairs(actual) do
        have[deviation.rule(rule)] = true
    end
    for _, rule in ipairs(wanted) do
        local text = deviation.rule(rule)
        if not have[text] then
            missing[#missing + 1] = text
        end
        have[text] = nil
    end
    return missing, contract.sorted_keys(have)
end

return deviation
