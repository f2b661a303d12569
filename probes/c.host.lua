-- The host, on every address it holds: open and closed ports over TCP and UDP, and ICMP. Nothing arrives,
-- save DNS and DHCP at the box's own gateway.
local host = require "host"
local isolated = require "isolated"
local targets = require "targets"

local CLAUSE = "a box reaches nothing on its host, save DNS and DHCP at its gateway"

-- A link-local address is asked from the box's own link-local one, which a new box has not at once.
local SETTLE_MS = 4000

local function has_link_local(list)
    for _, target in ipairs(list) do
        if target.spec.to:find("^[Ff][Ee]80:") then
            return true
        end
    end
    return false
end

-- Whether silence on that protocol proves something at one target at least: somebody is known to listen, or the
-- host's own witness would have seen it.
local function is_judged(list, proto)
    for _, target in ipairs(list) do
        if (target.listener or target.witness) and target.spec.proto == proto then
            return true
        end
    end
    return false
end

local function demand_judged(t, list)
    for _, proto in ipairs { "tcp", "udp" } do
        if not is_judged(list, proto) then
            t:suspect(("no %s listener is known on the host: silence proves nothing there"):format(proto), {
                clause = CLAUSE,
                reason = "name one in the site's `listeners`; it must answer the host itself",
            })
        end
    end
end

return {
    id = "c.host",
    title = "a box cannot reach its host, on any of its addresses",
    audit = "A2",
    needs = { "box.exec", "host.connect", "witness" },
    boxes = 1,
    run = function(t, box)
        local me, addresses = isolated.ground(t, box, CLAUSE)
        if not me then
            return
        end
        local list = targets.host(t.contract, addresses, me.link)
        if has_link_local(list) and not box:settle(me.link, SETTLE_MS) then
            t:note(box.label .. " has an IPv6 address that is not usable yet")
        end
        isolated.verify(host, list, t.contract.budgets.verify)
        t:isolated { source = box, identity = me, targets = list, clause = CLAUSE }
        demand_judged(t, list)
    end,
}
