-- What root in a box can do to reach its sibling: say where it is (its MAC, or the gateway as the way there), send to
-- everybody, lie about who sends. As raw frames: the box's own routes, neighbours and addresses stay as they are.
local frame = require "frame"
local host = require "host"
local siblings = require "siblings"

local CLAUSE = "not even root in a box reaches another box"

-- The MAC of the boxes' gateway, as the host itself says; nil when it has none.
local function gateway_mac(t, addresses)
    for _, entry in ipairs(addresses) do
        if entry.link == t.contract.network.name and entry.address == t.contract.gateway then
            return entry.mac
        end
    end
    return nil
end

-- A MAC that nobody has: locally administered, the rest of it random.
local function nobodys_mac()
    return "02" .. engine.random():sub(1, 10):gsub("%x%x", ":%0")
end

-- Words that ask the same by hand: what is set is taken back.
local function by_hand(set, ask, unset)
    return ("sh -c '%s; %s; %s'"):format(set, ask, unset)
end

local function ping(address, more)
    return ("ping -n -c 3 -W 1 %s%s"):format(more or "", address)
end

-- An IP packet to the sibling, of which `changed` is not as the box would send it.
local function packet(t, me, sibling, what, words, changed)
    local options = {
        to_mac = sibling.mac,
        from_mac = me.mac,
        to = sibling.address,
        from = me.address,
        proto = "udp",
        port = t.contract.box.raw_port,
    }
    for key, value in pairs(changed) do
        options[key] = value
    end
    return {
        what = what,
        to = options.to,
        port = options.proto ~= "icmp" and options.port or nil,
        by_hand = words,
        bytes = function(mark)
            options.data = mark
            return frame.packet(options)
        end,
    }
end

-- With the sibling's MAC as a permanent neighbour, and with a route to it through the gateway.
local function directly(t, me, sibling, gateway, out)
    local link, address = me.link, sibling.address
    local neighbour = by_hand(("ip neigh replace %s lladdr %s dev %s nud permanent"):format(address, sibling.mac, link),
        ping(address), ("ip neigh del %s dev %s"):format(address, link))
    local route = by_hand(("ip route replace %s/32 via %s dev %s onlink"):format(address, t.contract.gateway, link),
        ping(address), ("ip route del %s/32"):format(address))
    for _, proto in ipairs { "tcp", "udp", "icmp" } do
        out[#out + 1] = packet(t, me, sibling, proto:upper() .. " to its MAC", neighbour, { proto = proto })
        out[#out + 1] = packet(t, me, sibling, proto:upper() .. " through the gateway", route,
            { proto = proto, to_mac = gateway })
    end
end

-- From an address, a MAC, or both, that are not the box's own.
local function spoofed(t, me, sibling, out)
    local gateway, mac, link = t.contract.gateway, nobodys_mac(), me.link
    local own_address = by_hand(("ip address add %s/32 dev %s"):format(gateway, link),
        ping(sibling.address, ("-I %s "):format(gateway)), ("ip address del %s/32 dev %s"):format(gateway, link))
    local own_mac = by_hand(("ip link set %s address %s"):format(link, mac), ping(sibling.address),
        ("ip link set %s address %s"):format(link, me.mac))
    out[#out + 1] = packet(t, me, sibling, "UDP from the gateway's address", own_address, { from = gateway })
    out[#out + 1] = packet(t, me, sibling, "UDP from a MAC that nobody has", own_mac, { from_mac = mac })
    out[#out + 1] = packet(t, me, sibling, "UDP from the gateway's address and a MAC that nobody has", own_mac,
        { from = gateway, from_mac = mac })
end

local function frames(t, me, sibling, gateway)
    local out, everybody = {}, t.contract.broadcast
    directly(t, me, sibling, gateway, out)
    spoofed(t, me, sibling, out)
    out[#out + 1] = packet(t, me, sibling, "UDP to everybody", ping(everybody, "-b "),
        { to = everybody, to_mac = frame.BROADCAST })
    local tagged = by_hand(("ip link add link %s name tagged type vlan id 1; ip link set tagged up"):format(me.link),
        ping(sibling.address, "-I tagged "), "ip link del tagged")
    out[#out + 1] = packet(t, me, sibling, "UDP to its MAC, with a VLAN's tag", tagged, { vlan = 1 })
    return out
end

return {
    id = "c.sibling.root",
    title = "not even root in a box reaches its sibling",
    audit = "A3",
    needs = { "box.exec" },
    boxes = 2,
    run = function(t, a, b)
        local addresses, why = host.addresses()
        if not addresses then
            return t:error("the host's addresses: " .. why)
        end
        local gateway = gateway_mac(t, addresses)
        if not gateway then
            return t:suspect("the host holds no gateway of the boxes, so nothing can be sent through it", {
                clause = CLAUSE,
            })
        end
        siblings.both_ways(t, a, b, CLAUSE, function(from, to, me, sibling)
            siblings.frames(t, from, to, me, sibling, {
                port = t.contract.box.raw_port,
                clause = CLAUSE,
                frames = frames(t, me, sibling, gateway),
            })
        end)
    end,
}
