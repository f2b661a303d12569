-- What a link carries besides unicast IPv4: ARP, IPv6 link-local, and groups, LLMNR's and mDNS's among them. Each is
-- a raw frame that is looked for on the sibling's link, before any firewall of the sibling's own: so none of them waits
-- for another to be answered first.
local dns = require "dns"
local frame = require "frame"
local inet = require "inet"
local siblings = require "siblings"

local CLAUSE = "no frame of a box reaches another box"

-- ARP, to everybody and to the sibling alone.
local function arp(me, sibling)
    local by_hand = ("arping -c 3 -I %s %s"):format(me.link, sibling.address)
    return {
        what = "an ARP request",
        to = sibling.address,
        by_hand = by_hand,
        bytes = function(mark)
            return frame.arp_request(me.mac, me.address, sibling.address, mark)
        end,
    }, {
        what = "an ARP reply that it did not ask for",
        to = sibling.address,
        by_hand = ("arping -c 3 -A -I %s %s"):format(me.link, me.address),
        bytes = function(mark)
            return frame.arp_reply(me.mac, me.address, sibling.mac, sibling.address, mark)
        end,
    }
end

-- TCP, UDP and ICMP to the sibling's link-local address.
local function over_ipv6(me, sibling, proto, port)
    local to = siblings.link_local(sibling)
    local by_hand = { -- of the same shape as over IPv4
        tcp = "bash -c '</dev/tcp/%s%%%s/%d'",
        udp = "bash -c 'echo x >/dev/udp/%s%%%s/%d'",
        icmp = "ping -n -c 3 %s%%%s",
    }
    return {
        what = proto:upper() .. " to its IPv6 link-local address",
        to = to,
        port = port,
        by_hand = by_hand[proto]:format(to, me.link, port),
        bytes = function(mark)
            return frame.packet {
                to_mac = sibling.mac,
                from_mac = me.mac,
                to = to,
                from = siblings.link_local(me),
                proto = proto,
                port = port,
                data = mark,
            }
        end,
    }
end

local function solicitation(me, sibling)
    local to = siblings.link_local(sibling)
    return {
        what = "a neighbour solicitation",
        to = to,
        by_hand = ("ping -n -c 3 %s%%%s"):format(to, me.link),
        bytes = function(mark)
            return frame.solicitation(me.mac, siblings.link_local(me), to, mark)
        end,
    }
end

-- A question for the sibling's name, to a group.
local function to_group(me, name, group)
    local version6 = inet.family(group.address) == 6
    return {
        what = ("a datagram to %s (%s)"):format(group.name, group.address),
        to = group.address,
        port = group.port,
        by_hand = ("bash -c 'echo x >/dev/udp/%s%s/%d'"):format(group.address, version6 and "%" .. me.link or "",
            group.port),
        bytes = function(mark)
            return frame.packet {
                to_mac = frame.group_mac(group.address),
                from_mac = me.mac,
                to = group.address,
                from = version6 and siblings.link_local(me) or me.address,
                proto = "udp",
                port = group.port,
                data = dns.query(0, name, "A") .. mark,
            }
        end,
    }
end

-- No frame at all: of a kind that no filter of IP or ARP knows, and with it all that the box sends by itself.
local function anything(me)
    return {
        what = "a frame of another kind, or any that was not sent for this",
        any = true,
        bytes = function(mark)
            return frame.ethernet(frame.BROADCAST, me.mac, frame.EXPERIMENTAL, mark)
        end,
    }
end

local function frames(t, name, me, sibling)
    local port = t.contract.box.link_port
    local out = table.pack(arp(me, sibling))
    out[#out + 1] = solicitation(me, sibling)
    for _, proto in ipairs { "tcp", "udp", "icmp" } do
        out[#out + 1] = over_ipv6(me, sibling, proto, proto ~= "icmp" and port or nil)
    end
    for _, group in ipairs(t.contract.groups) do
        out[#out + 1] = to_group(me, name, group)
    end
    out[#out + 1] = anything(me)
    return out
end

return {
    id = "c.sibling.l2",
    title = "no ARP, IPv6 or multicast of a box reaches its sibling",
    audit = "A3",
    needs = { "box.exec" },
    boxes = 2,
    run = function(t, a, b)
        siblings.both_ways(t, a, b, CLAUSE, function(from, to, me, sibling)
            siblings.frames(t, from, to, me, sibling, {
                port = t.contract.box.link_port,
                clause = CLAUSE,
                frames = frames(t, to.name, me, sibling),
            })
        end)
    end,
}
