-- grants: box.mint box.exec host.exec
-- Exec in a box: bounded in the guest as well, complete with twenty at once, nothing left over.
local box = require "box"
local incus = require "incus"
local mint = require "mint"
local passed, failed = 0, 0

local function check(text, ok, ...)
    passed, failed = passed + (ok and 1 or 0), failed + (ok and 0 or 1)
    if not ok then
        print("FAILED: " .. text, ...)
    end
end

assert(mint.boxes { "t" })
local b = box.new(mint.name("t"))
local function sh(text, ms)
    return b:exec({ "bash", "-c", text, "boxdrill-mark" }, { ms = ms or 5000, cap = 4096 })
end
local function said(result)
    return result and ("%s %s %q"):format(result.state, result.value, result.stdout) or "no result"
end

local r = sh "echo out; echo err >&2; exit 3"
check("exit code", r.state == "exit" and r.value == 3, said(r))
check("both streams", r.stdout == "out\n" and r.stderr == "err\n", said(r))
check("exited 127", sh("exit 127").value == 127)
r = b:exec { "/nonexistent" }
check("could not start", r.state == "error" and r.value == "ENOENT", said(r))
check("died of a signal", sh("kill -SEGV $$").state == "signal")
check("no terminal", sh("test -t 0 || test -t 1 || test -t 2").value == 1)
check("stdin is empty", sh("cat").stdout == "")
r = sh "head -c 100000 /dev/zero | tr '\\0' x"
check("truncated at the cap, and said to be", r.truncated and #r.stdout <= 4096, said(r))
check("bytes as they are", sh("printf '\\1\\377\\0z'").stdout == "\1\255\0z")
check("a name that a shell would split is one argument",
    b:exec({ "printf", "%s", "a b; $(id) \n'" }).stdout == "a b; $(id) \n'")

local from = engine.clock()
r = sh("trap '' TERM; " ..
    "(setsid bash -c \"trap '' TERM; exec -a boxdrill-mark sleep 300\" &); " ..
    "exec -a boxdrill-mark sleep 300", 1000)
check("a deadline in the guest", r.state == "timeout" and engine.clock() - from < 5, said(r))
r = sh "(exec -a boxdrill-mark sleep 300) & echo early"
check("a child that holds the output", r.state == "exit" and r.stdout == "early\n", said(r))
r = sh("exec -a boxdrill-mark yes", 1000)
check("a writer without end", r.state == "timeout" and r.truncated, said(r))
r = b:exec { "sh", "-c", "grep -lsa 'boxdrill-mar[k]' /proc/[0-9]*/cmdline | wc -l" }
check("nothing is left in the guest", r.stdout == "0\n", said(r))

for round = 1, 3 do
    local work, lost = {}, 0
    for i = 1, 20 do
        work[i] = function()
            return sh("echo " .. round .. "." .. i)
        end
    end
    for i, result in ipairs(engine.all(work)) do
        lost = lost + (result[1] and result[1].stdout == ("%d.%d\n"):format(round, i) and 0 or 1)
    end
    check("twenty at once lose nothing", lost == 0, lost)
end

-- A run that is lost is inconclusive, never silence.
local function outcome_of(target)
    return b:attempt({ { { proto = "tcp", to = target or "1.1.1.1", port = 443, ms = 2000 } } })[1][1].outcome
end
check("reachable", outcome_of() == "reachable")
check("silent", outcome_of("10.200.0.1") == "silent")
r = sh("printf '#!/bin/sh\\nexit 0\\n' >/var/tmp/fake; chmod 755 /var/tmp/fake; mv -f /var/tmp/fake " .. b.path)
check("a fake in its place", r.value == 0, said(r))
check("a fake that says nothing: inconclusive", outcome_of("10.200.0.1") == "inconclusive")
b:unpush()
check("no program: inconclusive", (function()
    b.path = "/var/tmp/gone"
    return outcome_of("10.200.0.1")
end)() == "inconclusive")
b.path = nil

-- Recorded output is deleted, behind the answer's back.
engine.call("sleep", 500)
local state, _, _, _, files = engine.call("exec", 10000, 1000, 10000, "sh", "-c",
    "find /var/lib/incus -path '*exec-output/*' -type f | grep -c bd-")
check("Incus keeps no recorded output", state == "exit" and files == "0\n", files)

-- A frozen box: the exec is given up, within its bound.
assert(engine.call("exec", 10000, 1000, 1000, "incus", "pause", b.name) == "exit")
from = engine.clock()
local result, why = incus.exec(b.project, b.name, 1000, 1000, { "true" })
check("a frozen box is no answer, and no hang", not result and engine.clock() - from < 20, why)
engine.call("exec", 10000, 1000, 1000, "incus", "resume", b.name)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed > 0 and 1 or 0)
