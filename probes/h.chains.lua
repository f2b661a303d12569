-- What the network's ACL comes to in the kernel: Incus's configuration can list an ACL whose chains are gone (a
-- flushed ruleset, a change that failed half-way), and it neither notices nor heals.
local firewall = require "firewall"
local host = require "host"
local stack = require "stack"

return {
    id = "h.chains",
    title = "the kernel drops what the network's ACL says",
    run = function(t)
        local ruleset = stack.ruleset(t)
        if not ruleset then
            return
        end
        local name, wanted = t.contract.network.name, {}
        for _, demand in ipairs(firewall.routed(ruleset, t.contract, host.uplink() or "uplink")) do
            if not demand.accept then
                wanted[#wanted + 1] = demand
            end
        end
        local met = stack.demands(t, wanted, {
            why = "private networks are within a box's reach, or the box within theirs",
            mend = ("%s; where it finds nothing to change: incus network set %s ipv4.dhcp.expiry=61m && "
                .. "incus network unset %s ipv4.dhcp.expiry (a real change makes Incus write its rules again)"):format(
                stack.SETUP, name, name),
        })
        if met then
            t:pass("it does")
        end
    end,
}
