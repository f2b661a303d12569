#!/bin/bash
# A script that misbehaves is ended, and said to be; nothing of it reaches the host.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"

# A script's fate: ends NAME MESSAGE [OPTION...], source on stdin; it must be over in time.
ends() {
    local path
    path=$(script "$1")
    check "$1 is ended" run 3 "${@:3}" "$path"
    check "$1: '$2'" complains "$2"
    check "$1: the last primitive is named" complains "last primitive"
}

ends spin "interrupted" <<<'while true do end'
ends spin-in-coroutine "interrupted" <<<'coroutine.wrap(function() while true do end end)()'
ends spin-nested "interrupted" <<<'
local function deep(n) if n == 0 then while true do end end coroutine.wrap(deep)(n - 1) end
deep(20)'
ends spin-in-task "interrupted" <<<'engine.all{ function() while true do end end }'
ends pcall-loop "did not obey" <<<'while true do pcall(function() while true do end end) end'
ends pattern "did not obey" <<<'print((("a"):rep(30000)):find((".-"):rep(20) .. "b"))'
ends finalizer "did not obey" <<<'
setmetatable({}, { __gc = function() while true do end end }) collectgarbage()'
ends memory-lua "not enough memory" <<<'local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1000) .. i end'
ends memory-string "not enough memory" <<<'local s = "x" while true do s = s .. s end'
ends memory-cjson "last primitive" <<<'
local t, u = {}, {} for i = 1, 200000 do t[i] = ("x"):rep(50) end for i = 1, 1000 do u[i] = t end
require "cjson".encode(u)'
ends recursion "not enough memory" <<<'local function f() return 1 + f() end f()'
ends request-flood "request too large" <<<'engine.call("module", ("x"):rep(9 * 1024 * 1024))'

check "the self-test" run 0 --sandbox-selftest
check "the self-test showed each works outside first" says "outside: works"
if grep -q "^landlock: ABI" "$DIR/out"; then check "landlock is used" says "landlock: ABI"; fi

# What Lua itself could be used for.
probe=$(script library <<'END'
local function refused(f, ...) assert(not pcall(f, ...)) end
refused(function() return io.open("/etc/passwd") end)
refused(function() return os.execute end and function() os.execute("true") end)
refused(function() return package.loadlib end)
refused(function() return debug.getregistry() end)
refused(function() return dofile("/etc/passwd") end)
refused(function() return undefined_name end)
refused(function() undefined_name = 1 end)
refused(require, "../../../etc/passwd")
refused(require, "no such module")
assert(load(string.dump(function() end)) == nil, "bytecode was loaded")
assert(load("\27Lua") == nil)
refused(engine.call, "no.such.operation")
refused(engine.call, "sleep")
refused(engine.call, "sleep", "x")
refused(engine.call, "sleep", -1)
for _, op in ipairs { "exec", "client", "instance.create", "instance.delete", "instance.exec",
    "instance.push", "host.connect", "network.patch", "acl.put", "profile.patch", "firewall.apply",
    "made.list", "verdict", "declare", "probe.run" } do
    local ok, message = pcall(engine.call, op, "a", "b", "c", "d", "e")
    assert(not ok and message:find("needs the grant", 1, true), op .. ": " .. tostring(message))
end
assert(getmetatable(_G) == false)
assert(os.date("!%Y", 0) == "1970" and os.date("%H:%M", 60) == "00:01" and os.time() > 0)
print "contained"
END
)
check "the library is an allow-list, and no grant comes by itself" run 0 "$probe"
check "it got to its end" says contained

yields=$(script yields <<'END'
-- Primitives inside a script's own coroutines, sorts, gsubs and iterators.
local out = {}
for v in coroutine.wrap(function()
    engine.call("sleep", 1) coroutine.yield(1)
    engine.call("sleep", 1) coroutine.yield(2)
end) do out[#out + 1] = v end
table.sort({ 3, 1, 2 }, function(a, b) engine.call("sleep", 1) return a < b end)
string.gsub("abc", ".", function() engine.call("sleep", 1) end)
local results = engine.all { function() engine.call("sleep", 5) return "a" end,
    function() return coroutine.wrap(function() engine.call("sleep", 1) return "b" end)() end }
local ok, message = pcall(engine.all, { function() error("inner") end })
assert(not ok and message:find("inner"))
local from = engine.clock()
local twenty = {}
for i = 1, 20 do twenty[i] = function() engine.call("sleep", 200) end end
engine.all(twenty)
assert(engine.clock() - from < 2, "tasks do not run side by side")
print(table.concat(out, ","), results[1][1], results[2][1])
END
)
check "primitives yield through a script's own coroutines" run 0 "$yields"
check "and their values arrive" says $'1,2\ta\tb'

many=$(script many <<'END'
local work = {}
for i = 1, 1500 do work[i] = function() return engine.call("sleep", 100) end end
engine.all(work)
print "all answered"
END
)
check "more requests at once than are let in flight" run 0 "$many"
check "all of them answered" says "all answered"
ends spin-behind-a-request "did not obey" <<<'
engine.spawn(function() engine.call("sleep", 600000) end)
engine.call("sleep", 1)
while true do pcall(function() while true do end end) end'
unread=$(site=$(script big <<<"return { } -- $(head -c 1900000 /dev/zero | tr '\0' x)"); echo "$site")
ends answers-unread "did not read its answers" --site "$unread" <<<'
for i = 1, 1000 do engine.spawn(function() engine.call("contract") end) end
local work = {} for i = 1, 500 do work[i] = function() engine.call("contract") end end
engine.spawn(function() while true do end end)
engine.all(work)'
nul=$(script nul <<<'print(pcall(engine.call, "exec", 1000, 100, 100, "echo", "a\0b"))')
check "an argument with a NUL byte is refused" run 0 --grant host.exec "$nul"
check "and not cut off" says "holds a NUL byte"

escapes=$(script escapes <<<'print("\27[2J\rPASS\0 \xc2\x9b")')
check "print escapes" run 0 "$escapes"
check "nothing a terminal acts on gets out" says '\x1b[2J\x0dPASS\x00 \xc2\x9b'

finish
