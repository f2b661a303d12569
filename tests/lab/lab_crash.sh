#!/bin/bash
# SIGKILL of the broker at every step that is journaled, of incusd, of both; a full disk under the
# journal; a journal that was cut, damaged, or written by another version. Afterwards, or after
# `boxdrill journal revert`, nothing of the run is left, and nothing else was touched.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-crash

# Operators' boxes, one named like ours: they must not change.
for name in peer archive bd-cafe0000-a; do
    in_lab incus init -q images:debian/13/cloud "$name" -p box-net -c user.box=1 </dev/null
done
others() { in_lab sh -c 'for n in peer archive bd-cafe0000-a; do incus config show $n; done'; }
others >"$DIR/before"
unchanged() { others >"$DIR/after" && cmp "$DIR/before" "$DIR/after"; }

# Ours, apart from the operators'.
ours() { in_lab incus list -f csv -c n | grep '^bd-' | grep -v '^bd-cafe0000-a$'; }
none_of_ours() {
    local left
    left=$(ours)
    [ -z "$left" ] || {
        echo "    left: $left"
        return 1
    }
}

# revert EXPECTED-STATUS
revert() {
    local status=0
    in_lab timeout -k 5 200 boxdrill journal revert --yes >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    [ "$status" = "$1" ] || {
        echo "    status $status, expected $1"
        cat "$DIR/out" "$DIR/err"
        return 1
    }
}
# No file, or one with its head alone.
journal_gone() { in_lab sh -c '! [ -e /var/lib/boxdrill/journal ] || [ "$(wc -l </var/lib/boxdrill/journal)" -le 1 ]'; }

# drill_killed AT WHEN PHASE: a drill that is killed at its ATth fsync. Fails when it was not.
drill_killed() {
    in_lab env LD_PRELOAD=/usr/local/lib/boxdrill-killat.so KILL_AT="$1" KILL_WHEN="$2" \
        timeout -k 5 100 boxdrill drill.lua --yes --only "$3" >"$DIR/out" 2>&1 </dev/null
    [ $? = 137 ]
}

step() {
    local at=$1 when=$2
    # With the head alone nothing was announced, and nothing stands in the way.
    if in_lab sh -c '[ "$(wc -l </var/lib/boxdrill/journal)" -gt 1 ]' 2>/dev/null; then
        check "killed $when step $at: the next drill refuses to start" drill 4 --only A
        check "killed $when step $at: it says how to mend that" grep -q "boxdrill journal revert" "$DIR/err"
    fi
    check "killed $when step $at: reverted" revert 0
    check "killed $when step $at: nothing of ours is left" none_of_ours
    check "killed $when step $at: again is harmless" revert 0
    check "killed $when step $at: the journal is gone" journal_gone
}

every_step() {
    local at steps="1 2 4 5 7 9 12"
    [ "${BOXDRILL_FULL:-0}" = 0 ] || steps=$(seq 1 60)
    for at in $steps; do
        for when in before after; do
            [ "${BOXDRILL_FULL:-0}" = 1 ] || [ "$when" = after ] || [ "$at" -lt 5 ] || continue
            drill_killed "$at" "$when" A || break 2 # no so many steps in this run
            step "$at" "$when"
        done
    done
    check "several steps were killed (the last: $at)" [ "$at" -gt 8 ]
    check "operators' boxes are as they were" unchanged
}

incusd_killed() {
    local delay
    for delay in 2 4; do
        in_lab bash -c "sleep $delay; kill -9 \$(cat /run/incus/incusd.pid 2>/dev/null || pidof incusd)" &
        in_lab timeout -k 5 250 boxdrill drill.lua --yes >"$DIR/out" 2>&1 </dev/null
        check "incusd killed after $delay s: no hang (exit $?)" true
        wait
        check "incusd killed after $delay s: nothing of ours is left" none_of_ours
    done
    check "operators' boxes are as they were" unchanged
}

both_killed() {
    in_lab bash -c 'boxdrill drill.lua --yes >/dev/null 2>&1 & sleep 3; kill -9 $! $(pidof incusd)' </dev/null
    sleep 3
    check "both killed: reverted" revert 0
    check "both killed: nothing of ours is left" none_of_ours
}

# A copy that incusd is still busy with when the broker dies: the client is killed, its operation is not.
copy_under_way() {
    in_lab bash -c 'boxdrill drill.lua --yes --only A >/dev/null 2>&1 & p=$!
        for i in $(seq 500); do
            grep -qsaF "copy" /proc/[0-9]*/cmdline && break
            sleep 0.01
        done
        kill -9 $p' </dev/null
    check "killed during a copy: reverted" revert 0
    check "killed during a copy: nothing of ours is left" none_of_ours
}

# With a journal left by a killed run.
left_behind() {
    drill_killed 6 after A
    in_lab test -e /var/lib/boxdrill/journal
}

damage() {
    left_behind
    in_lab truncate -s -7 /var/lib/boxdrill/journal
    check "a cut journal: the next drill refuses" drill 4 --only A
    check "a cut journal: reverted" revert 0
    check "a cut journal: nothing of ours is left" none_of_ours
    check "a cut journal: it is gone" journal_gone

    left_behind
    in_lab sed -i '1s/1$/2/' /var/lib/boxdrill/journal
    check "another version's: the next drill refuses" drill 4 --only A
    check "another version's: not reverted" revert 4
    check "another version's: it says so" grep -q "another version" "$DIR/out"
    in_lab sed -i '1s/2$/1/' /var/lib/boxdrill/journal
    check "this version's again: reverted" revert 0
    check "nothing of ours is left" none_of_ours

    left_behind
    in_lab sed -i '$s/instance/instanze/' /var/lib/boxdrill/journal
    check "a damaged line: the next drill refuses" drill 4 --only A
    check "a damaged line: not all of it can be reverted" revert 4
    in_lab sed -i 's/instanze/instance/' /var/lib/boxdrill/journal
    check "mended: reverted" revert 0
    check "nothing of ours is left" none_of_ours
}

# What has our name but is not ours, and an operator's copy of one of ours.
not_ours() {
    local name
    left_behind
    name=$(ours | head -n 1)
    in_lab incus copy "$name" operators-copy </dev/null
    in_lab sh -c "incus delete -f $name; incus init -q images:debian/13/cloud $name" </dev/null
    check "another instance of our name: reverted" revert 0
    check "another instance of our name: it is still there" [ "$(ours)" = "$name" ]
    check "a copy that an operator made is still there" in_lab incus info operators-copy >/dev/null
    in_lab incus delete -f "$name" operators-copy
}

full_disk() {
    in_lab sh -c 'mount -t tmpfs -o size=64k none /var/lib/boxdrill; touch /var/lib/boxdrill/lock
        dd if=/dev/zero of=/var/lib/boxdrill/filler bs=4k 2>/dev/null'
    check "a full disk under the journal: exit 3" drill 3
    check "a full disk under the journal: it says why" grep -q "journal cannot be written" "$DIR/out" "$DIR/err"
    check "a full disk under the journal: nothing was made" none_of_ours
    in_lab umount /var/lib/boxdrill
    check "with room again: exit 0" drill 0 --only A
}

one_at_a_time() {
    in_lab bash -c 'boxdrill drill.lua --yes --only A >/dev/null 2>&1' </dev/null &
    sleep 1
    check "a second run refuses" drill 4 --only A
    check "and says who holds the lock" grep -qE "another run is changing this host: process [0-9]+" "$DIR/err"
    wait
}

every_step
incusd_killed
both_killed
copy_under_way
damage
not_ours
full_disk
one_at_a_time
check "operators' boxes are as they were" unchanged
finish
