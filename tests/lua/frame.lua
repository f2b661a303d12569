-- Frames as bytes, against ones that were put together elsewhere.
-- Run by: boxdrill tests/lua/NAME.lua (in the sandbox; no Incus is needed).
local passed, failed = 0, 0

local function check(what, ok, got)
    if ok then
        passed = passed + 1
    else
        failed = failed + 1
        print(("FAILED: %s%s"):format(what, got == nil and "" or ": " .. tostring(got)))
    end
end

local dns = require "dns"
local frame = require "frame"

local ME, SIBLING = "10:66:6a:00:00:01", "10:66:6a:00:00:02"
local LINK_LOCAL = "fe80::1266:6aff:fe00:"

local function same(what, bytes, hex)
    check(what, dns.hex(bytes) == hex, dns.hex(bytes))
end

check("a MAC", frame.mac(ME) == "\x10\x66\x6a\0\0\1")
for _, bad in ipairs { "", "10:66:6a:00:00", "10:66:6a:00:00:01:02", "10:66:6a:00:00:0g", "10-66-6a-00-00-01" } do
    check("no MAC: " .. bad, frame.mac(bad) == nil)
end
check("no MAC at all", frame.mac(nil) == nil)
check("a group's MAC", frame.group_mac("224.0.0.251") == "01:00:5e:00:00:fb")
check("of 23 bits only", frame.group_mac("239.200.1.2") == "01:00:5e:48:01:02")
check("over IPv6", frame.group_mac("ff02::1:3") == "33:33:00:01:00:03")
check("the address that a MAC makes", frame.link_local(ME) == LINK_LOCAL .. "1", frame.link_local(ME))

same("an ARP request", frame.arp_request(ME, "10.9.9.8", "10.9.9.9", "xyz"), "ffffffffffff10666a00000108060001080006"
    .. "04000110666a0000010a0909080000000000000a09090978797a")
same("an ARP reply", frame.arp_reply(ME, "10.9.9.8", SIBLING, "10.9.9.9", "xyz"), "10666a00000210666a00000108060001"
    .. "08000604000210666a0000010a09090810666a0000020a09090978797a")
same("a neighbour solicitation", frame.solicitation(ME, LINK_LOCAL .. "1", LINK_LOCAL .. "2", "xyz"),
    "3333ff00000210666a00000186dd6000000000283afffe8000000000000012666afffe000001ff0200000000000000000001ff000002"
    .. "87001be000000000fe8000000000000012666afffe000002010110666a000001fd0178797a000000")

local function packet(fields)
    local options = { to_mac = SIBLING, from_mac = ME, to = "10.9.9.9", from = "10.9.9.8", proto = "udp", port = 8085,
        data = "xyz" }
    for key, value in pairs(fields) do
        options[key] = value
    end
    return frame.packet(options)
end
same("a datagram to a group, over IPv6", packet { to_mac = frame.group_mac("ff02::fb"), to = "ff02::fb",
    from = LINK_LOCAL .. "1", port = 5353 }, "3333000000fb10666a00000186dd60000000000b1140fe8000000000000012666afffe"
    .. "000001ff0200000000000000000000000000fb9c4014e9000be24e78797a")
same("a datagram, behind its IP header", packet({}):sub(35), "9c401f95000b2b6678797a")

-- The sum over what holds a right checksum is all ones.
local function sums_up(bytes)
    local sum = 0
    for at = 1, #bytes, 2 do
        sum = sum + (bytes:byte(at) << 8) + (bytes:byte(at + 1) or 0)
    end
    while sum > 0xffff do
        sum = (sum & 0xffff) + (sum >> 16)
    end
    return sum == 0xffff
end
local PSEUDO = "\10\9\9\8\10\9\9\9"
check("the IP header's checksum", sums_up(packet({}):sub(15, 34)))
check("a SYN's checksum", sums_up(PSEUDO .. "\0\6\0\23" .. packet({ proto = "tcp" }):sub(35)))
check("an echo request's checksum", sums_up(packet({ proto = "icmp" }):sub(35)))
same("a tag", packet({ vlan = 7 }):sub(13, 20), "8100000708004500")

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
