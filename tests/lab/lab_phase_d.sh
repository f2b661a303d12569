#!/bin/bash
# Phase D: green on a healthy lab, and every way in which it must not be. What is injected is injected between
# the change and the judging: a resolver that stays down, a filter that does not bite, a bridge in the box that
# a filter cuts off, a signal at any moment.
# shellcheck disable=SC2016 # what stands in single quotes is expanded in the lab
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
case=${1:-all}
lab_up test-phase-d

in_lab incus launch -q images:debian/13/cloud work -p box-net -c user.box=1 </dev/null
operators_state() {
    in_lab sh -c 'incus config show work | grep -v last_used; incus network show boxnet; incus profile show box-net
        incus network acl show box-isolate; nft -s list chain inet incus acl.boxnet; bridge -j -d link | grep -c boxnet
        grep -h . /var/lib/incus/networks/boxnet/dnsmasq.leases' | grep -v '^[0-9]\{10\}'
}
operators_state >"$DIR/before"

# probe STATUS ARG...: single probes in the lab, their report in $DIR/out.
probe() {
    local expected=$1 status=0
    shift
    in_lab timeout -k 10 200 boxdrill run --yes "$@" >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    [ "$status" = "$expected" ] || {
        echo "    status $status, expected $expected"
        cat "$DIR/out" "$DIR/err"
        return 1
    }
}
says() { grep -qE "$1" "$DIR/out" "$DIR/err" || { cat "$DIR/out" "$DIR/err"; return 1; }; }
verdict_is() { [ "$(verdicts)" = "$1" ] || { cat "$DIR/out"; return 1; }; }

# beside SCRIPT: runs it in the lab beside what comes next, for at most a minute; `name KIND PART` waits for ours.
BESIDE=
beside() {
    in_lab timeout -k 1 60 bash -c '
        name() { until incus $1 list -f csv -c n 2>/dev/null | grep -o "^bd-[0-9a-f]*-$2$"; do sleep 0.1; done; }
        '"$1" >"$DIR/beside" 2>&1 </dev/null &
    BESIDE=$!
}
beside_ended() { wait "$BESIDE" || { cat "$DIR/beside"; return 1; }; }

healthy() {
    local from=$EPOCHREALTIME
    check "healthy: exit 0" drill 0 --only D
    local ms=$(((${EPOCHREALTIME/./} - ${from/./}) / 1000))
    check "healthy: all of D is PASS" verdict_is "$(printf 'd.%s=PASS\n' dns internal l2)"
    check "healthy: d.dns is transient, with a time" says 'VIABLE: transient: lost .*names.* for [1-9][0-9]* ms'
    check "healthy: d.l2's container runtime was asked" refute says 'no container runtime'
    check "healthy: d.internal has Incus's own words" says 'REJECTED by Incus: Unsupported nftables subject "@internal"'
    check "healthy: under 25 s (was $ms ms)" [ "$ms" -lt 25000 ]
    check "healthy: nothing left" nothing_left
}
refute() { ! "$@" >/dev/null; }

# The resolver is killed again and again once dns.mode is none; the undoing starts another.
stays_down() {
    beside 'n=$(name network dns)
        until [ "$(incus network get "$n" dns.mode)" = none ]; do sleep 0.05; done
        for i in $(seq 60); do
            kill -KILL "$(sed -n "s/^pid: //p" "/var/lib/incus/networks/$n/dnsmasq.pid")" && echo killed
            sleep 0.1
        done 2>/dev/null
        exit 0'
    check "a resolver that stays down: exit 1" probe 1 d.dns
    beside_ended
    check "a resolver that stays down: it was killed" grep -q killed "$DIR/beside"
    check "a resolver that stays down: VETO" verdict_is "d.dns=VETO"
    check "a resolver that stays down: broken, not transient" says 'not back 30 s after the change: broken'
    check "a resolver that stays down: it came back with the undoing" refute says 'not back after the undoing'
    check "a resolver that stays down: nothing left" nothing_left
}

# On a broken baseline nothing is changed: Incus itself says what was.
broken_baseline() {
    in_lab incus monitor --type=lifecycle --format=json >"$DIR/events" 2>/dev/null </dev/null &
    local monitor=$!
    check "the healthy run changes its network" probe 0 d.dns
    check "as Incus says" grep -q network-updated "$DIR/events"
    check "break no-egress" lab break no-egress
    : >"$DIR/events"
    check "a broken baseline: exit 3" drill 3 --only D
    check "a broken baseline: SUSPECT throughout" verdict_is "$(printf 'd.%s=SUSPECT\n' dns internal l2)"
    check "a broken baseline: it says that nothing was changed" says 'the change was not made'
    check "a broken baseline: Incus saw networks made" grep -q network-created "$DIR/events"
    check "a broken baseline: Incus saw no change" \
        refute grep -E 'network-updated|network-acl-updated|instance-updated.*devices' "$DIR/events"
    check "a broken baseline: nothing left" nothing_left
    kill "$monitor" 2>/dev/null
    check "mend no-egress" lab mend no-egress
}

no_bite() {
    beside 'n=$(name "" l2-a)
        until nft list table bridge incus 2>/dev/null | grep -q "in.$n"; do sleep 0.02; done
        for i in $(seq 100); do nft delete table bridge incus 2>/dev/null && echo deleted; sleep 0.05; done
        exit 0'
    check "a filter that does not bite: exit 1" probe 1 d.l2
    beside_ended
    check "a filter that does not bite: FAIL" verdict_is "d.l2=FAIL"
    check "a filter that does not bite: it says so" says 'the change does not break what it must'
    check "a filter that does not bite: nothing left" nothing_left
}

# The inner process hangs on the box's link with a MAC of its own, as some runtimes do: a filter cuts it off.
# The broker is halted meanwhile.
inner_bridge() {
    beside 'n=$(name "" l2-a)
        until incus exec "$n" -T -n -- pidof sleep >/dev/null 2>&1; do sleep 0.1; done
        for f in $(grep -lsx boxdrill /proc/[0-9]*/comm); do f=${f#/proc/}; kill -STOP "${f%/comm}"; done
        gateway=$(incus network get "${n%-a}" ipv4.address)
        incus exec "$n" -T -n -- sh -ec "
            inside() { nsenter --net=/run/netns/inner \"\$@\"; }
            inside ip link del eth0
            ip link add eth0 link eth0 netns inner type macvlan
            inside ip address add ${gateway%.1/24}.200/24 dev eth0
            inside ip link set eth0 up
            inside ip route add default via ${gateway%/24}"
        status=$?
        for f in $(grep -lsx boxdrill /proc/[0-9]*/comm); do f=${f#/proc/}; kill -CONT "${f%/comm}"; done
        exit $status'
    check "a filter that cuts off the inner runtime: exit 1" probe 1 d.l2
    check "a filter that cuts off the inner runtime: it was put on a MAC of its own" beside_ended
    check "a filter that cuts off the inner runtime: VETO" verdict_is "d.l2=VETO"
    check "a filter that cuts off the inner runtime: it says what" \
        says "VETO: keeps: .*behind a container runtime's bridge"
    check "a filter that cuts off the inner runtime: nothing left" nothing_left
}

# An operator's own rehearsals. That Incus accepts @internal cannot be made here; that it accepts what it should
# refuse can.
operators_own() {
    in_lab sh -c 'cd /root && sed -n "/^    local question/,/^    }/s/^    //p" >mtu.lua &&
        sed "s/d.mtu/d.wrong/; s/    change/    refused = true,&/" mtu.lua >wrong.lua' <"$HERE/../../docs/rehearse.md"
    local grants=(--grant rehearse --grant box.mint --grant box.exec)
    check "the guide's example: exit 0" probe 0 "${grants[@]}" ./mtu.lua
    check "the guide's example: VIABLE" says VIABLE
    check "accepted where it should be refused: exit 1" probe 1 "${grants[@]}" ./wrong.lua
    check "accepted where it should be refused: it says so" says 'FAIL: Incus accepts the change'
    check "without the grant: exit 3, and it is named" probe 3 --grant box.mint --grant box.exec ./mtu.lua
    check "without the grant: it is named" says "needs the grant 'rehearse'"
    check "nothing left" nothing_left
}

plan() {
    check "--dry-run: exit 0" drill 0 --dry-run --only D
    check "--dry-run: it names the network and its subnet" says 'network bd-[0-9a-f]{8}-dns \(10\.208\.0\.1/24\)'
    check "--dry-run: and its resolver" says '10\.208\.0\.1: udp 53'
    in_lab ip route add unreachable 10.208.0.0/15
    check "a subnet that is routed already is not taken" drill 0 --dry-run --only D
    check "the next one is" says 'network bd-[0-9a-f]{8}-dns \(10\.210\.0\.1/24\)'
    in_lab ip route del unreachable 10.208.0.0/15
    check "--live, another network than the contract's: exit 2" drill 2 --live other
    check "--live, with an operator's box on it: exit 4" drill 4 --live boxnet
    check "--live: it says whose" says 'work \(project default, Running\)'
    check "nothing was made" nothing_left
}

interrupted() {
    local delay delays="0.7 1.5 3 5 7 9 12"
    [ "${BOXDRILL_FULL:-0}" = 0 ] || delays=$(seq 0.3 0.3 18)
    for delay in $delays; do
        in_lab bash -c "boxdrill drill.lua --yes --only D >/dev/null 2>&1 & sleep $delay; kill -TERM \$!; wait \$!" </dev/null
        check "SIGTERM after $delay s: exit 130" [ $? = 130 ]
        check "SIGTERM after $delay s: nothing left" nothing_left
    done
}

if [ "$case" = all ]; then
    for case in healthy stays_down broken_baseline no_bite inner_bridge operators_own plan interrupted; do "$case"; done
else
    "$case"
fi
operators_state >"$DIR/after"
check "the operators' network, profile, ACL and box are as they were" diff "$DIR/before" "$DIR/after"
finish
