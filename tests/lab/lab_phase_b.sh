#!/bin/bash
# Phase B on the reference box: green when it is healthy; with each of its faults exactly the probe written down
# in faults.txt is FAIL. A CLI that splits its texts differently passes as well; a host without one is skipped;
# nothing is left, and operators' boxes are as they were. BOXDRILL_FULL=1: the whole phase for every fault.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-phase-b

# What is asked beside the probe that a fault is to turn: the cheap ones, which need no box of the CLI's.
CHEAP=(b.version b.templates b.rm.guard b.typo)

# with_fault FAULT STATUS: the probe that it is to turn, and some others; the report in $DIR/out.
with_fault() {
    local probe status=0
    in_lab sh -c "echo $1 >/run/box-faults"
    probe=$(expected_faults "$1" | sed -n 's/=FAIL$//p')
    if [ "${BOXDRILL_FULL:-0}" = 0 ]; then
        mapfile -t probes < <(printf '%s\n' "$probe" "${CHEAP[@]}" | sort -u)
        in_lab timeout -k 10 100 boxdrill run --yes "${probes[@]}" >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    else
        in_lab timeout -k 10 100 boxdrill drill.lua --yes --only B >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    fi
    in_lab rm -f /run/box-faults
    [ "$status" = "$2" ]
}

expected_faults() { sed -n "s/^$1 //p" "$HERE/faults.txt" | tr ' ' '\n' | grep . | sort; }

# Exactly the cells of the fault's row; where only some probes were asked, those of the row that were.
fault_cells() {
    local differ wanted
    differ=$(verdicts | grep -v "${HEALTHY[@]}")
    wanted=$(expected_faults "$1")
    [ "${BOXDRILL_FULL:-0}" != 0 ] || wanted=$(grep '=FAIL$' <<<"$wanted")
    [ "$differ" = "$wanted" ] || {
        echo "    expected: $wanted"
        echo "    seen:     $differ"
        cat "$DIR/out" "$DIR/err"
        return 1
    }
}

# The verdicts of phase B, and no others than are healthy but for those given.
phase_b() {
    local differ all
    differ=$(verdicts | grep -v "${HEALTHY[@]}")
    all=$(in_lab sh -c 'ls /usr/local/share/boxdrill/probes/b.*.lua | wc -l')
    [ "$differ $(verdicts | wc -l)" = "$* $all" ] || {
        echo "    seen: $differ"
        cat "$DIR/out" "$DIR/err"
        return 1
    }
}

# A CLI of the same wording with everything on the other stream, in a tree of its own.
other_cli() {
    in_lab sh -ec 'cp -r /usr/local/share/boxdrill/host /opt/other
        mv /opt/other/box /opt/other/real
        printf "#!/bin/sh\nexec 3>&1 1>&2 2>&3 3>&-\nexec /opt/other/real \"\$@\"\n" >/opt/other/box
        chmod 755 /opt/other/box
        /opt/other/box --version >/dev/null'
}

operators_state() { # volatile times aside
    in_lab sh -c 'for n in peer archive drill bd-0123abcd-a; do incus config show "$n"; incus snapshot list "$n" -f csv
        incus list "^$n\$" -f csv -c nsS4; done' | grep -v last_used
}

check "healthy: exit 0" drill 0 --only B
check "healthy: all green" phase_b ''
check "healthy: the report says which CLI" grep -q 'drilled: /usr/local/bin/box (box [0-9.]* (' "$DIR/out"
check "healthy: nothing left" nothing_left

check "no fault is in the help" [ "$(in_lab sh -c 'box --help; box help' 2>&1 | grep -ci fault)" = 0 ]
while read -r fault _; do
    check "$fault: exit 1" with_fault "$fault" 1
    check "$fault: exactly the cells written down" fault_cells "$fault"
done < <(grep -v '^#' "$HERE/faults.txt")
check "after all faults nothing is left" nothing_left

check "a CLI with its streams the other way round" other_cli
check "it passes: exit 0" drill 0 --only B --box /opt/other/box
check "it passes: all green" phase_b ''
check "it is the one that was drilled" grep -q 'drilled: /opt/other/box' "$DIR/out"
in_lab chmod 777 /opt/other/box
check "one that others can write is refused: exit 2" drill 2 --only B --box /opt/other/box
check "one that is not there is refused: exit 2" drill 2 --only B --box /opt/none

for name in peer archive drill bd-0123abcd-a; do
    in_lab incus launch -q images:debian/13/cloud "$name" -p box-net -c user.box=1 </dev/null
done
in_lab incus snapshot create peer mine </dev/null
sleep 3 # until they have addresses
operators_state >"$DIR/before"
check "beside operators' boxes: exit 0" drill 0 --only B
check "beside operators' boxes: all green but the empty list" phase_b b.list.empty=SKIP
for delay in 3 6 10; do
    in_lab bash -c "boxdrill drill.lua --only B --yes >/dev/null 2>&1 & sleep $delay; kill -INT \$!; wait \$!" </dev/null
    check "interrupted after $delay s: exit 130" [ $? = 130 ]
    check "interrupted after $delay s: nothing left" nothing_left
done
operators_state >"$DIR/after"
check "operators' boxes are as they were" diff "$DIR/before" "$DIR/after"

in_lab mount --bind /dev/null /usr/local/share/boxdrill/host/box
check "no CLI, phase B asked for: exit 3" drill 3 --only B
check "no CLI: every probe is SKIP" [ "$(verdicts | grep -vc '=SKIP$')" = 0 ]
check "no CLI, the whole drill: exit 0" drill 0
check "no CLI: the report says so" grep -q 'NO BOX CLI WAS DRILLED' "$DIR/out"
finish
