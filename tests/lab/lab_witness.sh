#!/bin/bash
# The host's own witness, on a host that nobody prepared: no listener behind any wall. Its green is whole, each
# break is seen, and what the witness lost or could not watch is never taken for absence.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
SITE=/etc/boxdrill/site.lua

# phase_c STATUS ARG...: phase C alone.
phase_c() { drill "$1" --only C "${@:2}"; }

# says PROBE VERDICT
says() {
    verdicts | grep -qx "$1=$2" && return
    cat "$DIR/out" "$DIR/err"
    return 1
}

# The probes of phase C that are no PASS, NOTE aside, are the row's of expected.txt.
c_cells_match() {
    [ "$(verdicts | grep -v "${HEALTHY[@]}")" = "$(expected_cells "$1" | grep '^c\.')" ] && return
    cat "$DIR/out" "$DIR/err"
    return 1
}

# during SCRIPT: phase C, with SCRIPT run beside it from the end of the minting on ($1: box A's process).
during() {
    local box run
    in_lab timeout -k 10 120 boxdrill drill.lua --yes --only C --hold 3 >"$DIR/out" 2>"$DIR/err" </dev/null &
    run=$!
    for _ in $(seq 1500); do
        grep -q '^holding' "$DIR/out" && break
        sleep 0.02
    done
    box=$(sed -nE 's/^ +(bd-[0-9a-f]+-a) 10\..*/\1/p' "$DIR/out")
    # shellcheck disable=SC2016
    in_lab timeout 30 sh -c 'pid=$(incus query "/1.0/instances/$1/state" | sed -n "s/.*\"pid\": \([0-9]*\).*/\1/p")
        sh -c "$2" sh "$pid"' sh "$box" "$1" </dev/null
    wait "$run"
}

# Another link of the host's, with nobody at its end.
refute() { ! "$@"; }
second_link() { in_lab sh -c 'ip link add other type veth peer name rehto; ip link set rehto up; ip link set other up'; }

lab_up test-witness --no-listeners
check "the site names no listener" in_lab test ! -e "$SITE"
check "healthy: exit 0" drill 0
check "healthy: all green" cells_match healthy
check "a whole drill leaves nothing" nothing_left

breaks="sibling acl host-input ingress"
[ "${BOXDRILL_FULL:-0}" = 0 ] || breaks+=" dns-mode ipv6"
for break in $breaks; do
    check "break $break" lab break "$break"
    check "$break: exit 1" phase_c 1
    check "$break: exactly the cells written down" c_cells_match "$break"
    if [ "$break" = acl ]; then
        check "acl: the packet was seen to leave the host" grep -q 'left this host: .* on uplink' "$DIR/out"
        phase_c 1 --no-witness
        check "acl, without the witness: nothing is a PASS that failed" says c.private SUSPECT
        check "acl, without the witness: the report says so" grep -q '^NO WITNESS on this host' "$DIR/out"
    fi
    check "mend $break" lab mend "$break"
done
check "dnsmasq" lab break dnsmasq
check "dnsmasq: exit 1" phase_c 1
check "dnsmasq: exactly the cells written down" c_cells_match dnsmasq-before-mint
check "mend dnsmasq" lab mend dnsmasq

# Nobody there, and the wall let it through: on the way out stands only the host's own ARP request.
check "break acl again" lab break acl
in_lab ip route add 192.168.1.0/24 dev uplink
phase_c 1 --json
check "the host's own ARP request is an arrival" \
    grep -q '"verdict":"FAIL".*ARP request for 192.168.1.1 on uplink' "$DIR/out"
in_lab ip route del 192.168.1.0/24 dev uplink
second_link
in_lab sh -c 'ip address add 192.0.2.1/24 dev other; ip route add 10.200.0.0/16 via 192.0.2.9'
# Where the host has a question of its own under way at that moment, it is SUSPECT, never PASS: asked again then.
for _ in 1 2 3; do
    in_lab timeout 100 boxdrill drill.lua --yes --only C --json >"$DIR/out" 2>"$DIR/err" </dev/null
    check "a range that is routed by another link: no PASS" refute grep -q '"id":"c.private","verdict":"PASS"' "$DIR/out"
    grep -q 'ARP request for 192.0.2.9 on other' "$DIR/out" && break
done
in_lab ip link del other
check "a range that is routed by another link" \
    grep -q '"verdict":"FAIL".*ARP request for 192.0.2.9 on other' "$DIR/out"
check "mend acl again" lab mend acl

# A box that floods its port towards an address that is asked: the run ends as fast, and says what was lost.
start=$SECONDS
# shellcheck disable=SC2016
during 'timeout 14 nsenter -t "$1" -n perl -MSocket -e "
    socket(S, PF_INET, SOCK_DGRAM, 0); connect(S, sockaddr_in(9, inet_aton(q(10.0.0.1))));
    while (1) { send(S, q(x) x 18, 0) }"'
check "a flood: the run was not held up" [ $((SECONDS - start)) -lt 40 ]
# On a busy machine the box that floods may not get to the end of its own run in time: ERROR, as honest.
flooded() { verdicts | grep -qxE 'c.private=(SUSPECT|ERROR)' || { cat "$DIR/out"; return 1; }; }
check "a flood: SUSPECT, or ERROR" flooded
check "a flood: the witness says what it lost" grep -qE 'the witness lost [0-9]+ frames on veth' "$DIR/out"
check "a flood: other flows are judged" says c.host PASS

# A link that goes down under the witness: it was blind there for a time.
second_link
during 'for _ in $(seq 28); do ip link set other down; ip link set other up; sleep 0.5; done'
check "a link that was down: SUSPECT" says c.private SUSPECT
check "a link that was down: the witness says so" grep -q 'the witness was blind on other' "$DIR/out"
in_lab ip link del other

check "mended: exit 0" phase_c 0
check "nothing left" nothing_left
finish
