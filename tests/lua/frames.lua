-- Frames decoded: well-formed ones, truncated ones, and noise. Nothing throws.
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

local frames = require "frames"
local inet = require "inet"

local A_MAC, B_MAC, ALL = "\2\0\0\0\0\8", "\2\0\0\0\0\9", ("\xff"):rep(6)
local ETHER, NONE = 1, 65534

local function record(bytes, fields)
    local r = { time = 1, type = 0, hardware = ETHER, ethertype = 0x0800, length = #bytes, bytes = bytes }
    for key, value in pairs(fields or {}) do
        r[key] = value
    end
    return r
end

local function ethernet(kind, payload, to)
    return (to or B_MAC) .. A_MAC .. string.pack(">I2", kind) .. payload
end

local function ip4(protocol, payload, fields)
    fields = fields or {}
    local first, fragment = fields.first or 0x45, fields.fragment or 0
    return string.pack(">I1I1I2I2I2I1I1I2", first, 0, 20 + #payload, 7, fragment, 64, protocol, 0)
        .. inet.parse("10.9.9.8") .. inet.parse("10.9.9.9") .. payload
end

local function ip6(protocol, payload)
    return string.pack(">I4I2I1I1", 0x60000000, #payload, protocol, 64)
        .. inet.parse("fe80::8") .. inet.parse("fe80::9") .. payload
end

local function tcp(flags)
    return string.pack(">I2I2I4I4I1I1I2I2I2", 4000, 80, 0xdeadbeef, 0, 0x50, flags, 0, 0, 0)
end

local function udp(payload)
    return string.pack(">I2I2I2I2", 4000, 53, 8 + #payload, 0) .. payload
end

local function icmp(kind, code, rest)
    return string.pack(">I1I1I2", kind, code, 0) .. rest
end

local arp = string.pack(">I2I2I1I1I2", 1, 0x0800, 6, 4, 1) .. A_MAC .. inet.parse("10.9.9.8") .. ("\0"):rep(6)
    .. inet.parse("10.9.9.9")

local syn = ethernet(0x0800, ip4(6, tcp(2)))
local seen = frames.decode(record(syn, { type = 4 }))
check("a SYN", seen.proto == "tcp" and seen.syn and not seen.ack and not seen.rst and seen.seq == 0xdeadbeef)
check("its addresses and ports", seen.src == "10.9.9.8" and seen.dst == "10.9.9.9" and seen.sport == 4000
    and seen.dport == 80 and seen.smac == "02:00:00:00:00:08" and seen.dmac == "02:00:00:00:00:09")
check("it left by that link", seen.outgoing and not frames.decode(record(syn)).outgoing)
seen = frames.decode(record(ethernet(0x0800, ip4(6, tcp(4)))))
check("a reset", seen.rst and not seen.syn)
seen = frames.decode(record(ip4(17, udp("hello")), { hardware = NONE }))
check("a link without a header: UDP", seen.proto == "udp" and seen.dport == 53 and seen.payload == "hello"
    and not seen.smac)
seen = frames.decode(record(ethernet(0x0800, ip4(17, udp("hello")) .. ("\0"):rep(20))))
check("what fills a frame up is not payload", seen.payload == "hello", seen.payload)
seen = frames.decode(record(ethernet(0x0806, arp, ALL), { ethertype = 0x0806 }))
check("an ARP request", seen.proto == "arp" and seen.kind == "ask" and seen.target == "10.9.9.9" and seen.broadcast
    and seen.src == "10.9.9.8")
seen = frames.decode(record(ethernet(0x0800, ip4(1, icmp(3, 13, "\0\0\0\0" .. ip4(6, tcp(2)):sub(1, 28))))))
check("an ICMP error, and what is in it", seen.kind == "error" and seen.icmp == "3/13" and seen.inner.proto == "tcp"
    and seen.inner.dport == 80 and seen.inner.dst == "10.9.9.9")
seen = frames.decode(record(ethernet(0x0800, ip4(1, icmp(8, 0, "\1\2\0\5payload")))))
check("an echo", seen.kind == "echo" and seen.payload == "\0\5payload")
seen = frames.decode(record(ethernet(0x86dd, ip6(58, icmp(135, 0, "\0\0\0\0" .. inet.parse("fe80::9"))))))
check("a solicitation", seen.proto == "nd" and seen.kind == "ask" and seen.target == "fe80::9", seen.target)
seen = frames.decode(record(ethernet(0x86dd, ip6(0, "\6\0\0\0\0\0\0\0" .. tcp(2)))))
check("behind an extension header", seen.proto == "tcp" and seen.dport == 80)
seen = frames.decode(record(ethernet(0x8100, "\x20\x64\8\0" .. ip4(6, tcp(2)))))
check("a VLAN tag in the frame", seen.proto == "tcp" and seen.vlan == 100, seen.vlan)
seen = frames.decode(record(ethernet(0x88a8, "\0\1\x81\0\0\2\8\0" .. ip4(6, tcp(2)))))
check("two of them", seen.proto == "tcp" and seen.vlan == 2)
seen = frames.decode(record(ethernet(0x0800, ip4(6, tcp(2), { fragment = 100 }))))
check("a later fragment has no ports", seen and not seen.proto and not seen.dport)
check("another EtherType", frames.decode(record(ethernet(0x88cc, "LLDP"))) == nil)
check("a false version", frames.decode(record(ethernet(0x0800, ip4(6, tcp(2), { first = 0x65 })))) == nil)
check("a header that is too short", frames.decode(record(ethernet(0x0800, ip4(6, tcp(2), { first = 0x41 })))) == nil)

-- What a flow is known by.
check("TCP is known by its number", frames.signature(frames.decode(record(syn))) == "tcp " .. 0xdeadbeef)
check("UDP by what it says", frames.signature { proto = "udp", payload = "x" } == "udp x")
check("an empty datagram by nothing", frames.signature { proto = "udp", payload = "" } == nil)
check("an answer by nothing", frames.signature { proto = "icmp", kind = "reply", payload = "x" } == nil)

-- Records.
local function packed(bytes)
    return string.pack("<I8I1I2I2I2I4s2", 1500000000, 4, ETHER, 0x0800, 0xffff, 60, bytes)
end
local list = frames.records(packed(syn) .. packed("") .. packed(syn))
check("three records", #list == 3 and list[1].time == 1.5 and list[1].type == 4 and not list[1].vlan
    and list[3].bytes == syn and list[1].length == 60)
check("unreadable ones are left out", #frames.read(packed(syn) .. packed("") .. packed(syn)) == 2)

-- Every truncation of everything, every byte of it turned, and noise: no error, and no number that is none.
local all = {
    syn, ethernet(0x0806, arp), ethernet(0x0800, ip4(17, udp("hello"))), ethernet(0x8100, "\0\1\8\0" .. ip4(6, tcp(2))),
    ethernet(0x0800, ip4(1, icmp(3, 1, "\0\0\0\0" .. ip4(17, udp("x"))))), ethernet(0x86dd, ip6(0, ("\0"):rep(64))),
    ethernet(0x86dd, ip6(58, icmp(1, 0, "\0\0\0\0" .. ip6(6, tcp(2))))),
    -- an error within an error within an error
    ethernet(0x0800, ip4(1, icmp(3, 1, "\0\0\0\0" .. ip4(1, icmp(3, 1, "\0\0\0\0" .. ip4(1, icmp(3, 1, ""))))))),
}
local tried, wrong = 0, nil
local function try(bytes, fields)
    tried = tried + 1
    local ok, got = pcall(frames.decode, record(bytes, fields))
    if not ok or got ~= nil and (not got.dst or type(got.time) ~= "number") then
        wrong = wrong or tostring(got)
    end
    pcall(frames.signature, ok and got or {})
end
for _, bytes in ipairs(all) do
    for cut = 0, #bytes do
        try(bytes:sub(1, cut))
        try(bytes:sub(1, cut), { hardware = NONE, ethertype = 0x86dd })
    end
    for at = 1, #bytes do
        for _, value in ipairs { 0, 1, 0x45, 0x60, 0x7f, 0x80, 0xff } do
            try(bytes:sub(1, at - 1) .. string.char(value) .. bytes:sub(at + 1))
        end
    end
end
for _ = 1, 20000 do
    local noise = {}
    for i = 1, math.random(0, 90) do
        noise[i] = string.char(math.random(0, 255))
    end
    local first = ({ "\x45", "\x60", "\x4f", "" })[math.random(1, 4)]
    try(ethernet(({ 0x0800, 0x0806, 0x86dd, 0x8100 })[math.random(1, 4)], first .. table.concat(noise)))
end
check(("%d hostile frames"):format(tried), wrong == nil, wrong)
local whole, torn = packed(syn) .. packed(syn), nil
for cut = 0, #whole do
    local ok, got = pcall(frames.read, whole:sub(1, cut))
    if not ok or #got > (cut == #whole and 2 or cut >= #whole // 2 and 1 or 0) then
        torn = cut
    end
end
check("records cut anywhere", torn == nil, torn)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
