-- The guest program's output: believed only when it is complete, and only its own lines.
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

local guest = require "guest"

local N = "00112233445566778899aabbccddeeff"

local function out(...)
    return table.concat({ ... }, "\n") .. "\n"
end
local ONE = N .. " n=1 proto=tcp result=connected ms=0.100 local=10.0.0.2:4000"
local TWO = N .. " n=2 proto=udp result=timeout ms=4000.000"
local STAGE = N .. " stage=1 at=0.100"

local facts = guest.parse(out(STAGE, TWO, ONE, N .. " end=2"), N, 2)
check("a complete run", facts and facts[1].result == "connected" and facts[2].result == "timeout")
facts = guest.parse(out("login: garbage", STAGE, ONE, "ffff n=2 proto=udp result=reply", TWO, "", N .. " end=2"), N, 2)
check("what is not its own is not read", facts and facts[2].result == "timeout")
facts = guest.parse("x" .. out(ONE, N .. " end=1"), N, 1)
check("a nonce that does not begin the line is none", facts == nil)
facts = guest.parse(out(N .. " n=1 proto=tcp result=connected new-key=7", N .. " end=1"), N, 1)
check("keys that nobody knows are no matter", facts and facts[1].result == "connected")

local function lost(what, text, count)
    local value, why = guest.parse(text, N, count or 2)
    check("lost: " .. what, value == nil and type(why) == "string", why)
end
lost("nothing", "")
lost("no end", out(STAGE, ONE, TWO))
lost("an end cut off", out(STAGE, ONE, TWO) .. N .. " end=2")
lost("a result missing", out(STAGE, ONE, N .. " end=2"))
lost("a result twice", out(STAGE, ONE, ONE, N .. " end=2"))
lost("a result too many", out(STAGE, ONE, TWO, N .. " n=3 proto=tcp result=connected", N .. " end=2"))
lost("a result that was not asked for", out(STAGE, ONE, N .. " n=7 proto=tcp result=connected", N .. " end=2"))
lost("another count", out(STAGE, ONE, TWO, N .. " end=3"))
lost("fewer were made than asked", out(STAGE, ONE, N .. " end=1"), 2)
lost("lines after the end", out(STAGE, ONE, N .. " end=2", TWO))
lost("two ends", out(STAGE, ONE, TWO, N .. " end=2", N .. " end=2"))
lost("a number that is none", out(N .. " n=one proto=tcp result=connected", TWO, N .. " end=2"))
lost("a word that is no key=value", out(STAGE, ONE, TWO .. " junk", N .. " end=2"))
lost("another's nonce", (out(STAGE, ONE, TWO, N .. " end=2"):gsub(N, ("f"):rep(32))))
lost("a line longer than a line can be", out(STAGE, ONE, TWO .. " data=" .. ("0"):rep(20000), N .. " end=2"))

local stages = { { { proto = "tcp" }, { proto = "listen" } }, { { proto = "icmp" } } }
local staged = guest.staged(nil, stages, "exec failed")
check("a lost run is inconclusive, never silent", staged[1][1].outcome == "inconclusive"
    and staged[2][1].outcome == "inconclusive" and staged[2][1].why == "exec failed" and staged[1][2].result == "lost")
staged = guest.staged({ { result = "connected" }, { result = "listened" }, { result = "timeout" } }, stages)
check("facts by stage", staged[1][1].outcome == "reachable" and staged[1][2].result == "listened"
    and staged[2][1].outcome == "silent")

local arguments, count, budget = guest.arguments {
    {
        { proto = "tcp", to = "1.2.3.4", port = 80, ms = 3000, from = "10.0.0.2" },
        { proto = "icmp", to = "1.2.3.4", ms = 4000 },
    },
    { { proto = "stop", port = 8088, token = "ab" } },
}
check("arguments", table.concat(arguments, " ") == "proto=tcp,to=1.2.3.4,port=80,ms=3000,from=10.0.0.2 "
    .. "proto=icmp,to=1.2.3.4,ms=4000 -- proto=stop,port=8088,token=ab", table.concat(arguments, " "))
check("count and budget", count == 3 and budget == 5000)
check("an empty stage throws", not pcall(guest.arguments, { {} }))
check("nonces are fresh, and hexadecimal", guest.nonce() ~= guest.nonce() and guest.nonce():find("^%x+$") ~= nil)

local state, stderr = guest.parse_exec("oops\nmore\n" .. N .. " state=exit value=3 truncated=0 ms=12\n", N)
check("exec: a code", state and state.state == "exit" and state.value == 3 and state.ms == 12
    and stderr == "oops\nmore", stderr)
state, stderr = guest.parse_exec("\n" .. N .. " state=error value=ENOENT truncated=1 ms=0\n", N)
check("exec: it could not start", state and state.value == "ENOENT" and state.truncated and stderr == "")
for what, text in pairs {
    ["nothing"] = "",
    ["no line of its own"] = "oops\n",
    ["another's nonce"] = ("f"):rep(32) .. " state=exit value=0 truncated=0 ms=1\n",
    ["a line after it"] = N .. " state=exit value=0 truncated=0 ms=1\nforged\n",
    ["cut off"] = N .. " state=exit value=0",
    ["no state"] = N .. " value=0\n",
} do
    check("exec, lost: " .. what, guest.parse_exec(text, N) == nil)
end

local info = guest.parse_info(out(
    N .. " hostname=b%0Aox",
    N .. " machine-id=" .. ("a"):rep(32),
    N .. " icmp_echo_ignore_all=0",
    N .. " link=eth0 mac=00:16:3e:00:00:01 up=1",
    N .. " link= more=3",
    N .. " addr=10.88.0.7/24 link=eth0 family=4 scope=global",
    N .. " addr=fe80::7/64 link=eth0 family=6 scope=link tentative=1",
    N .. " route=default via=10.88.0.1 link=eth0 family=4 metric=100",
    N .. " nameserver=127.0.0.53",
    N .. " nameserver= errno=ENOENT",
    N .. " end=10"
), N)
check("info", info and info.addresses[1].address == "10.88.0.7" and info.addresses[1].bits == 24
    and info.addresses[2].scope == "link" and info.links.eth0.mac == "00:16:3e:00:00:01" and info.links.eth0.up
    and info.routes[1].via == "10.88.0.1" and #info.nameservers == 1)
check("info: tentative", info and info.addresses[2].tentative and not info.addresses[1].tentative)
check("info: values unescaped", info and info.hostname == "b\nox")
check("info, lost: a line missing", guest.parse_info(out(N .. " hostname=x", N .. " end=2"), N) == nil)
check("info, lost: no end", guest.parse_info(out(N .. " hostname=x"), N) == nil)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
