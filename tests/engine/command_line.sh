#!/bin/bash
# Bad input: one clear line on stderr and exit 2; and what follows from who owns a file.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"

bad() {
    local text=$1
    shift
    check "exit 2: boxdrill $*" run 2 "$@"
    check "one line: boxdrill $*" one_line
    check "'$text'" complains "$text"
}
bad "name a script"
bad "unknown option '--nonsense'" --nonsense
bad "no script 'nonsense.lua' is installed" nonsense.lua
bad "./nonsense.lua: No such file" ./nonsense.lua
bad "Is a directory" "$DIR/"
bad "--site: needs a value" --site
bad "/nonexistent" --site /nonexistent list
bad "no grant 'root'" --grant root list
luac=$(printf '\033Lua\0' | script bytecode)
bad "bytecode is never loaded" "$luac"

check "--help" run 0 --help
check "--help is enough to start" says "boxdrill drill.lua"
check "--version" run 0 --version
check "--version names it" says "boxdrill "

# Grants: an operator's script has what it was given, and is told the name of what it was not.
wants=$(script wants <<<'engine.call("grant", "host.exec") print(engine.call("exec", 1000, 100, 100, "echo", "ran"))')
check "no terminal and no --yes: not granted" run 3 "$wants"
check "it says how to grant" complains "--grant"
check "granted by name" run 0 --grant host.exec "$wants"
check "and it ran" says "ran"
check "granted by --yes" run 0 "$wants" --yes

site=$(script site <<<'return {}')
chmod 666 "$site"
bad "others than root can write it" --site "$site" list

syntax=$(script syntax <<<'local x = = 1')
check "a syntax error" run 3 "$syntax"
check "names file and line" complains "syntax.lua:1:"
throws=$(script throws <<<'engine.call("sleep", 1) error("boom")')
check "an error" run 3 "$throws"
check "names file and line and text" complains "throws.lua:1: boom"
check "and the last primitive" complains "last primitive: sleep"
check "arguments arrive" run 0 "$(script arguments <<<'assert(... == "a") assert(select("#", ...) == 2)')" a b
check "an exit code of its own" run 7 "$(script exits <<<'engine.call("exit", 7)')"

# An installed script has its grants because nobody else can write it, nor what it loads.
cp -r "$STAGE" "$DIR/installed"
BOXDRILL=$DIR/installed/bin/boxdrill
check "an installed script has what it needs" run 0 list
check "and lists the probes" says "c.sibling"
chmod 666 "$DIR/installed/share/boxdrill/lua/report.lua"
check "a module that others can write is refused" run 3 list
check "by name" complains "report.lua: refused, others can write it"
BOXDRILL=$STAGE/bin/boxdrill

# A reader that goes away ends the run; one that is slow does not block it.
loud=$(script loud <<<'for i = 1, 200000 do print("line " .. i) end')
timeout -k 5 60 "$BOXDRILL" "$loud" 2>"$DIR/err" | head -n 1 >"$DIR/out"
status=${PIPESTATUS[0]}
check "a closed stdout interrupts (status $status)" [ "$status" = 130 ]
check "where nothing was made, without a word" [ ! -s "$DIR/err" ]
slow=$(timeout -k 5 60 "$BOXDRILL" "$loud" | { sleep 1; wc -l; })
check "a slow reader gets everything ($slow lines)" [ "$slow" = 200000 ]

# Started without descriptors 0 to 2.
"$BOXDRILL" "$(script quiet <<<'engine.call("exit", 5)')" <&- >&- 2>&-
check "closed standard descriptors" [ $? = 5 ]

finish
