--- Ethernet frames as bytes, for what a box's own stack would not send: somebody's MAC without asking for it, a
-- source that is not the box's, a group. Pure functions; addresses are texts, MACs too.
local inet = require "inet"

local frame = {}

local IPV4, ARP, IPV6, VLAN = 0x0800, 0x0806, 0x86dd, 0x8100
local PROTOCOL = { icmp = 1, tcp = 6, udp = 17 }
local ICMPV6 = 58
local BROADCAST = "ff:ff:ff:ff:ff:ff"
local SOURCE_PORT = 40000

--- An EtherType for experiments (IEEE 802): nobody's protocol.
frame.EXPERIMENTAL = 0x88b5

--- The MAC of everybody on a link.
frame.BROADCAST = BROADCAST

--- The bytes of a MAC, or nil when it is none.
function frame.mac(text)
    local bytes = {}
    for pair in (tostring(text) .. ":"):gmatch("(%x%x):") do
        bytes[#bytes + 1] = string.char(tonumber(pair, 16))
    end
    return #bytes == 6 and #text == 17 and table.concat(bytes) or nil
end

local function mac_text(bytes)
    return ("%02x:%02x:%02x:%02x:%02x:%02x"):format(bytes:byte(1, 6))
end

--- The MAC that a group's frames are sent to (RFC 1112 6.4, RFC 2464 7).
function frame.group_mac(address)
    local bytes = inet.parse(address)
    if #bytes == 16 then
        return mac_text("\x33\x33" .. bytes:sub(13))
    end
    return mac_text("\x01\x00\x5e" .. string.char(bytes:byte(2) & 0x7f) .. bytes:sub(3))
end

--- The link-local IPv6 address that a MAC makes (RFC 4291, appendix A).
function frame.link_local(mac)
    local bytes = frame.mac(mac)
    return inet.text("\xfe\x80" .. ("\0"):rep(6) .. string.char(bytes:byte(1) ~ 2) .. bytes:sub(2, 3) .. "\xff\xfe"
        .. bytes:sub(4))
end

-- The Internet checksum (RFC 1071).
local function checksum(bytes)
    local sum = 0
    for at = 1, #bytes, 2 do
        sum = sum + (bytes:byte(at) << 8) + (bytes:byte(at + 1) or 0)
    end
    while sum > 0xffff do
        sum = (sum & 0xffff) + (sum >> 16)
    end
    return ~sum & 0xffff
end

--- A frame.
-- @param to, from MACs @param kind its EtherType @param payload bytes
function frame.ethernet(to, from, kind, payload)
    return frame.mac(to) .. frame.mac(from) .. string.pack(">I2", kind) .. payload
end

-- `bytes` with their checksum over them and the pseudo header put in at an offset (RFC 768, 9293, 8200 8.1).
local function summed(from, to, number, bytes, at)
    local pseudo = #from == 4 and from .. to .. string.pack(">I2I2", number, #bytes)
        or from .. to .. string.pack(">I4I4", #bytes, number)
    local sum = checksum(pseudo .. bytes)
    return bytes:sub(1, at) .. string.pack(">I2", sum == 0 and 0xffff or sum) .. bytes:sub(at + 3)
end

-- What an IP packet carries: a datagram, a SYN with data in it, an echo request. Returns its number, its bytes.
local function transport(proto, from, to, port, data)
    local number = PROTOCOL[proto]
    if proto == "udp" then
        local bytes = string.pack(">I2I2I2I2", SOURCE_PORT, port, 8 + #data, 0) .. data
        return number, summed(from, to, number, bytes, 6)
    elseif proto == "tcp" then
        local bytes = string.pack(">I2I2I4I4I1I1I2I2I2", SOURCE_PORT, port, math.random(0, 0xffffffff), 0, 0x50, 2,
            64240, 0, 0) .. data
        return number, summed(from, to, number, bytes, 16)
    end
    local version6 = #from == 16
    local bytes = string.pack(">I1I1I2I2I2", version6 and 128 or 8, 0, 0, math.random(0, 0xffff), 1) .. data
    if version6 then
        return ICMPV6, summed(from, to, ICMPV6, bytes, 2)
    end
    return number, bytes:sub(1, 2) .. string.pack(">I2", checksum(bytes)) .. bytes:sub(5)
end

-- The number is a random one: fragments of two packets must not be mixed up.
local function ip4(from, to, number, bytes)
    local head = string.pack(">I1I1I2I2I2I1I1I2", 0x45, 0, 20 + #bytes, math.random(0, 0xffff), 0, 64, number, 0)
        .. from .. to
    return head:sub(1, 10) .. string.pack(">I2", checksum(head)) .. head:sub(13) .. bytes
end

local function ip6(from, to, number, hops, bytes)
    return string.pack(">I4I2I1I1", 6 << 28, #bytes, number, hops) .. from .. to .. bytes
end

--- A frame with an IP packet in it.
-- @param options { to_mac, from_mac, to, from (addresses of one family), proto (tcp, udp, icmp), port, data (bytes),
--   vlan (a VLAN's number: the frame is tagged with it) }
function frame.packet(options)
    local from, to = inet.parse(options.from), inet.parse(options.to)
    local number, bytes = transport(options.proto, from, to, options.port, options.data)
    local kind = #from == 4 and IPV4 or IPV6
    local packet = kind == IPV4 and ip4(from, to, number, bytes) or ip6(from, to, number, 64, bytes)
    if options.vlan then
        kind, packet = VLAN, string.pack(">I2I2", options.vlan, kind) .. packet
    end
    return frame.ethernet(options.to_mac, options.from_mac, kind, packet)
end

--- An ARP request to everybody (RFC 826).
-- @param from_mac, from who asks @param to the address asked for @param data bytes behind it, where padding is
function frame.arp_request(from_mac, from, to, data)
    local body = string.pack(">I2I2I1I1I2", 1, IPV4, 6, 4, 1) .. frame.mac(from_mac) .. inet.parse(from)
        .. ("\0"):rep(6) .. inet.parse(to)
    return frame.ethernet(BROADCAST, from_mac, ARP, body .. data)
end

--- An ARP reply that nobody asked for, to one machine.
-- @param from_mac, from who says where it is @param to_mac, to whom it is told @param data bytes behind it
function frame.arp_reply(from_mac, from, to_mac, to, data)
    local body = string.pack(">I2I2I1I1I2", 1, IPV4, 6, 4, 2) .. frame.mac(from_mac) .. inet.parse(from)
        .. frame.mac(to_mac) .. inet.parse(to)
    return frame.ethernet(to_mac, from_mac, ARP, body .. data)
end

-- Options of ND: a type, a length in units of 8 bytes. 253 is for experiments (RFC 4727 5.1.3): it is skipped.
local function nd_option(number, bytes)
    local units = (2 + #bytes + 7) // 8
    return string.pack("I1I1", number, units) .. bytes .. ("\0"):rep(units * 8 - 2 - #bytes)
end

--- A neighbour solicitation to the group of those whose addresses end alike (RFC 4861 4.3).
-- @param from_mac, from who asks @param to the address asked for @param data bytes, in an option
function frame.solicitation(from_mac, from, to, data)
    local asked = inet.parse(to)
    local group = inet.parse("ff02::1:ff00:0"):sub(1, 13) .. asked:sub(14)
    local body = string.pack(">I1I1I2I4", 135, 0, 0, 0) .. asked .. nd_option(1, frame.mac(from_mac))
        .. nd_option(253, data)
    body = summed(inet.parse(from), group, ICMPV6, body, 2)
    return frame.ethernet(frame.group_mac(inet.text(group)), from_mac, IPV6,
        ip6(inet.parse(from), group, ICMPV6, 255, body))
end

return frame
