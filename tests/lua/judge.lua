-- Every cell of the judging table, and the verdict of many.
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

local judge = require "judge"

local ROUTED = 1000
local COLUMNS = { "arrived", "absent", "listener", "nothing" }
-- What is seen, whether on A's own link, and the verdicts by column.
local CELLS = {
    { { outcome = "reachable", ms = 1 }, false, "FAIL ERROR FAIL FAIL" },
    { { outcome = "refused", ms = 1 }, false, "FAIL PASS PASS SUSPECT" },
    { { outcome = "refused", ms = 1 }, true, "FAIL PASS PASS SUSPECT" },
    { { outcome = "unreachable", ms = 3070 }, true, "FAIL PASS PASS PASS" },
    { { outcome = "unreachable", ms = 0 }, true, "FAIL PASS PASS PASS" },
    { { outcome = "unreachable", ms = 1000 }, false, "FAIL PASS PASS SUSPECT" },
    { { outcome = "unreachable", ms = 1001 }, false, "FAIL PASS SUSPECT SUSPECT" },
    { { outcome = "unreachable" }, false, "FAIL PASS SUSPECT SUSPECT" },
    { { outcome = "unreachable", icmp = "3/13", ms = 3010 }, false, "FAIL PASS PASS SUSPECT" },
    { { outcome = "unreachable", errno = "EPERM", call = "send", ms = 0 }, true, "FAIL SUSPECT SUSPECT SUSPECT" },
    { { outcome = "silent", ms = 4000 }, false, "FAIL PASS PASS SUSPECT" },
    { { outcome = "silent", ms = 4000 }, true, "FAIL PASS PASS SUSPECT" },
    { { outcome = "unresolved" }, false, "ERROR ERROR ERROR ERROR" },
    { { outcome = "inconclusive" }, true, "ERROR ERROR ERROR ERROR" },
}

-- ICMP errors, and what the call itself said: by row.
local GATEWAY, OWN = "10.88.0.1", "10.88.0.7"
local function icmp(code, ms, from, origin)
    return {
        outcome = "unreachable",
        errno = "EHOSTUNREACH",
        call = "async",
        icmp = code,
        origin = origin or "icmp",
        offender = from or GATEWAY,
        own = OWN,
        ms = ms,
    }
end
local function at_once(errno, call, word)
    return { outcome = word or "unreachable", errno = errno, call = call, own = OWN, ms = 0.1 }
end
for _, case in ipairs {
    { "prohibited, late", icmp("3/13", 3010), {}, "unreachable_soon" },
    { "network unreachable, late", icmp("3/0", 3010), {}, "unreachable_soon" },
    { "host unreachable, at once", icmp("3/1", 0.1), {}, "unreachable_soon" },
    { "host unreachable, late", icmp("3/1", 3010), {}, "unreachable_late" },
    { "host unreachable, late, where it is rejected", icmp("3/1", 3010), { rejects = true }, "unreachable_soon" },
    { "its time to live ran out", icmp("11/0", 1500), {}, "unreachable_late" },
    { "IPv6: address unreachable, late", icmp("1/3", 3010, "fe80::1", "icmp6"), {}, "unreachable_late" },
    { "IPv6: prohibited, late", icmp("1/1", 3010, "fe80::1", "icmp6"), {}, "unreachable_soon" },
    { "IPv6: its hop limit ran out", icmp("3/0", 3010, "fe80::1", "icmp6"), {}, "unreachable_late" },
    { "no answer to ARP on the own link", icmp("3/1", 3070, OWN), { on_link = true }, "unreachable_link" },
    { "no answer to ARP for a routed target", icmp("3/1", 3070, OWN), {}, "unsent" },
    { "the box's own reject", icmp("3/13", 0.1, OWN), { on_link = true }, "unsent" },
    { "the host's own reject", icmp("3/13", 0.1, OWN), { on_link = true, guarded = true }, "unreachable_link" },
    { "an unreachable route", at_once("EHOSTUNREACH", "connect"), {}, "unsent" },
    { "a blackhole route, on the link", at_once("EINVAL", "connect"), { on_link = true }, "unsent" },
    { "an output hook", at_once("EPERM", "send"), { on_link = true }, "unsent" },
    { "the host's own output hook", at_once("EPERM", "send"), { on_link = true, guarded = true }, "unreachable_link" },
    { "an error later, without ICMP", at_once("EHOSTUNREACH", "async"), {}, "unreachable_soon" },
    { "a reset", at_once("ECONNREFUSED", "async", "refused"), {}, "refused" },
    { "the instrument's failure", at_once("EADDRNOTAVAIL", "connect", "inconclusive"), {}, "inconclusive" },
} do
    local row = judge.row(case[2], case[3], ROUTED)
    check(case[1], row == case[4], row)
end
for _, column in ipairs(COLUMNS) do
    check("nothing left the box: never a PASS, " .. column, judge.cell("unsent", column, true) ~= "PASS")
end

local function target(column, on_link)
    return {
        on_link = on_link,
        up = true,
        listener = column == "listener",
        witness = (column == "arrived" or column == "absent") and column or nil,
    }
end

for _, cell in ipairs(CELLS) do
    local i = 0
    for expected in cell[3]:gmatch("%S+") do
        i = i + 1
        local verdict, reason = judge.isolated(cell[1], target(COLUMNS[i], cell[2]), ROUTED)
        check(("%s %s, on link %s, %s"):format(cell[1].outcome, tostring(cell[1].ms), tostring(cell[2]), COLUMNS[i]),
            verdict == expected and type(reason) == "string", verdict)
    end
    check("four columns", i == 4)
end

local down = judge.isolated({ outcome = "unreachable", ms = 3070 }, { on_link = true }, ROUTED)
check("nobody answers on the link, and nobody is known to be there", down == "SUSPECT", down)
check("a witness outranks a listener", judge.column { listener = true, witness = "arrived" } == "arrived")
check("a row there is none of throws", not pcall(judge.cell, "fine", "listener", true))
check("a column there is none of throws", not pcall(judge.cell, "silent", "hearsay", true))
check("an outcome there is none of throws", not pcall(judge.isolated, { outcome = "dropped" }, {}, ROUTED))

for _, case in ipairs {
    { {}, "ERROR" },
    { { "PASS" }, "PASS" },
    { { "NOTE" }, "NOTE" },
    { { "SKIP" }, "SKIP" },
    { { "SKIP", "PASS" }, "PASS" },
    { { "PASS", "NOTE" }, "PASS" },
    { { "PASS", "SUSPECT" }, "SUSPECT" },
    { { "SUSPECT", "ERROR" }, "ERROR" },
    { { "ERROR", "FAIL", "PASS" }, "FAIL" },
    { { "PASS", "VETO", "ERROR" }, "VETO" },
} do
    check("the verdict of " .. table.concat(case[1], " "), judge.worst(case[1]) == case[2], judge.worst(case[1]))
end
check("a verdict there is none of throws", not pcall(judge.worst, { "FINE" }))

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
