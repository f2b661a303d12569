-- A probe's file: what is refused, by file and field; and a run whose code fails.
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
local probe = require "probe"

local function refused(source, expected)
    local ok, why = pcall(probe.load, source, "probes/x.lua")
    why = tostring(why)
    check(source, not ok and why:find("probes/x.lua", 1, true) and why:find(expected, 1, true), why)
end

local GOOD = [[return { id = "c.x", title = "a title", audit = "A3", needs = { "box.exec" }, boxes = 2,
    run = function() end }]]
local definition = probe.load(GOOD, "probes/x.lua")
check("a good one", definition.id == "c.x")
local meta = cjson.decode(probe.metadata(definition))
check("its metadata", meta.id == "c.x" and meta.title == "a title" and meta.audit == "A3" and meta.boxes == 2
    and meta.needs[1] == "box.exec")
check("the least there can be", probe.load("return { id = 'c.x', title = 't', run = function() end }", "x"))

refused("return 7", "returns a table")
refused("return nil", "returns a table")
refused("return { title = 't', run = print }", "id: missing")
refused("return { id = 'x', title = 't', run = print }", "id:")
refused("return { id = 'C.x', title = 't', run = print }", "id:")
refused("return { id = 'c.x y', title = 't', run = print }", "id:")
refused("return { id = 'c.x', run = print }", "title: missing")
refused("return { id = 'c.x', title = '', run = print }", "title:")
refused("return { id = 'c.x', title = ('t'):rep(201), run = print }", "title:")
refused("return { id = 'c.x', title = 't' }", "run: missing")
refused("return { id = 'c.x', title = 't', run = 7 }", "run:")
refused("return { id = 'c.x', title = 't', run = print, audit = 'a3' }", "audit:")
refused("return { id = 'c.x', title = 't', run = print, needs = 'box.exec' }", "needs:")
refused("return { id = 'c.x', title = 't', run = print, needs = { 7 } }", "needs:")
refused("return { id = 'c.x', title = 't', run = print, boxes = 1.5 }", "boxes:")
refused("return { id = 'c.x', title = 't', run = print, boxes = 99 }", "boxes:")
refused("return { id = 'c.x', title = 't', run = print, box = 1 }", "box: unknown field")
refused("return { id = 'c.x', title = 't', run = print, early = 1 }", "early: true or false expected")
refused("return {", "unexpected symbol")
refused("undefined_global = 7", "undeclared global")
refused("return { id = undefined_global }", "undefined global")
refused("\27Lua", "attempt to load a binary chunk")

local function run(body)
    local source = "return { id = 'c.x', title = 't', run = function(t) " .. body .. " end }"
    return probe.run(probe.load(source, "probes/x.lua"))
end
check("nothing observed is ERROR", run("") == "ERROR")
check("a pass", run("t:pass('fine')") == "PASS")
check("a note beside a pass", run("t:pass('fine') t:note('so')") == "PASS")
check("expect", run("t:expect(1 == 2, 'sums')") == "FAIL")
check("a failure stands, whatever else goes wrong", run("t:fail('bad') error('oops')") == "FAIL")
local verdict, evidence = run("t:pass('fine') local x = nil; x.y = 1")
local last = evidence.observations[#evidence.observations]
check("an error in the probe is ERROR", verdict == "ERROR")
check("with its file and line", last.what:find("probes/x.lua:1:", 1, true) ~= nil, last.what)
check("and the last primitive", last.last_primitive ~= nil)
verdict, evidence = run("error({})")
check("an error that is no text", verdict == "ERROR" and type(evidence.observations[1].what) == "string")
check("misuse of t", run("t:pass(7)") == "ERROR")
evidence = select(2, run(""))
check("nothing observed, in words", evidence.observations[1].what:find("observed nothing", 1, true) ~= nil)
check("a verdict is not overwritten", run("t:fail('x', { verdict = 'PASS' })") == "ERROR"
    and run("t:pass('y') t:fail('x', { verdict = 'PASS' })") == "ERROR")
check("nor what was observed", run("t:pass('x', { what = 'y' })") == "ERROR")
check("nor a control's", run("t:pass('x') t:control('c', false, { passed = true })") == "ERROR"
    and run("t:pass('x') t:control('c', false, { what = 'd' })") == "ERROR")
check("details are plain data", run("t:pass('x', { f = print })") == "ERROR" and run("t:pass('x', { 7 })") == "ERROR"
    and run("t:pass('x', { n = 0/0 })") == "ERROR" and run("t:pass('x', { n = 1/0 })") == "ERROR"
    and run("t:pass('x', 'y')") == "ERROR")
check("a control that is none", run("t:pass('x') t:control(7, true)") == "ERROR"
    and run("t:pass('x') t:control('c')") == "ERROR")
verdict, evidence = run("t:pass('fine') local x = {} while true do x[#x + 1] = ('x'):rep(1 << 20) .. #x end")
last = evidence.observations[#evidence.observations]
check("out of memory, in words", verdict == "ERROR" and last.what:find("not enough memory", 1, true) ~= nil, last.what)
check("a verdict there is none of", run("t:record('FINE', 'x')") == "ERROR")
verdict, evidence = run("t:pass('fine', { seen = 'x', ms = 7 }) t:control('c', true)")
check("the evidence is data", verdict == "PASS" and evidence.observations[1].seen == "x"
    and evidence.controls[1].passed == true and cjson.encode(evidence) ~= nil)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
