-- What gets a packet: the enumeration that probes and --dry-run share, and the reading of resolvers' replies.
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

local contract = require "contract"
local dns = require "dns"
local resolver = require "resolver"
local targets = require "targets"

local SITE = [[return {
    host = { tcp = { 22, 53 }, udp = { 53, 67 } },
    listeners = {
        { address = "10.200.0.9", port = 8099, protocols = { "tcp", "udp" } },
        { address = "203.0.113.2", port = 8099, protocols = { "tcp" } },
        { address = "10.88.0.1", port = 8099, protocols = { "udp" } },
    },
    exclude = { "192.168.0.0/16", "203.0.113.2:22" },
}]]
local data = contract.build(engine.call("contract"), "host/contract.lua", SITE, "site.lua")
local ADDRESSES = {
    { address = "127.0.0.1", link = "lo", family = 4, scope = "host" },
    { address = "203.0.113.2", link = "eth0", family = 4, scope = "global" },
    { address = "10.88.0.1", link = "boxnet", family = 4, scope = "global" },
    { address = "fe80::1", link = "boxnet", family = 6, scope = "link" },
    { address = "fe80::2", link = "veth7", family = 6, scope = "link" },
    { address = "10.0.0.1", link = "br0", family = 4, scope = "global" },
}

local function find(list, to, proto, port)
    for _, target in ipairs(list) do
        if target.spec.to == to and target.spec.proto == proto and target.spec.port == port then
            return target
        end
    end
    return nil
end

local host = targets.host(data, ADDRESSES, "eth0")
check("a configured port", find(host, "203.0.113.2", "udp", 53) ~= nil)
check("a known listener's port", find(host, "203.0.113.2", "tcp", 8099) and not find(host, "203.0.113.2", "udp", 8099))
check("an excluded port", find(host, "203.0.113.2", "tcp", 22) == nil)
check("ICMP", find(host, "203.0.113.2", "icmp", nil) ~= nil)
check("DNS and DHCP at the gateway are a box's own", not find(host, "10.88.0.1", "udp", 53)
    and not find(host, "10.88.0.1", "tcp", 53) and not find(host, "10.88.0.1", "udp", 67))
check("the gateway's other ports are not", find(host, "10.88.0.1", "tcp", 22) and find(host, "10.88.0.1", "udp", 8099))
check("the gateway is on the box's link, the uplink is not", find(host, "10.88.0.1", "tcp", 22).on_link
    and not find(host, "203.0.113.2", "udp", 53).on_link)
check("the bridge's link-local address, as the box says it", find(host, "fe80::1%eth0", "tcp", 22).host_address
    == "fe80::1%boxnet")
check("no other link's, and no loopback", not find(host, "fe80::2%eth0", "tcp", 22)
    and not find(host, "127.0.0.1", "tcp", 22))
check("without a link, no link-local address", not find(targets.host(data, ADDRESSES, nil), "fe80::1", "tcp", 22))

local forbidden = targets.forbidden(data, ADDRESSES)
check("a forbidden address", find(forbidden, "169.254.169.254", "tcp", 80).range == "169.254.0.0/16")
check("a known listener in a range", find(forbidden, "10.200.0.9", "udp", 8099) ~= nil)
check("an excluded range", not find(forbidden, "192.168.1.1", "icmp", nil))
check("the host's own addresses are c.host's", not find(forbidden, "10.0.0.1", "icmp", nil)
    and not find(forbidden, "10.88.0.1", "icmp", nil))
check("a resolver's port gets a question", find(forbidden, "10.200.0.1", "udp", 53).spec.send ~= nil)

local text = table.concat(targets.lines(data, ADDRESSES), "\n")
for _, target in ipairs(forbidden) do
    check(target.spec.to .. " is listed", text:find(target.spec.to .. ":", 1, true) ~= nil)
end
check("nothing that is excluded is listed", not text:find("192.168.", 1, true))

-- One query, answered in turn by what a place sends back.
local function ask(proto, ...)
    local replies, n = { ... }, 0
    local place = {
        attempt = function(_, stages)
            n = n + 1
            local reply = replies[math.min(n, #replies)]
            local sent = dns.unhex(stages[1][1].send)
            return { { type(reply) == "function" and reply(sent) or reply } }
        end,
    }
    local query = { server = "10.88.0.1", proto = proto, name = "example.com", kind = "A" }
    return resolver.ask(place, { query }, 100)[1], n
end
local function answered(flags, answers)
    return function(sent)
        local framed = #sent - 2 == string.unpack(">I2", sent)
        local query = framed and sent:sub(3) or sent
        local reply = query:sub(1, 2) .. string.pack(">I2I2I2I2I2", flags, 1, #answers, 0, 0) .. query:sub(13)
        for _, address in ipairs(answers) do
            reply = reply .. "\xc0\x0c" .. string.pack(">I2I2I4s2", 1, 1, 60, address)
        end
        return { outcome = "reachable", ms = 1, data = dns.hex(framed and dns.framed(reply) or reply) }
    end
end

local result, asked = ask("udp", answered(0x8180, { "\1\2\3\4" }))
check("resolved", result.status == "resolved" and result.answers[1] == "1.2.3.4" and asked == 1)
check("resolved over TCP", ask("tcp", answered(0x8180, { "\1\2\3\4" })).status == "resolved")
result, asked = ask("udp", answered(0x8183, {}))
check("NXDOMAIN is a no, and not asked twice", result.status == "unresolved" and asked == 1)
check("REFUSED is a no", ask("udp", answered(0x8185, {})).status == "unresolved")
check("no address is a no", ask("udp", answered(0x8180, {})).status == "unresolved")
check("SERVFAIL is neither", ask("udp", answered(0x8182, {})).status == "failed")
result, asked = ask("udp", { outcome = "silent", ms = 100 })
check("silence is asked twice", result.status == "silent" and asked == 2)
result, asked = ask("udp", { outcome = "silent", ms = 100 }, answered(0x8180, { "\1\2\3\4" }))
check("an answer the second time", result.status == "resolved" and asked == 2)
check("garbage", ask("udp", { outcome = "reachable", data = "00ff" }).status == "malformed")
check("a connection without a reply", ask("tcp", { outcome = "reachable" }).status == "malformed")
check("a lost run", ask("udp", { outcome = "inconclusive", why = "lost" }).status == "inconclusive")

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
