#!/bin/bash
# What the installed scripts are given and cannot use: one line on stderr and exit 2, before anything is done.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"

# bad TEXT ARG...: refused, by name.
bad() {
    local text=$1
    shift
    check "exit 2: boxdrill $*" run 2 "$@"
    check "one line: boxdrill $*" one_line
    check "'$text'" complains "$text"
}

site=$(script site <<<'return { exclude = { "fd00::1:80" } }')
for name in drill.lua list setup.lua; do
    bad "site.lua: exclude[1]: ambiguous" --site "$site" "$name"
done
bad "site.lua: exclude[1]: ambiguous" --site "$site" run c.dns
check "in JSON it is an object, too" run 2 --json --site "$site" list
check "of type error" says '{"type":"error","message":'
# Each a line of a site's file, and the field it must name.
while IFS='|' read -r text field; do
    bad "site.lua: $field" --site "$(script site <<<"return { $text }")" list
done <<'END'
lsteners = {}|lsteners: unknown key
exclude = { "0.0.0.0/0" }|exclude: it leaves nothing
allowed = { names = {} }|allowed.names
image = { type = "vm" }|image.type
budgets = { attempt = 100 }|budgets.attempt
network = { address = "10.88.0.0/24" }|network.address
END
bad "site.lua" --site "$(script site <<<'return {')" list
bad "site.lua" --site "$(script site <<<'local x')" list

for hold in -1 601 1e400 1e9 nan soon; do
    bad "--hold wants a number" drill.lua "--hold=$hold"
done
bad "list takes no 'x'" list x
bad "setup.lua takes no 'x'" setup.lua x
bad "unknown option --frob" drill.lua --frob
bad "no check" doctor.lua c.host
bad "no check" doctor.lua ./h.x.lua
bad "there is no check h.nothing" doctor.lua h.nothing
bad "unknown option -x" run -x
bad "run wants the ids" run
bad "nonsense" run nonsense
for name in drill.lua doctor.lua run list setup.lua; do
    check "$name -h" run 0 "$name" -h
    check "$name -h says how" says "usage: boxdrill $name"
done

# An operator's probe that takes the library apart: its own ERROR, and the run goes on.
mkdir "$DIR/probes"
cat >"$DIR/probes/meta.lua" <<'END'
require("probe").metadata = function() return "[7]" end
return { id = "c.meta", title = "lies about itself", run = function(t) t:pass("x") end }
END
cat >"$DIR/probes/evidence.lua" <<'END'
require("check").new = function()
    return {
        observations = {},
        error = function() end,
        verdict = function() return "FAIL" end,
        evidence = function() return { observations = { 7, { verdict = {}, what = {} }, "x" }, controls = "y" } end,
    }
end
return { id = "c.evidence", title = "has strange evidence", run = function() end }
END
cat >"$DIR/probes/fine.lua" <<'END'
return { id = "c.fine", title = "is fine", run = function(t) t:pass("x") end }
END
check "strange probes beside a good one" run 1 run "$DIR/probes/meta.lua" "$DIR/probes/evidence.lua" "$DIR/probes/fine.lua"
check "the good one has its verdict" says "PASS     c.fine"
check "so has the one with strange evidence" says "FAIL     c.evidence"
check "the one that lies is ERROR" says "ERROR    $DIR/probes/meta.lua"
check "no traceback" [ ! -s "$DIR/err" ]

if [ "$(id -u)" = 0 ]; then
    # As nobody: what needs root says so.
    cp -r "$STAGE" "$DIR/public"
    chmod -R a+rX "$DIR"
    BOXDRILL=$(command -v setpriv)
    bad "run it as root" --reuid 65534 --regid 65534 --clear-groups "$DIR/public/bin/boxdrill" setup.lua --yes
fi
finish
