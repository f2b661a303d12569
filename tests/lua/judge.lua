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
    { { outcome = "silent", ms = 4000 }, false, "FAIL PASS PASS SUSPECT" },
    { { outcome = "silent", ms = 4000 }, true, "FAIL PASS PASS SUSPECT" },
    { { outcome = "unresolved" }, false, "ERROR ERROR ERROR ERROR" },
    { { outcome = "inconclusive" }, true, "ERROR ERROR ERROR ERROR" },
}

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
