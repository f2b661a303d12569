-- What an attempt's facts are called: every errno, every result, the ones of host.connect.
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

local outcome = require "outcome"

local function word(fact)
    return outcome.of_fact(fact).outcome
end

check("a handshake", word { result = "connected", ms = "0.120" } == "reachable")
check("an answer", word { result = "reply", ms = "0.120" } == "reachable")
check("no answer", word { result = "timeout", ms = "4000.000" } == "silent")
for errno, expected in pairs {
    ECONNREFUSED = "refused",
    ECONNRESET = "refused",
    EHOSTUNREACH = "unreachable",
    ENETUNREACH = "unreachable",
    EACCES = "unreachable",
    EPERM = "unreachable",
    EHOSTDOWN = "unreachable",
    ENETDOWN = "unreachable",
    ETIMEDOUT = "silent",
    EMFILE = "inconclusive",
    E999 = "inconclusive",
} do
    check("error " .. errno, word { result = "error", errno = errno, call = "connect" } == expected)
end
check("a blackhole route", word { result = "error", errno = "EINVAL", call = "connect" } == "unreachable")
check("misuse is no wall", word { result = "error", errno = "EINVAL", call = "send" } == "inconclusive")
check("the instrument's failure is no silence", word { result = "failed", errno = "EHOSTUNREACH", call = "bind" }
    == "inconclusive")
check("a result of another make", word { result = "splendid" } == "inconclusive")
check("an empty fact", word {} == "inconclusive")
check("no fact at all", outcome.of_fact(nil).outcome == "inconclusive")

local seen = outcome.of_fact {
    result = "error",
    errno = "EHOSTUNREACH",
    icmp = "3/1",
    from = "10.0.0.7",
    ms = "3070.1",
}
check("the ICMP error and its sender are kept", seen.icmp == "3/1" and seen.offender == "10.0.0.7"
    and seen.ms == 3070.1)
check("in words", outcome.text(seen) == "unreachable (EHOSTUNREACH, ICMP 3/1 from 10.0.0.7, 3070.1 ms)",
    outcome.text(seen))
seen = outcome.of_fact { result = "error", errno = "EPERM", call = "send", ["local"] = "10.88.0.7:4711", ms = "0.01" }
check("where an error came from is kept", seen.call == "send" and seen.own == "10.88.0.7" and outcome.is_local(seen)
    and not outcome.is_own(seen))
check("and said", outcome.text(seen) == "unreachable (EPERM in send, 0.0 ms)", outcome.text(seen))
seen = outcome.of_fact {
    result = "error", errno = "EHOSTUNREACH", call = "async", icmp = "1/3", origin = "icmp6", from = "fe80::7%eth0",
    ["local"] = "[fe80::7%eth0]:4711", ms = "3070",
}
check("its own kernel's ICMP error", outcome.is_own(seen) and outcome.is_no_host(seen) and not outcome.is_local(seen))
check("silence in words", outcome.text { outcome = "silent", ms = 4000 } == "silent (4000.0 ms)")

check("host.connect: connected", outcome.of_connect("3", "").outcome == "reachable")
check("host.connect: timeout", outcome.of_connect("4000", "timeout").outcome == "silent")
check("host.connect: refused", outcome.of_connect("1", "ECONNREFUSED").outcome == "refused")
check("host.connect: no route", outcome.of_connect("1", "EHOSTUNREACH").outcome == "unreachable")
check("host.connect: an errno nobody knows", outcome.of_connect("1", "EWHATEVER").outcome == "inconclusive")
check("host.connect: it failed itself", outcome.of_connect(nil, "no curl", "EIO").outcome == "inconclusive")

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
