-- Reports: exit statuses, JSON that is ASCII and valid whatever bytes it is made of.
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

local cjson = require "cjson"
local report = require "report"

local function results(text)
    local out = {}
    for phase, verdict in text:gmatch("(%u):(%u+)") do
        out[#out + 1] = { phase = phase, verdict = verdict }
    end
    return out
end

for _, case in ipairs {
    { "A:PASS C:PASS", { "A", "C" }, 0 },
    { "A:PASS A:NOTE A:SKIP C:PASS", { "A", "C" }, 0 },
    { "A:PASS C:NOTE", { "A", "C" }, 3 },
    { "A:PASS", { "A", "C" }, 3 },
    { "", { "A" }, 3 },
    { "", {}, 3 },
    { "A:PASS A:SUSPECT", { "A" }, 3 },
    { "A:PASS A:ERROR", { "A" }, 3 },
    { "A:PASS A:ERROR A:FAIL", { "A" }, 1 },
    { "A:PASS A:VETO A:SUSPECT", { "A" }, 1 },
} do
    local status = report.status(results(case[1]), case[2])
    check(("status of %q in %s"):format(case[1], table.concat(case[2])), status == case[3], status)
end
local counts = report.counts(results("A:PASS A:PASS C:FAIL"))
check("every verdict is counted", counts.PASS == 2 and counts.FAIL == 1 and counts.NOTE == 0 and counts.VETO == 0
    and counts.SKIP == 0 and counts.SUSPECT == 0 and counts.ERROR == 0)

-- What a box may send, as it stands in a line of JSON.
for _, text in ipairs {
    "plain", "two\nlines", "\27[31mred\27[0m", "nul\0byte", "del\127", "quote\" back\\slash", "</script>",
    "caf\u{e9}", "\u{1f4a5}", "\u{9b}31m", "bad \xff\xfe bytes", "cut \xe2\x82", "\xed\xa0\x80 a surrogate",
    "\xf4\x90\x80\x80 too high", "\xc0\xaf overlong", "\r\rPASS c.sibling", ("x"):rep(10000),
} do
    local json = report.json { type = "verdict", seen = text }
    check(("%q: one line of ASCII"):format(text:sub(1, 20)), not json:find("[^\32-\126]"), json)
    local ok, back = pcall(cjson.decode, json)
    check(("%q: valid"):format(text:sub(1, 20)), ok, back)
    if utf8.len(text) then
        check(("%q: the same again"):format(text:sub(1, 20)), ok and back.seen == text, ok and back.seen)
    end
end
check("the order of keys", report.json { zeta = 1, verdict = "PASS", id = "c.x", type = "verdict", alpha = { 1, 2 } }
    == '{"type":"verdict","id":"c.x","verdict":"PASS","alpha":[1,2],"zeta":1}')
check("whole numbers stay whole", report.json { ms = 4.0 } == '{"ms":4}', report.json { ms = 4.0 })

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
