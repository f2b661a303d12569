-- A bridge that was given the uplink's own subnet: the host then talks to itself where it means its gateway.
local host = require "host"
local inet = require "inet"
local stack = require "stack"

local function is_main(route)
    return route.table == nil or route.table == "main"
end

-- The default gateway as a local address.
local function held(t, addresses, gateway)
    for _, entry in ipairs(addresses) do
        if inet.same(entry.address, gateway) then
            stack.dirty(t, ("the default gateway %s is an address of this host's own %s"):format(gateway, entry.link), {
                why = "what is sent to the gateway never leaves the host: no internet for anybody",
                mend = ("ip address delete %s/%d dev %s (for a bridge of Incus: incus network set %s ipv4.address=...)")
                    :format(entry.address, entry.bits, entry.link, entry.link),
            })
        end
    end
end

-- The bits of a connected route in the main table that leads to an address; nil when it is none.
local function connected(route, address)
    local leads = is_main(route) and route.scope == "link" and route.dst ~= "default"
        and inet.within(address, route.dst)
    return leads and (tonumber(route.dst:match("/(%d+)$")) or 32) or nil
end

-- Another link with a connected route to the gateway that is as narrow as the uplink's, or narrower: it may win.
local function shared(t, routes, uplink, gateway)
    local own = 0
    for _, route in ipairs(routes) do
        own = route.dev == uplink and math.max(own, connected(route, gateway) or 0) or own
    end
    for _, route in ipairs(routes) do
        if route.dev ~= uplink and (connected(route, gateway) or -1) >= own then
            stack.dirty(t, ("%s, where the gateway %s is, is also routed to %s"):format(
                route.dst, gateway, route.dev), {
                why = "packets for the gateway go to the wrong link",
                mend = ("ip route delete %s dev %s; give that link another subnet"):format(route.dst, route.dev),
            })
        end
    end
end

return {
    id = "h.squat",
    title = "nobody sits on the default gateway or its subnet",
    run = function(t)
        local routes, why = host.all_routes()
        local addresses, other = host.addresses()
        if not routes or not addresses then
            return stack.unasked(t, "the host's routes and addresses", why or other)
        end
        local gateways = 0
        for _, route in ipairs(routes) do
            if route.dst == "default" and is_main(route) and route.gateway then
                gateways = gateways + 1
                held(t, addresses, route.gateway)
                shared(t, routes, route.dev, route.gateway)
            end
        end
        if gateways == 0 then
            t:skip("this host has no default gateway")
        elseif #t.observations == 0 then
            t:pass("nobody does")
        end
    end,
}
