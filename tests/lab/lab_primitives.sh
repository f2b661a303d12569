#!/bin/bash
# The primitives against the real thing: each file of primitives/ is a script run in a lab, with the
# grants that its first line names. Its last line is "N passed, N failed".
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-primitives
in_lab incus launch -q images:debian/13/cloud operators -p box-net -c user.box=1 </dev/null

for file in "$HERE"/primitives/*.lua; do
    name=$(basename "$file" .lua)
    mapfile -t grants < <(sed -n '1s/^-- grants: //p' "$file" | tr ' ' '\n')
    in_lab timeout -k 10 120 boxdrill "${grants[@]/#/--grant=}" "/opt/boxdrill-tests/lab/primitives/$name.lua" \
        >"$DIR/out" 2>"$DIR/err" </dev/null
    status=$?
    check "$name: exit 0 (was $status): $(tail -n 1 "$DIR/out")" [ "$status" = 0 ]
    [ "$status" = 0 ] || cat "$DIR/out" "$DIR/err"
    check "$name: something was tested" grep -qE '^[1-9][0-9]* passed, 0 failed$' "$DIR/out"
    check "$name: nothing left" nothing_left
done
check "the operator's box still runs" [ "$(in_lab incus list operators -f csv -c s)" = RUNNING ]
finish
