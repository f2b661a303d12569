#!/bin/bash
# The witness: on a host where nobody listens its word is proof, green and red; without it nothing that was FAIL
# is PASS, and what cannot be told is no PASS.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-witness --no-listeners

says() { grep -qE "$1" "$DIR/out" || { cat "$DIR/out"; return 1; }; }
BREAKS="sibling acl host-input ingress"
[ "${BOXDRILL_FULL:-0}" = 0 ] || BREAKS="$BREAKS dns-mode ipv6 no-egress"
failures() { verdicts | grep '=FAIL$'; }
differing() { verdicts | grep -v "${HEALTHY[@]}"; }
# What the witness saw fail does not pass without it.
refuse_pass() {
    in_lab timeout 100 boxdrill drill.lua --yes --only C --no-witness >"$DIR/out" 2>"$DIR/err" </dev/null
    ! verdicts | grep '=PASS$' | grep -qFf <(sed 's/=FAIL/=PASS/' "$DIR/failures")
}
# expected.txt's cells of phase C.
cells() { expected_cells "$1" | grep '^c\.'; }

check "nobody listens: exit 0" drill 0 --only C
check "all of it is judged" [ -z "$(differing)" ]
check "--no-witness: exit 3" drill 3 --only C --no-witness
check "it says so" says 'rest on the boxes. own word'
check "what cannot be told is SUSPECT" [ "$(differing)" = "$(printf 'c.%s=SUSPECT\n' host private)" ]
for broken in $BREAKS; do
    status=1
    [ "$broken" != no-egress ] || status=3
    check "break $broken" lab break "$broken"
    check "$broken, nobody listens: exit $status" drill "$status" --only C
    check "$broken: exactly the cells written down" diff <(cells "$broken") <(differing)
    failures >"$DIR/failures"
    case $broken in
    acl) check "$broken: the witness tells" says 'witness .*left this host: a SYN on uplink' ;;
    host-input) check "$broken: the witness tells" says "witness .*passed this host's input hook: a SYN" ;;
    sibling) check "$broken: the witness tells" says "witness .*handed to the target's box: a SYN" ;;
    esac
    check "$broken, --no-witness: no PASS" refuse_pass
    check "mend $broken" lab mend "$broken"
done
check "mended: exit 0" drill 0 --only C
check "nothing left" nothing_left
finish
