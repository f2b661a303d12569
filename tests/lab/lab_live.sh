#!/bin/bash
# --live: a rehearsal on the contract's own network, and its keys back whatever ends it.
# shellcheck disable=SC2016 # what stands in single quotes is expanded in the lab
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-live

says() { grep -qE "$1" "$DIR/out" "$DIR/err" || { cat "$DIR/out" "$DIR/err"; return 1; }; }
verdict_is() { [ "$(verdicts)" = "$1" ] || { cat "$DIR/out"; return 1; }; }
state() { in_lab sh -c 'incus network show boxnet | grep -v -e used_by -e /1.0/; nft -s list table inet incus'; }
as_before() { state | diff "$DIR/before" -; }
mode_is() { [ "$(in_lab incus network get boxnet dns.mode)" = "$1" ]; }
# changed_by COMMAND: runs it in the lab once the drill that starts with it has changed dns.mode.
changed_by() {
    in_lab timeout 60 bash -c '
        boxdrill drill.lua --yes --live boxnet >/tmp/out 2>&1 & drill=$!
        until [ "$(incus network get boxnet dns.mode)" = none ]; do sleep 0.05; done
        '"$1"'
        wait $drill' </dev/null
}

in_force() {
    state >"$DIR/before"
    check "what is in force already is not rehearsed: exit 0" drill 0 --live boxnet
    check "and says so" verdict_is "$(printf 'd.%s\n' dns=SKIP internal=SKIP l2=PASS)"
    check "why: it is in force" says 'SKIP: in force on boxnet already'
    check "why: an ACL may be attached elsewhere" says 'SKIP: an ACL may be attached elsewhere'
    check "the network is as it was" as_before
    check "nothing left" nothing_left
}

rehearsed() {
    check "break dns-mode" lab break dns-mode
    state >"$DIR/before"
    check "a change that is not in force: exit 0" drill 0 --live boxnet
    check "and is viable" says 'VIABLE: transient: lost '
    check "the network is as it was" as_before
    check "nothing left" nothing_left
}

interrupted() {
    changed_by 'kill -TERM $drill'
    check "SIGTERM while it is changed: exit 130" [ $? = 130 ]
    check "SIGTERM: the network is as it was" as_before
    check "SIGTERM: nothing left" nothing_left
    changed_by 'kill -KILL $drill'
    check "SIGKILL while it is changed: it stays changed" mode_is none
    check "SIGKILL: the journal says so" in_lab sh -c 'boxdrill journal | grep -q "boxnet/dns.mode"'
    check "SIGKILL: the next drill refuses to start" drill 4 --live boxnet
    check "SIGKILL: journal revert" in_lab boxdrill journal revert --yes
    check "SIGKILL: the network is as it was" as_before
    check "SIGKILL: nothing left" nothing_left
}

somebody_else() {
    # Incus is still at the drill's own change when the key reads as changed.
    changed_by 'until incus network set boxnet dns.mode=dynamic 2>/dev/null; do sleep 0.2; done; kill -TERM $drill'
    check "changed by somebody else since: exit 130" [ $? = 130 ]
    check "it is left" mode_is dynamic
    check "and named" in_lab grep -q 'left as it is: dns.mode of network boxnet is "dynamic" now' /tmp/out
    check "nothing left" nothing_left
    in_lab incus network set boxnet dns.mode=managed
}

# One that comes onto the network after the drill has looked.
stranger() {
    in_lab timeout 90 bash -c '
        boxdrill drill.lua --yes --live boxnet >/tmp/out 2>&1 & drill=$!
        until incus list -f csv -c n | grep -q -- -dns-b; do sleep 0.05; done
        incus init -q images:debian/13/cloud work -p box-net </dev/null
        wait $drill' </dev/null
    check "a stranger on the network: exit 3" [ $? = 3 ]
    check "it is named, and nothing is changed" in_lab grep -q 'have come onto it: work' /tmp/out
    check "the network is as it was" as_before
    in_lab incus delete -f work
}

in_force
rehearsed
interrupted
somebody_else
stranger
finish
