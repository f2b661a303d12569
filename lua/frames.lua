--- Frames as a witness kept them (docs/witness.md), decoded. Pure functions. The bytes are a box's or anybody's:
-- whatever they hold, nothing throws; what cannot be read is left out, and a frame that is none is nil.
local inet = require "inet"

local frames = {}

-- <linux/if_packet.h>, <linux/if_arp.h>, <linux/if_ether.h>
local OUTGOING = 4
local ETHERNET = { [1] = true, [772] = true } -- ARPHRD_ETHER, ARPHRD_LOOPBACK
local IP, ARP, IP6 = 0x0800, 0x0806, 0x86dd
local VLAN = { [0x8100] = true, [0x88a8] = true }
local BROADCAST = "ff:ff:ff:ff:ff:ff"
local NO_VLAN = 0xffff

local HEADER = "<I8I1I2I2I2I4s2"
local HEADER_BYTES = 21

local PROTOCOLS = { [1] = "icmp", [6] = "tcp", [17] = "udp", [58] = "icmp" }
-- IPv6 extension headers that are stepped over: hop-by-hop, routing, destination options.
local EXTENSIONS = { [0] = true, [43] = true, [60] = true }
local MAX_EXTENSIONS = 8

-- ICMP types: echo request, echo reply, and the errors that hold a copy of what caused them.
local KINDS = {
    [4] = { [0] = "reply", [8] = "echo", [3] = "error", [5] = "error", [11] = "error", [12] = "error" },
    [6] = {
        [1] = "error", [2] = "error", [3] = "error", [4] = "error", [128] = "echo", [129] = "reply",
        [135] = "ask", [136] = "answer",
    },
}

-- An unsigned big-endian number at a 0-based offset; nil beyond the end.
local function number(bytes, at, size)
    if at + size > #bytes then
        return nil
    end
    return (string.unpack(">I" .. size, bytes, at + 1))
end

local function address(bytes, at, size)
    return at + size <= #bytes and inet.text(bytes:sub(at + 1, at + size)) or nil
end

local function mac(bytes, at)
    if at + 6 > #bytes then
        return nil
    end
    return ("%02x:%02x:%02x:%02x:%02x:%02x"):format(bytes:byte(at + 1, at + 6))
end

local read_packet

local function read_tcp(out, bytes, at)
    local flags = number(bytes, at + 13, 1)
    out.sport, out.dport = number(bytes, at, 2), number(bytes, at + 2, 2)
    out.seq = number(bytes, at + 4, 4)
    if flags then
        out.syn, out.ack, out.rst = flags & 2 ~= 0, flags & 16 ~= 0, flags & 4 ~= 0
    end
end

local function read_udp(out, bytes, at)
    out.sport, out.dport = number(bytes, at, 2), number(bytes, at + 2, 2)
    out.payload = bytes:sub(at + 9)
end

-- @param inner whether this is a copy within an ICMP error already: then no further
local function read_icmp(out, bytes, at, inner)
    local kind, code = number(bytes, at, 1), number(bytes, at + 1, 1)
    if not code then
        return
    end
    out.icmp = ("%d/%d"):format(kind, code)
    out.kind = KINDS[out.family][kind]
    if out.kind == "error" and not inner then
        out.inner = read_packet(bytes, at + 8, out.family == 4 and IP or IP6, true)
    elseif out.kind == "ask" or out.kind == "answer" then
        out.proto, out.target = "nd", address(bytes, at + 8, 16)
    else
        out.payload = bytes:sub(at + 7) -- with the sequence number; a NAT may change the identifier before it
    end
end

local READERS = { tcp = read_tcp, udp = read_udp, icmp = read_icmp }

local function read_transport(out, bytes, at, protocol, inner)
    out.proto = PROTOCOLS[protocol]
    local reader = READERS[out.proto]
    if reader then
        reader(out, bytes, at, inner)
    end
    return out
end

-- Without what a link put behind a packet to fill its frame up. @param size the packet's own word on it
local function trimmed(bytes, at, size, least)
    return size and size >= least and bytes:sub(1, at + size) or bytes
end

local function read_ip(bytes, at, inner)
    local first = number(bytes, at, 1)
    local fragment, protocol = number(bytes, at + 6, 2), number(bytes, at + 9, 1)
    local out = { family = 4, ttl = number(bytes, at + 8, 1) }
    out.src, out.dst = address(bytes, at + 12, 4), address(bytes, at + 16, 4)
    if not out.dst or first >> 4 ~= 4 or first & 15 < 5 then
        return nil
    elseif fragment & 0x1fff ~= 0 then
        return out -- what lies in it is the middle of something
    end
    bytes = trimmed(bytes, at, number(bytes, at + 2, 2), 20)
    return read_transport(out, bytes, at + (first & 15) * 4, protocol, inner)
end

local function read_ip6(bytes, at, inner)
    local first, protocol = number(bytes, at, 1), number(bytes, at + 6, 1)
    local out = { family = 6, ttl = number(bytes, at + 7, 1) }
    out.src, out.dst = address(bytes, at + 8, 16), address(bytes, at + 24, 16)
    if not out.dst or first >> 4 ~= 6 then
        return nil
    end
    bytes = trimmed(bytes, at + 40, number(bytes, at + 4, 2), 1)
    at = at + 40
    for _ = 1, MAX_EXTENSIONS do
        local length = number(bytes, at + 1, 1)
        if not EXTENSIONS[protocol] or not length then
            break
        end
        protocol, at = number(bytes, at, 1), at + 8 + length * 8
    end
    return read_transport(out, bytes, at, protocol, inner)
end

local function read_arp(bytes, at)
    local operation = number(bytes, at + 6, 2)
    local out = { family = 4, proto = "arp", kind = operation == 1 and "ask" or "answer" }
    out.smac, out.src = mac(bytes, at + 8), address(bytes, at + 14, 4)
    out.target = address(bytes, at + 24, 4)
    if not out.target or number(bytes, at + 2, 2) ~= IP or number(bytes, at + 4, 2) ~= 0x0604 then
        return nil
    end
    out.dst = out.target
    return out
end

function read_packet(bytes, at, ethertype, inner)
    if ethertype == IP then
        return read_ip(bytes, at, inner)
    elseif ethertype == IP6 then
        return read_ip6(bytes, at, inner)
    elseif ethertype == ARP and not inner then
        return read_arp(bytes, at)
    end
    return nil
end

-- Where the packet begins in a frame, and its EtherType, VLAN tags stepped over.
local function find_packet(record)
    local at, ethertype = 0, record.ethertype
    if not ETHERNET[record.hardware] then
        return at, ethertype
    end
    at, ethertype = 14, number(record.bytes, 12, 2)
    while ethertype and VLAN[ethertype] do
        record.vlan = (number(record.bytes, at, 2) or 0) & 0xfff
        ethertype, at = number(record.bytes, at + 2, 2), at + 4
    end
    return at, ethertype
end

--- Decodes one frame.
-- @param record as of frames.records
-- @return nil where it is no ARP, IPv4 or IPv6 that can be read; else a table: time (seconds), outgoing (it
--   left by that link), length (bytes, on the wire), vlan (nil: none), family, src, dst (texts), ttl, and where known:
--   smac, dmac, broadcast; proto: tcp, udp, icmp, arp or nd, nil for others; sport, dport, seq, syn, ack, rst,
--   payload (bytes); of icmp its type and code ("3/1") as `icmp` and kind: echo, reply, error (then `inner`
--   is the packet in it); of arp and nd kind: ask or answer, and target, the address that it is about
function frames.decode(record)
    local at, ethertype = find_packet(record)
    local out = ethertype and read_packet(record.bytes, at, ethertype)
    if not out then
        return nil
    end
    out.time, out.outgoing = record.time, record.type == OUTGOING
    out.length, out.vlan = record.length, record.vlan
    if at >= 14 then
        out.dmac, out.smac = mac(record.bytes, 0), mac(record.bytes, 6)
        out.broadcast = out.dmac == BROADCAST
    end
    return out
end

--- Takes the records of an eye apart.
-- @param text as of witness.close
-- @return array of { time (seconds), type, hardware, ethertype, vlan (nil: none), length, bytes }; what is cut
--   off at the end is left out
function frames.records(text)
    local out, at = {}, 1
    while at + HEADER_BYTES - 1 <= #text do
        local size = string.unpack("<I2", text, at + HEADER_BYTES - 2)
        if at + HEADER_BYTES + size - 1 > #text then
            break
        end
        local ns, kind, hardware, ethertype, vlan, length, bytes = string.unpack(HEADER, text, at)
        out[#out + 1] = {
            time = ns / 1e9,
            type = kind,
            hardware = hardware,
            ethertype = ethertype,
            vlan = vlan ~= NO_VLAN and vlan or nil,
            length = length,
            bytes = bytes,
        }
        at = at + HEADER_BYTES + size
    end
    return out
end

--- Decodes all the records of an eye. @return array as of frames.decode; unreadable frames are left out
function frames.read(text)
    local out = {}
    for _, record in ipairs(frames.records(text)) do
        out[#out + 1] = frames.decode(record)
    end
    return out
end

--- What a packet is known by beyond a NAT, which changes addresses and ports: TCP's sequence number, UDP's and
-- ICMP's payload.
-- @return text, nil where there is nothing to know it by
function frames.signature(frame)
    if frame.proto == "tcp" then
        return frame.seq and ("tcp %d"):format(frame.seq)
    elseif (frame.proto == "udp" or frame.kind == "echo") and frame.payload and #frame.payload > 0 then
        return frame.proto .. " " .. frame.payload
    end
    return nil
end

return frames
