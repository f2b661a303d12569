-- Addresses and ranges: what is one and what is not.
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

local inet = require "inet"

for _, case in ipairs {
    { "10.88.0.1", "10.88.0.1" },
    { "255.255.255.255", "255.255.255.255" },
    { "::", "::" },
    { "::1", "::1" },
    { "fe80::1%eth0", "fe80::1" },
    { "1::", "1::" },
    { "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1" },
    { "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8" },
    { "::ffff:1.2.3.4", "::ffff:102:304" },
} do
    local bytes = inet.parse(case[1])
    check(case[1], bytes and inet.text(bytes) == case[2], bytes and inet.text(bytes))
end
for _, text in ipairs {
    "", "1.2.3", "1.2.3.4.5", "256.1.1.1", "1.2.3.x", "-1.2.3.4", "1.2.3.4 ", ":", ":::", "1:::2", "::1::2", "g::",
    "12345::", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:1.2.3.4", "1.2.3.4:", ("1"):rep(100),
} do
    check(("%q is no address"):format(text), inet.parse(text) == nil)
end
check("a number is no address", inet.parse(7) == nil)

for _, case in ipairs {
    { "10.88.3.1", "10.0.0.0/8", true },
    { "11.0.0.1", "10.0.0.0/8", false },
    { "172.31.255.255", "172.16.0.0/12", true },
    { "172.32.0.0", "172.16.0.0/12", false },
    { "100.127.0.1", "100.64.0.0/10", true },
    { "100.128.0.1", "100.64.0.0/10", false },
    { "1.2.3.4", "0.0.0.0/0", true },
    { "1.2.3.4", "1.2.3.4", true },
    { "1.2.3.4", "1.2.3.5", false },
    { "fe80::7", "fe80::/10", true },
    { "fec0::7", "fe80::/10", false },
    { "::1", "0.0.0.0/0", false },
    { "nonsense", "0.0.0.0/0", false },
    { "1.2.3.4", "0.0.0.0/33", false },
} do
    check(("%s within %s"):format(case[1], case[2]), inet.within(case[1], case[2]) == case[3])
end
check("the network and the address", select(2, inet.network("10.88.0.1/24")) == "10.88.0.1"
    and inet.network("10.88.0.1/24") == "10.88.0.0/24")
check("the same, spelled twice", inet.same("::1", "0:0::1") and not inet.same("x", "x"))
check("families", inet.family("1.2.3.4") == 4 and inet.family("::") == 6 and inet.family("?") == nil)
check("reverse IPv4", inet.reverse("10.88.0.7") == "7.0.88.10.in-addr.arpa")
check("reverse IPv6", inet.reverse("2001:db8::1")
    == "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", inet.reverse("2001:db8::1"))

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
