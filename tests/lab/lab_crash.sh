#!/bin/bash
# A host is never left changed. SIGKILL of the broker, of incusd and of both at every step of the journal; a disk
# that is full, and one that fills up; a journal that was cut, damaged, or written by another version; what no
# journal knows. Afterwards, or after `boxdrill journal revert`, the host's normal form is what it was, and the
# operators' boxes have not been touched. BOXDRILL_FULL=1: also every step of a whole
# drill. With words: only those parts.
# shellcheck disable=SC2016 # what stands in single quotes is expanded in the lab
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/lab/normal_form.sh
. "$(dirname "$0")/normal_form.sh"
lab_up test-crash
FULL=${BOXDRILL_FULL:-0}
NAMED=(peer archive drill bd-cafe0000-a)

# -- the operators' ---------------------------------------------------------------------------------------

# Everything of their boxes that a run could touch: configuration, state, links, leases.
operators() {
    in_lab sh -c '
        for n in "$@"; do
            incus list "^$n\$" -f csv -c nsS4
            incus config show "$n"
            link=$(incus config get "$n" volatile.eth0.host_name)
            echo "link $link $(cat "/sys/class/net/$link/ifindex")"
            grep " $(incus config get "$n" volatile.eth0.hwaddr) " /var/lib/incus/networks/boxnet/dnsmasq.leases
        done' sh "${NAMED[@]}"
}
operators_boxes() {
    local name
    for name in "${NAMED[@]}"; do
        in_lab incus launch -q images:debian/13/cloud "$name" -p box-net -c user.box=1 </dev/null
    done
    # And a copy of one of ours; it keeps our tag, and runs.
    check "a drill whose boxes are kept: exit 0" drill 0 --only A --keep-boxes
    name=$(ours | head -n 1)
    in_lab incus copy "$name" operators-copy </dev/null
    in_lab incus start operators-copy </dev/null
    check "boxes that were kept are no obstacle" drill 0 --only A
    check "nor is a copy of one, which is named" grep -q 'note: instance operators-copy .* left alone' "$DIR/out"
    check "'journal' does not mind them" in_lab boxdrill journal >/dev/null
    in_lab sh -c 'incus list -f csv -c n | grep "^bd-" | grep -vx bd-cafe0000-a | xargs incus delete -f
        rm /var/lib/boxdrill/journal' </dev/null
    NAMED+=(operators-copy)
    for _ in $(seq 50); do
        [ "$(in_lab grep -c . /var/lib/incus/networks/boxnet/dnsmasq.leases)" -ge "${#NAMED[@]}" ] && break
        sleep 0.2
    done
    operators >"$DIR/operators"
    check "each of the operators' boxes has a link and a lease" \
        [ "$(grep -cE "^link veth.* [0-9]+$|^[0-9]{10} " "$DIR/operators")" = $((2 * ${#NAMED[@]})) ]
}
untouched() {
    operators >"$DIR/now"
    diff "$DIR/operators" "$DIR/now"
}
same() {
    normal_form >"$DIR/now"
    diff "$DIR/before" "$DIR/now" | cut -c 1-200 | head -n 30
    cmp -s "$DIR/before" "$DIR/now"
}

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

# drill_killed AT WHEN ARG...: a drill that is killed at its ATth fsync. Fails when it was not.
drill_killed() {
    in_lab env LD_PRELOAD=/usr/local/lib/boxdrill-killat.so KILL_AT="$1" KILL_WHEN="$2" \
        timeout -k 5 100 boxdrill drill.lua --yes "${@:3}" >"$DIR/out" 2>&1 </dev/null
    [ $? = 137 ]
}

# -- killed at every step -----------------------------------------------------------------------------------

# steps AT WHEN PIDS ARG...: crash/steps.lua, with those killed at its ATth fsync. Returns its status.
steps() {
    in_lab env LD_PRELOAD=/usr/local/lib/boxdrill-killat.so KILL_AT="$1" KILL_WHEN="$2" KILL_PIDS="$3" \
        timeout -k 5 100 boxdrill --grant rehearse --grant box.mint --grant box.cli --grant client \
        /opt/boxdrill-tests/lab/crash/steps.lua "${@:4}" >"$DIR/out" 2>&1 </dev/null
}

# After a kill: a next run refuses and names what is left, the revert brings the host back, twice is harmless.
brought_back() {
    local when=$1 name
    name=$(in_lab boxdrill journal | sed -n 's/^open  [a-z]* *\([^ ]*\) .*/\1/p' | head -n 1)
    # With its head alone nothing was announced, and nothing stands in the way.
    if [ -n "$name" ]; then
        check "$when: the next drill refuses to start" drill 4 --only A
        check "$when: it names what is left, and the way back" \
            grep -qzE "$name.*'boxdrill journal revert' removes it, and so does 'boxdrill doctor.lua --fix'" "$DIR/err"
    fi
    check "$when: reverted" revert 0
    check "$when: the normal form of before" same
    check "$when: again is harmless" revert 0
    check "$when: the journal is gone" journal_gone
}

# moments AT: when to kill at that step; in CI one moment a step, in turn.
moments() {
    local all=(before after 40)
    if [ "$FULL" = 1 ]; then echo "${all[@]}"; else echo "${all[$(($1 % 3))]}"; fi
}

broker_killed() {
    local at when status kinds=""
    for at in $(seq 40); do
        for when in $(moments "$at"); do
            steps "$at" "$when" 0
            status=$?
            [ "$status" = 137 ] || break 2 # no so many steps
            kinds+=$(in_lab boxdrill journal | sed -n 's/^open  \([a-z]*\) .*/ \1/p')
            brought_back "the broker killed, step $at, $when"
        done
    done
    check "the last run was not killed, and did all steps" grep -q 'all steps done' "$DIR/out"
    check "each kind was left behind" \
        [ "$(tr ' ' '\n' <<<"$kinds" | grep . | sort -u | xargs)" = "acl instance network profile" ]
    # The last fsync is the folder's, when the journal is removed.
    check "at most 15 steps and the journal's removal, and several (not killed: $at)" [ "$at" -gt 8 -a "$at" -le 17 ]
    LAST=$((at - 1))
    # An instance that is older than its present name.
    steps $((LAST - 1)) before 0 slow
    brought_back "the broker killed after a rename"
    check "nothing of the operators' was touched" untouched
}

incusd_pid() { in_lab pidof incusd; }

# Incus 6.0.4 starts every box anew when it comes back after a SIGKILL, so theirs stand still for this.
operators_stopped() {
    check "nothing of the operators' was touched" untouched
    in_lab incus stop -f "${NAMED[@]}" </dev/null
    normal_form >"$DIR/before"
}

incusd_killed() {
    local at when status moments=40 stride=2
    [ "$FULL" = 0 ] || moments="after 10 40 200" stride=1
    for at in $(seq 2 "$stride" "$LAST"); do
        for when in $moments; do
            steps "$at" "$when" "$(incusd_pid)"
            status=$?
            check "incusd killed, step $at, $when: it ended, and reverted (exit $status)" \
                grep -qx "$status" <<<$'0\n1\n3'
            check "incusd killed, step $at, $when: the journal is gone" journal_gone
            check "incusd killed, step $at, $when: the normal form of before" same
        done
    done
}

both_killed() {
    local at when moments=40 stride=2
    [ "$FULL" = 0 ] || moments="after 10 40 200" stride=1
    for at in $(seq 3 "$stride" "$LAST"); do
        for when in $moments; do
            steps "$at" "$when" "$(incusd_pid) 0"
            brought_back "both killed, step $at, $when"
        done
    done
}

# Every step of a whole drill, phase by phase (C makes nothing but the boxes that all have), each at one moment.
every_step() {
    local phase=$1 at when all=(before after 40)
    for at in $(seq 400); do
        when=${all[$((at % 3))]}
        drill_killed "$at" "$when" --only "$phase" || break
        brought_back "phase $phase killed, step $at, $when"
    done
    check "phase $phase has many steps (the last: $at)" [ "$at" -gt 12 ]
    check "nothing of the operators' was touched" untouched
}
phase_a() { every_step A; }
phase_b() { every_step B; }
phase_d() { every_step D; }

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
    drill_killed 6 after --only A
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
    in_lab incus copy "$name" second-copy </dev/null
    in_lab sh -c "incus delete -f $name; incus init -q images:debian/13/cloud $name -p box-net" </dev/null
    check "another instance of our name: reverted" revert 0
    check "another instance of our name: it is still there" [ "$(ours)" = "$name" ]
    check "a copy that an operator made is still there" in_lab incus info second-copy >/dev/null
    in_lab sh -c "incus delete -f $name second-copy; rm -rf /var/log/incus/second-copy" </dev/null
}

# small_disk KIB: 64 KiB under the journal, with so much of it free.
small_disk() {
    in_lab sh -c 'mount -t tmpfs -o size=64k none /var/lib/boxdrill && touch /var/lib/boxdrill/lock
        head -c "$((64 - $1))k" /dev/zero >/var/lib/boxdrill/filler' sh "$1"
}

full_disk() {
    small_disk 0
    check "a full disk under the journal: exit 3" drill 3
    check "a full disk under the journal: it says why" grep -q "journal cannot be written" "$DIR/err"
    check "a full disk under the journal: nothing was made" none_of_ours
    in_lab umount /var/lib/boxdrill
    check "with room again: exit 0" drill 0 --only A
}

# The journal grows over its one page in the middle of the drill. What was made until then is in it.
fills_up() {
    small_disk 4
    check "a disk that fills up: exit 3" drill 3
    check "a disk that fills up: it says why, once" \
        [ "$(grep -c 'the journal cannot be written: No space left on device: the run is stopped' "$DIR/err")" = 1 ]
    check "a disk that fills up: it was in the middle" grep -qE '^PASS +b\.' "$DIR/out"
    check "a disk that fills up: no line says that something is left" refute grep -q "NOT REVERTED" "$DIR/err"
    check "a disk that fills up: the journal is gone" in_lab sh -c '! test -e /var/lib/boxdrill/journal'
    # Killed on the full disk, and reverted on it.
    drill_killed 30 after
    in_lab sh -c 'cat /dev/zero >>/var/lib/boxdrill/filler' 2>/dev/null
    check "killed, and the disk full: reverted" revert 0
    in_lab umount /var/lib/boxdrill
    check "a disk that fills up: the normal form of before" same
}
refute() { ! "$@"; }

# What carries the tag of a run and stands in no journal.
untracked() {
    steps 8 after 0
    in_lab mv /var/lib/boxdrill/journal /root/journal
    check "untracked: a drill refuses to start" drill 4 --only A
    local kind
    for kind in "delete -f" "network delete" "profile delete" "network acl delete"; do
        check "untracked: with 'incus $kind' by hand" \
            grep -qE "^  incus $kind --project default bd-[0-9a-f]{8}-" "$DIR/err"
    done
    check "untracked: the copy is not among them" refute grep -q operators-copy "$DIR/err"
    check "untracked: 'run' refuses too" refute in_lab boxdrill run --yes c.egress 2>"$DIR/err"
    check "untracked: with the same words" grep -q "no journal knows them" "$DIR/err"
    check "untracked: 'journal' says so too" refute in_lab boxdrill journal >"$DIR/out"
    check "untracked: and how" grep -q "incus network delete" "$DIR/out"
    check "untracked: 'journal revert' leaves it" revert 0
    check "untracked: it is still there" refute none_of_ours
    # The commands are right.
    sed -n 's/^  incus/incus/p' "$DIR/out" >"$DIR/commands"
    in_lab sh -e <"$DIR/commands"
    check "untracked: removed by those commands, a drill starts" drill 0 --only A
    in_lab rm /root/journal
    check "untracked: the normal form of before" same
}

# Ctrl-C in the middle of a drill, whole drills, a killed one: the operators' links and leases too.
drills() {
    check "a whole drill: exit 0" drill 0
    check "a whole drill: nothing of the operators' was touched" untouched
    in_lab bash -c 'boxdrill drill.lua --yes >/dev/null 2>&1 & sleep 5; kill -INT $!; wait $!' </dev/null
    check "interrupted: exit 130" [ $? = 130 ]
    check "interrupted: nothing of the operators' was touched" untouched
    drill_killed 60 after
    check "killed: nothing of the operators' was touched" untouched
    check "killed: reverted" revert 0
    check "and reverted: nothing of the operators' was touched" untouched
    check "the normal form of before" same
}

one_at_a_time() {
    in_lab bash -c 'boxdrill drill.lua --yes --only A >/dev/null 2>&1' </dev/null &
    sleep 1
    check "a second run refuses" drill 4 --only A
    check "and says who holds the lock" grep -qE "another run is changing this host: process [0-9]+" "$DIR/err"
    wait
}

operators_boxes
normal_form >"$DIR/before"
all=(broker_killed drills copy_under_way damage not_ours full_disk fills_up untracked one_at_a_time)
[ "$FULL" = 0 ] || all+=(phase_a phase_b phase_d)
all+=(operators_stopped incusd_killed both_killed)
LAST=11 # the steps of crash/steps.lua: broker_killed counts them
[ $# = 0 ] || all=("$@")
for part in "${all[@]}"; do
    from=$SECONDS
    "$part"
    echo "$part: $((SECONDS - from)) s"
done
check "the normal form of before" same
finish
