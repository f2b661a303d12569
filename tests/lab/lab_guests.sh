#!/bin/bash
# What a box does to itself between the minting and the probes: a firewall of its own, another's address,
# a control's address. None of it may hide an open wall, and none of it may blame a whole one.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-guests

PUBLIC=(1.1.1.1 8.8.8.8)
# in_box SUFFIX COMMAND...: the lab's own tools in the network of that box of the run.
in_box() {
    local name pid
    name=$(in_lab incus list --all-projects -f csv -c n | grep -E "^bd-[0-9a-f]+-$1\$")
    pid=$(in_lab incus list --all-projects "$name" -f json | jq -r '.[0].state.pid')
    in_lab nsenter -t "$pid" -n "${@:2}"
}

# With the boxes minted and the probes not begun: drill_after FUNCTION, the report in $DIR/out. The broker
# is halted meanwhile, so that it takes no longer than it takes.
drill_after() {
    local run
    in_lab timeout -k 10 200 boxdrill drill.lua --yes --only C --hold 2 >"$DIR/out" 2>"$DIR/err" </dev/null &
    run=$!
    for _ in $(seq 1500); do
        grep -q '^holding' "$DIR/out" && break
        sleep 0.02
    done
    signal_boxdrill STOP
    check "$1: done" "$1" >"$DIR/act" 2>&1
    cat "$DIR/act"
    check "$1: before the first probe" [ -z "$(verdicts)" ]
    signal_boxdrill CONT
    wait "$run"
}

# verdict_is ID VERDICT...: one of these.
verdict_is() {
    local seen
    seen=$(verdicts | sed -n "s/^$1=//p")
    case " ${*:2} " in *" $seen "*) return ;; esac
    echo "    $1 is '$seen', not ${*:2}"
    cat "$DIR/out"
    return 1
}

# broken_boxes BREAK [ROW]: a break of the run's own boxes turns the row's cells, and is mended with them gone.
broken_boxes() {
    act() { lab break "$NAMED"; }
    NAMED=$1
    drill_after act
    check "$1: exactly the cells written down" only_cells "${2:-$1}"
    check "mend $1" lab mend "$1"
}

guest_firewall_open_wall() {
    lab break sibling
    broken_boxes guest-firewall sibling+guest-firewall
    lab mend sibling
}

# Frames pass from a to b; what b answers does not come back.
one_way_wall() {
    local address
    address=$(in_lab incus list --all-projects -f csv -c n4 | sed -n 's/^bd-[0-9a-f]*-b,"\{0,1\}\([0-9.]*\).*/\1/p')
    in_lab nft -f - <<<"table bridge oneway {
        chain forward { type filter hook forward priority 0; ip saddr $address ip daddr 10.88.0.0/24 drop; }
    }"
}

one_way() {
    lab break sibling
    drill_after one_way_wall
    check "a way in without a way back is a way in" verdict_is c.sibling FAIL
    in_lab nft delete table bridge oneway
    lab mend sibling
}

own_control() {
    in_box a ip link set lo up
    for address in "${PUBLIC[@]}"; do in_box a ip address add "$address/32" dev lo; done
    in_lab sh -c "nsenter -t $(in_lab incus list --all-projects -f json |
        jq -r '.[] | select(.name | test("^bd-[0-9a-f]+-a$")) | .state.pid') -n setsid perl -MIO::Socket::INET -e '
        \$s = IO::Socket::INET->new(LocalAddr => \"0.0.0.0\", LocalPort => 443, Listen => 9) or die; alarm 90; \$s->accept while 1' \
        </dev/null >/dev/null 2>&1 &"
}

control_at_home() {
    drill_after own_control
    check "a control that meets the box itself is none: c.sibling" verdict_is c.sibling SUSPECT
    check "a control that meets the box itself is none: c.private" verdict_is c.private SUSPECT
}

link_local() {
    local i seen=
    in_lab sh -c 'echo 0 >/proc/sys/net/ipv6/conf/boxnet/disable_ipv6; ip -6 address add fe80::1/64 dev boxnet nodad'
    for i in 1 2 3; do
        in_lab timeout -k 10 200 boxdrill drill.lua --yes --only C >"$DIR/out" 2>"$DIR/err" </dev/null
        check "fe80 on the bridge, run $i: c.host is measured" verdict_is c.host PASS FAIL
        seen+="$(verdicts | grep c.host) "
    done
    check "three times alike" [ "$(tr ' ' '\n' <<<"$seen" | grep . | sort -u | wc -l)" = 1 ]
    in_lab sh -c 'ip -6 address del fe80::1/64 dev boxnet; echo 1 >/proc/sys/net/ipv6/conf/boxnet/disable_ipv6'
}

guest_firewall_open_wall
one_way
control_at_home
link_local
rounds=1
[ "${BOXDRILL_FULL:-0}" = 0 ] || rounds=3
for _ in $(seq "$rounds"); do
    for name in guest-firewall same-address same-machine-id frozen fakes resolver; do broken_boxes "$name"; done
done
check "nothing left" nothing_left
finish
