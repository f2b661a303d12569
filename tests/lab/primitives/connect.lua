-- grants: host.connect host.exec setup
-- Connection outcomes from the host: TCP by libcurl's errno, UDP and ICMP by the program.
local host = require "host"
local passed, failed = 0, 0

local function check(text, seen, outcome, errno)
    local ok = seen.outcome == outcome and (not errno or seen.errno == errno)
    passed, failed = passed + (ok and 1 or 0), failed + (ok and 0 or 1)
    if not ok then
        print("FAILED: " .. text, seen.outcome, tostring(seen.errno), tostring(seen.ms))
    end
    return seen
end

local function nft(rules)
    local state, code, _, _, _, stderr = engine.call("exec", 5000, 1000, 1000, "nft", rules)
    assert(state == "exit" and code == "0", stderr)
end

check("a listener", host.connect("1.1.1.1", 443, 3000), "reachable")
check("nobody on the port", host.connect("1.1.1.1", 444, 3000), "refused", "ECONNREFUSED")
local nobody = check("nobody answers ARP", host.connect("203.0.113.77", 80, 5000), "unreachable", "EHOSTUNREACH")
assert(nobody.ms > 1000, nobody.ms)

nft [[table inet probe {
    chain out {
        type filter hook output priority 0
        ip daddr 1.1.1.1 tcp dport 81 drop
        ip daddr 1.1.1.1 tcp dport 82 reject with tcp reset
        ip daddr 1.1.1.1 tcp dport 83 reject with icmp admin-prohibited
        ip daddr 1.1.1.1 udp dport 53 drop
        ip daddr 8.8.8.8 icmp type echo-request drop
    }
}
]]
check("drop", host.connect("1.1.1.1", 81, 1500), "silent")
check("reject with tcp reset", host.connect("1.1.1.1", 82, 1500), "refused", "ECONNREFUSED")
check("reject with icmp admin-prohibited", host.connect("1.1.1.1", 83, 1500), "unreachable", "EHOSTUNREACH")

local stage = host:attempt({ {
    { proto = "udp", to = "203.0.113.2", port = 8099, ms = 1500 },
    { proto = "udp", to = "1.1.1.1", port = 9, ms = 1500 },
    { proto = "udp", to = "1.1.1.1", port = 53, ms = 1500 },
    { proto = "icmp", to = "1.1.1.1", ms = 1500 },
    { proto = "icmp", to = "8.8.8.8", ms = 1500 },
    { proto = "icmp", to = "203.0.113.77", ms = 5000 },
} })[1]
check("udp: a listener", stage[1], "reachable")
check("udp: nobody on the port", stage[2], "refused", "ECONNREFUSED")
check("udp: dropped on the way out", stage[3], "unreachable", "EPERM")
check("icmp: answered", stage[4], "reachable")
check("icmp: dropped on the way out", stage[5], "unreachable", "EPERM")
check("icmp: nobody answers ARP", stage[6], "unreachable", "EHOSTUNREACH")

-- The whole table of 40 at once.
local work = {}
for i = 1, 40 do
    work[i] = function()
        return host.connect("1.1.1.1", i % 2 == 0 and 443 or 444, 3000)
    end
end
for i, result in ipairs(engine.all(work)) do
    check("forty at once", result[1], i % 2 == 0 and "reachable" or "refused")
end
nft "delete table inet probe"

local refused = not pcall(engine.call, "host.attempt", "proto=frame,link=lo,ms=1,send=00112233445566778899aabb0800")
passed, failed = passed + (refused and 1 or 0), failed + (refused and 0 or 1)

for _, bad in ipairs { "example.com", "1.1.1.1/x", "", "1.1.1", "::g" } do
    local ok = pcall(engine.call, "host.connect", bad, 80, 1000)
    passed, failed = passed + (ok and 0 or 1), failed + (ok and 1 or 0)
end
print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed > 0 and 1 or 0)
