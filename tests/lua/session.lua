-- What other workers say of themselves and of what they saw: anybody's JSON.
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

local probe = require "probe"
local session = require "session"

local GOOD = '{"id":"c.x","title":"t","audit":"A3","needs":["box.exec"],"boxes":2}'
local meta = probe.declared(GOOD, "x.lua")
check("metadata", meta.id == "c.x" and meta.boxes == 2 and meta.needs[1] == "box.exec")
check("the least", probe.declared('{"id":"c.x","title":"t"}', "x.lua").boxes == nil)
for _, text in ipairs {
    "", "7", "null", "{", "[]", '{"id":"c.x"}', '{"id":7,"title":"t"}', '{"id":"c.x","title":{}}',
    '{"id":"c.x","title":"t","boxes":"2"}', '{"id":"c.x","title":"t","boxes":1.5}',
    '{"id":"c.x","title":"t","boxes":1e99}',
    '{"id":"c.x","title":"t","boxes":99}', '{"id":"c.x","title":"t","needs":"box.exec"}',
    '{"id":"c.x","title":"t","needs":[7]}', '{"id":"c.x","title":"t","audit":{}}', '{"id":"c.x","title":"t","more":1}',
    '{"id":"c.x","title":"t","run":"x"}', '{"id":null,"title":"t"}', '{"id":"c.x","title":"t","boxes":null}',
} do
    local ok, why = pcall(probe.declared, text, "x.lua")
    check("refused: " .. text, not ok and tostring(why):find("x.lua", 1, true) ~= nil, why)
end

local evidence = session.evidence([[{ "observations": [ { "verdict": "PASS", "what": "fine", "ms": 7, "more": {} },
    7, { "verdict": "PASS" }, { "verdict": {}, "what": "x" }, { "verdict": "FAIL", "what": "bad", "seen": null } ],
    "controls": [ { "what": "c", "passed": true }, "d" ], "other": 1 }]])
check("observations are those that are some", #evidence.observations == 2 and evidence.observations[1].ms == 7
    and evidence.observations[1].more == nil and evidence.observations[2].what == "bad"
    and evidence.observations[2].seen == nil)
check("controls, too", #evidence.controls == 1 and evidence.controls[1].passed == true)
check("nothing else", evidence.other == nil)
for _, text in ipairs { "", "7", "[]", "{}", '{"observations":7}', '{"observations":{"a":{}}}', '{"controls":"x"}' } do
    local ok, seen = pcall(session.evidence, text)
    check("no evidence: " .. text, ok and seen.observations == nil and seen.controls == nil)
end
check("no evidence at all", next(session.evidence(nil)) == nil)
check("the broker's word", session.evidence('{"message":"died; last primitive: x"}').observations[1].verdict == "ERROR")

-- Which probes are wanted.
local FOUR = {
    { id = "a.one", phase = "A" }, { id = "a.two", phase = "A" }, { id = "c.one", phase = "C" },
    { id = "./bad.lua", phase = "?" },
}

local function selected(only, skip)
    local chosen, others = session.select(FOUR, only, skip)
    local ids = {}
    for i, one in ipairs(chosen or {}) do
        ids[i] = one.id
    end
    return chosen and table.concat(ids, " "), others
end

for _, case in ipairs {
    { nil, nil, "a.one a.two c.one ./bad.lua" },
    { "a", nil, "a.one a.two ./bad.lua" },
    { "A,c.one", nil, "a.one a.two c.one ./bad.lua" },
    { "c.one", nil, "c.one ./bad.lua" },
    { nil, "A", "c.one ./bad.lua" },
    { "A", "a.two", "a.one ./bad.lua" },
} do
    local ids = selected(case[1], case[2])
    check(("only %s skip %s"):format(case[1], case[2]), ids == case[3], ids)
end
local _, others = selected("a.one")
check("the others are named", table.concat(others, " ") == "a.two c.one", table.concat(others, " "))
for _, case in ipairs { { "a.one,x", nil, "--only x" }, { nil, "a.", "--skip a." }, { "B", nil, "--only B" } } do
    local chosen, why = selected(case[1], case[2])
    check("refused: " .. case[3], not chosen and why:find(case[3], 1, true), why)
end
check("the phases", table.concat(session.phases(FOUR), " ") == "A C")

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
