#!/bin/bash
# Probes as files: what is wrong with one is said and counted, and none can do more than it was given.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"

# probe NAME ID: a probe file whose `run` is on stdin.
probe() {
    { printf 'return { id = "%s", title = "a title", run = function(t)\n' "$2"; cat; echo 'end }'; } | script "$1"
}
# A script that loads and runs files given as arguments, and prints what comes of each.
runner=$(script runner <<'END'
engine.call("grant", "probes")
for _, file in ipairs { ... } do
    local metadata, why = engine.call("probe.load", file)
    if metadata then
        print(file:match("[^/]+$"), engine.call("probe.run", file))
    else
        print(file:match("[^/]+$"), "not loaded", why)
    end
end
END
)
of() { grep -E "^$1(\.lua)?[[:space:]]" "$DIR/out"; }

good=$(probe good x.good <<<'t:pass("it holds")')
fails=$(probe fails x.fails <<<'t:fail("it does not")')
silent=$(probe silent x.silent <<<'')
check "PASS: exit 0" run 0 "$runner" "$good"
check "FAIL: exit 1" run 1 "$runner" "$good" "$fails"
check "a probe that records nothing: exit 3" run 3 "$runner" "$silent"
check "it is ERROR" grep -qE "ERROR" <(of silent)
check "a script cannot make a FAIL into another status" run 1 "$(script lies <<END
engine.call("grant", "probes") engine.call("probe.load", "$fails") engine.call("probe.run", "$fails") engine.call("exit", 4)
END
)" "$fails"

error=$(probe error x.error <<<'local x = nil; x.y = 1')
spin=$(probe spin x.spin <<<'t:pass("so far") while true do pcall(function() while true do end end) end')
memory=$(probe memory x.memory <<<'local s = "x" while true do s = s .. s end')
syntax=$(script syntax <<<'return { id = ')
fields=$(script fields <<<'return { id = "x.fields", title = 7, run = function() end }')
wants=$(script wants <<<'return { id = "x.wants", title = "t", needs = { "host.exec" }, run = function(t) t:pass("x") end }')
unknown=$(script unknown <<<'return { id = "x.unknown", title = "t", needs = { "root" }, run = function(t) t:pass("x") end }')
twice=$(probe twice x.good <<<'t:pass("x")')
check "they are all ERROR: exit 3" run 3 "$runner" "$error" "$spin" "$memory" "$syntax" "$fields" "$wants" "$unknown" "$good"
for name in error spin memory wants; do
    check "$name is ERROR" grep -q "ERROR" <(of $name)
done
for name in syntax fields unknown; do
    check "$name is not loaded" grep -q "not loaded" <(of $name)
done
check "the error names file and line" grep -qE 'error\.lua:2' "$DIR/out"
check "the field is named" grep -q "title" <(of fields)
check "the grant is named" grep -q "host.exec" <(of wants)
check "the one after them still runs" grep -q "PASS" <(of good)
check "a file that was not named on the command line is not opened" run 0 "$(script sneaks <<'END'
engine.call("grant", "probes")
assert(not engine.call("probe.load", "/etc/hostname"))
assert(not engine.call("probe.load", "../host/contract"))
END
)"

# Two files, one id: the second is not loaded while the first is there.
check "an id is one file's" run 3 "$(script both <<END
engine.call("grant", "probes")
assert(engine.call("probe.load", "$good"))
print(engine.call("probe.load", "$twice"))
print(engine.call("probe.run", "$good"))
END
)" "$good" "$twice"
check "it says whose" says "another probe's"

check "a shipped probe brings an operator's script no grants" run 3 "$(script borrows <<'END'
engine.call("grant", "probes")
assert(engine.call("probe.load", "a.unset"))
print(engine.call("probe.run", "a.unset", "some-box"))
END
)"
check "it says which grant is missing" says "client"
finish
