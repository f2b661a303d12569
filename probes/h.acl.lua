-- The ACL's rules, as Incus has them; what the kernel has is h.chains.
local deviation = require "deviation"
local host = require "host"
local stack = require "stack"

-- The bridge's real address, if it has one.
local function live_gateway(data)
    for _, entry in ipairs(host.addresses() or {}) do
        if entry.link == data.network.name and entry.family == 4 then
            return entry.address
        end
    end
    return nil
end

local function internal(t, acl)
    for _, direction in ipairs { "egress", "ingress" } do
        for _, rule in ipairs(acl[direction] or {}) do
            if deviation.rule(rule):find("@", 1, true) then
                stack.dirty(t, ("%s has the rule %s"):format(direction, deviation.rule(rule)), {
                    why = "Incus takes it while the ACL is attached nowhere, and then refuses to attach the ACL",
                    mend = ("incus network acl edit %s (or: %s)"):format(acl.name, stack.SETUP),
                })
            end
        end
    end
end

local function compare(t, acl)
    for _, direction in ipairs { "egress", "ingress" } do
        local missing, surplus = deviation.rules(
            deviation.with_state(t.contract.acl[direction]), acl[direction] or {})
        for _, text in ipairs(missing) do
            stack.dirty(t, ("%s lacks the rule: %s"):format(direction, text), {
                why = "what it drops is within a box's reach",
                mend = stack.SETUP,
            })
        end
        for _, text in ipairs(surplus) do
            if not text:find("@", 1, true) then
                stack.dirty(t, ("%s has a rule that is not the contract's: %s"):format(direction, text), {
                    why = "it lets through, or drops, what the contract does not say",
                    mend = stack.SETUP,
                })
            end
        end
    end
end

-- The rule that lets boxes to their gateway, where the bridge has been renumbered since.
local function carve_out(t, acl)
    local gateway = live_gateway(t.contract)
    if not gateway then
        return
    end
    for _, rule in ipairs(acl.egress or {}) do
        local address = (rule.destination or ""):match("^([%d.]+)/32$")
        if rule.action == "allow" and address and address ~= gateway then
            stack.dirty(t, ("the gateway's rule allows %s, and the bridge has %s"):format(address, gateway), {
                why = "the rule is for a gateway that is no more: somebody else may get that address",
                mend = ("the contract and the network disagree: %s"):format(stack.SETUP),
            })
        end
    end
end

return {
    id = "h.acl",
    title = "the ACL's rules are the contract's, its gateway the live one",
    run = function(t)
        local acl = stack.part(t, "acl")
        if not acl then
            return
        end
        compare(t, acl)
        internal(t, acl)
        carve_out(t, acl)
        if #t.observations == 0 then
            t:pass(("those of %s are"):format(acl.name))
        end
    end,
}
