#!/bin/bash
# One case of the lab: healthy, or a break. On the broken lab exactly the cells written down in
# expected.txt turn, and after mending everything is green again.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
case=$1
lab_up "test-$case"

# Drills, with the broker halted between minting and the first probe while dnsmasq is killed.
drill_dnsmasq_after() {
    in_lab bash -c 'echo $$ >/tmp/drill.pid; exec timeout -k 10 200 boxdrill drill.lua --yes' \
        >"$DIR/out" 2>"$DIR/err" </dev/null &
    local run=$!
    for _ in $(seq 1500); do
        grep -qE '^ +bd-[0-9a-f]+-b 10\.' "$DIR/out" && break
        sleep 0.02
    done
    signal_boxdrill STOP
    lab break dnsmasq
    signal_boxdrill CONT
    wait "$run"
    [ $? = 1 ]
}

operators_state() { in_lab sh -c 'incus config show work; incus list work -f csv -c nsS' | grep -v last_used; }

healthy() {
    local runs=2 i
    [ "${BOXDRILL_FULL:-0}" = 0 ] || runs=10
    # An operator's box that looks like ours: tagged, named like a sibling, on the profile.
    in_lab incus launch -q images:debian/13/cloud work -p box-net -c user.box=1 </dev/null
    in_lab incus launch -q images:debian/13/cloud peer -p box-net -c user.box=1 </dev/null
    operators_state >"$DIR/before"
    for i in $(seq "$runs"); do
        check "healthy, run $i: exit 0" drill 0
        check "healthy, run $i: exactly the cells written down" cells_match operators
        check "healthy, run $i: nothing left" nothing_left
    done
    operators_state >"$DIR/after"
    check "an operator's box is as it was" cmp "$DIR/before" "$DIR/after"
    check "--json: exit 0" drill 0 --json
    check "--json: every line is an object" jq -es 'all(type == "object")' "$DIR/out" >/dev/null
    check "--json: a verdict for each probe" \
        [ "$(jq -r 'select(.type == "verdict") | .id' "$DIR/out" | sort -u | wc -l)" = \
          "$(in_lab sh -c 'ls /usr/local/share/boxdrill/probes | grep -cv "^h[.]"')" ]
    check "--json: the summary is last, and counts them" \
        jq -es '.[-1].type == "summary" and .[-1].verdicts.PASS == (map(select(.verdict == "PASS")) | length)' "$DIR/out" >/dev/null
    check "a phase alone" drill 0 --only A
    check "--dry-run makes nothing" drill 0 --dry-run
    check "--dry-run names the metadata address" grep -qF 169.254.169.254 "$DIR/out"
    check "without consent: exit 2" without_consent
    interrupted
    check "setup again changes nothing" setup_is_idempotent
    check "setup refuses with an operator's box attached" setup_refuses
}

without_consent() {
    in_lab boxdrill drill.lua </dev/null >"$DIR/out" 2>"$DIR/err"
    [ $? = 2 ] && nothing_left
}

# Ctrl-C, TERM and HUP at several moments: exit 130, and nothing is left.
interrupted() {
    local signal delay
    for signal in INT TERM HUP; do
        for delay in 0.3 1.5 3; do
            in_lab bash -c "boxdrill drill.lua --yes >/dev/null 2>&1 & sleep $delay; kill -$signal \$!; wait \$!" </dev/null
            check "SIG$signal after $delay s: exit 130" [ $? = 130 ]
            check "SIG$signal after $delay s: nothing left" nothing_left
        done
    done
}

# The engine with AddressSanitizer and UBSan, installed beside the release one: a whole drill, and
# interrupts while everything is under way.
sanitizer() {
    local delay delays="0.5 1 2 2.3 2.6 3 4"
    [ "${BOXDRILL_FULL:-0}" = 0 ] || delays=$(seq 0.1 0.1 8)
    in_lab /usr/local/asan/bin/boxdrill drill.lua --yes >"$DIR/out" 2>&1 </dev/null
    check "a drill: exit 0" [ $? = 0 ]
    for delay in $delays; do
        in_lab bash -c "/usr/local/asan/bin/boxdrill drill.lua --yes & sleep $delay; kill -TERM \$!; wait \$!" \
            >>"$DIR/out" 2>&1 </dev/null
        check "SIGTERM after $delay s: exit 130" [ $? = 130 ]
    done
    check "no report of a sanitizer" no_sanitizer_report
    check "nothing left" nothing_left
}

no_sanitizer_report() { ! grep -A 20 -E 'Sanitizer|runtime error' "$DIR/out"; }

setup_is_idempotent() {
    in_lab boxdrill setup.lua --yes >"$DIR/out" 2>&1 </dev/null && ! grep -q ' -> ' "$DIR/out"
}

setup_refuses() {
    in_lab incus network set boxnet dns.mode=managed
    in_lab boxdrill setup.lua --yes >"$DIR/out" 2>&1 </dev/null
    [ $? = 4 ] && grep -q work "$DIR/out" && grep -q peer "$DIR/out" &&
        [ "$(in_lab incus network get boxnet dns.mode)" = managed ] &&
        in_lab boxdrill setup.lua --yes --force >/dev/null 2>&1 </dev/null &&
        [ "$(in_lab incus network get boxnet dns.mode)" = none ]
}

# broken BREAK ROW STATUS
# mended ROW: green again; phase C alone in CI, where every break is.
mended() {
    local all=(--only C)
    [ "${BOXDRILL_FULL:-0}" = 0 ] || all=()
    check "$1, mended: exit 0" drill 0 "${all[@]}"
    check "$1, mended: all green" only_cells healthy
}

broken() {
    check "break $1" lab break "$1"
    check "$2: exit $3" drill "$3"
    check "$2: exactly the cells written down" cells_match "$2"
    check "$2: nothing left" nothing_left
    check "mend $1" lab mend "$1"
    mended "$2"
}

case $case in
healthy) healthy ;;
sanitizer) sanitizer ;;
dnsmasq-before) broken dnsmasq dnsmasq-before-mint 1 ;;
dnsmasq-after)
    check "dnsmasq-after: exit 1" drill_dnsmasq_after
    check "dnsmasq-after: exactly the cells written down" cells_match dnsmasq-after-mint
    check "mend dnsmasq" lab mend dnsmasq
    mended dnsmasq-after
    ;;
*) broken "$case" "$case" 1 ;;
esac
finish
