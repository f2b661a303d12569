-- Whoever drops on the forward hook wins over Incus's accept: Docker, firewalld and ufw set its policy to drop.
local firewall = require "firewall"
local host = require "host"
local stack = require "stack"

local WHY = "boxes do not reach the internet"

return {
    id = "h.forward",
    title = "nobody's chain drops what boxes send to the internet",
    run = function(t)
        local ruleset = stack.ruleset(t)
        if host.facts().ip_forward == "0" then
            stack.dirty(t, "the kernel does not forward: net.ipv4.ip_forward is 0", {
                why = WHY,
                mend = "sysctl -w net.ipv4.ip_forward=1, and keep it in /etc/sysctl.d",
            })
        end
        if not ruleset then
            return
        end
        for _, demand in ipairs(firewall.routed(ruleset, t.contract, host.uplink() or "uplink")) do
            if demand.accept and demand.state == "unmet" then
                local family, table_name, chain = demand.chain:match("^(%S+) (%S+) (%S+)$")
                stack.dirty(t, ("not so: %s; chain %s says %s"):format(demand.what, demand.chain, demand.verdict), {
                    why = WHY,
                    mend = ("let the bridge through in whatever wrote it, as: nft insert rule %s %s %s iifname %s "
                        .. "accept; nft insert rule %s %s %s oifname %s ct state established,related accept"):format(
                        family, table_name, chain, t.contract.network.name,
                        family, table_name, chain, t.contract.network.name),
                })
            elseif demand.accept and demand.state == "untold" then
                stack.unasked(t, demand.what, ("chain %s has a rule that is not read here"):format(demand.chain))
            end
        end
        if #t.observations == 0 then
            t:pass("none does")
        end
    end,
}
