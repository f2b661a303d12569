-- The host's own rules around the bridge, read from the kernel's whole ruleset by what they do with packets: a
-- table of the right name with an empty chain protects nobody.
local firewall = require "firewall"
local stack = require "stack"

return {
    id = "h.firewall",
    title = "the kernel drops what boxes send to the host and to each other",
    run = function(t)
        local ruleset = stack.ruleset(t)
        if not ruleset then
            return
        end
        local wanted = firewall.own(ruleset, t.contract)
        local met = stack.demands(t, wanted, {
            why = "what the host serves, and the boxes' neighbours, are within a box's reach (DNS and DHCP must be)",
            mend = stack.SETUP,
        })
        if met then
            t:pass("it does")
        end
    end,
}
