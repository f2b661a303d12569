-- "Created" is Incus's word for the network, and says nothing of its resolver: nobody restarts a dead one. So
-- the kernel is asked who holds the port, and the resolver is asked a name, from the host.
local contract = require "contract"
local host = require "host"
local inet = require "inet"
local resolver = require "resolver"
local stack = require "stack"
local system = require "system"

local DNS, MS = 53, 3000
local WHY = "boxes resolve no name, and new ones get no address"

-- The holders of the gateway's port 53 on UDP: those bound to it, else those bound to every address.
local function holders(listeners, gateway)
    local bound, every = {}, {}
    for _, one in ipairs(listeners) do
        if one.proto == "udp" and inet.same(one.address, gateway) then
            bound[#bound + 1] = one
        elseif one.proto == "udp" and (one.address == "0.0.0.0" or one.address == "*") then
            every[#every + 1] = one
        end
    end
    return #bound > 0 and bound or every
end

local function restart(data)
    local name = data.network.name
    return ("incus network set %s ipv4.dhcp.expiry=61m && incus network unset %s ipv4.dhcp.expiry "
        .. "(nothing less than a real change starts it again)"):format(name, name)
end

-- Who holds the port; false when that is dirty, and recorded.
local function is_held(t)
    local data = t.contract
    local listeners, why = system.listeners(DNS)
    if not listeners then
        stack.unasked(t, "who holds the resolver's port", why)
        return true
    end
    local held = holders(listeners, data.gateway)
    for _, one in ipairs(held) do
        if one.name and one.name ~= "dnsmasq" then
            stack.dirty(t, ("another program holds port 53 of %s: %s, process %d"):format(
                data.gateway, one.name, one.pid), {
                why = "Incus cannot start the network's resolver, and every change of the network fails half-way",
                mend = ("stop it, or bind it elsewhere; then: %s"):format(restart(data)),
            })
            return false
        end
    end
    if #held == 0 and not stack.no_bridge(t) then
        stack.dirty(t, ("no process serves port 53 of %s"):format(data.gateway), { why = WHY, mend = restart(data) })
    end
    return #held > 0
end

-- Whether the resolvers that it is to ask answer the host itself.
local function upstream_answers(data)
    local queries = {}
    for _, server in ipairs(data.network.resolvers) do
        if not contract.excluded(data, server, DNS) then
            queries[#queries + 1] = { server = server, proto = "udp", name = data.allowed.names[1], kind = "A" }
        end
    end
    for _, result in ipairs(#queries > 0 and resolver.ask(host, queries, MS) or {}) do
        if result.status == "resolved" then
            return true
        end
    end
    return false
end

local function ask(t)
    local data = t.contract
    local query = { server = data.gateway, proto = "udp", name = data.allowed.names[1], kind = "A" }
    local result = resolver.ask(host, { query }, MS)[1]
    if result.status == "resolved" then
        t:pass(("%s answers: %s"):format(data.gateway, resolver.text(result)))
    elseif not upstream_answers(data) then
        stack.unasked(t, "whether the boxes' resolver answers",
            ("none of the resolvers behind it (%s) answers this host: the host's own way out is broken"):format(
                table.concat(data.network.resolvers, " ")))
    else
        stack.dirty(t, ("the resolver at %s does not answer for %s"):format(data.gateway, query.name), {
            why = WHY,
            mend = restart(data),
            seen = resolver.text(result),
            by_hand = resolver.question(query),
        })
    end
end

return {
    id = "h.dnsmasq",
    title = "a live resolver serves the bridge, and answers",
    needs = { "host.connect" },
    run = function(t)
        if is_held(t) then
            ask(t)
        end
    end,
}
