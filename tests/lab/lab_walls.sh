#!/bin/bash
# Walls of other makes than the contract's: those that reject, those inside the box itself. What only looks
# like a wall must not pass, what is one must not be doubted.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"

in_lab_sh() { in_lab sh -c "$1" </dev/null; }

# drill_with SCRIPT: phase C, held after the minting while SCRIPT runs in the network of box A ($1: its name).
drill_with() {
    local box
    in_lab timeout -k 10 200 boxdrill drill.lua --yes --only C --hold 4 >"$DIR/out" 2>"$DIR/err" </dev/null &
    local run=$!
    for _ in $(seq 1500); do
        grep -q '^holding' "$DIR/out" && break
        sleep 0.02
    done
    box=$(sed -nE 's/^ +(bd-[0-9a-f]+-a) 10\..*/\1/p' "$DIR/out")
    # shellcheck disable=SC2016
    in_lab sh -c 'pid=$(incus query "/1.0/instances/$1/state" | sed -n "s/.*\"pid\": \([0-9]*\).*/\1/p")
        nsenter -t "$pid" -n sh -c "$2"' sh "$box" "$1" </dev/null || echo "    the box could not be changed"
    wait "$run"
}

# alone PROBE...: probes in boxes of their own.
alone() { in_lab timeout -k 10 200 boxdrill run "$@" --yes >"$DIR/out" 2>"$DIR/err" </dev/null; }

# says PROBE VERDICT
says() {
    verdicts | grep -qx "$1=$2" && return
    cat "$DIR/out" "$DIR/err"
    return 1
}

nft_add() { in_lab nft -f - <<<"$1" || check "nft took: $1" false; }

lab_up test-walls

# --- inside the box: the ACL is gone, and nothing leaves it all the same ------------------------------
check "break acl" lab break acl
drill_with "for r in 10.0.0.0/9 10.128.0.0/9 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 100.64.0.0/10; do
    ip route add unreachable \$r; done"
check "unreachable routes in the box are no wall" says c.private SUSPECT
drill_with "nft add table ip t; nft 'add chain ip t o { type filter hook output priority 0; }'
    nft 'add rule ip t o ip daddr { 10.0.0.0/9, 10.128.0.0/9, 172.16.0.0/12, 192.168.0.0/16, 169.254.0.0/16, 100.64.0.0/10 } ip daddr != 10.88.0.0/24 drop'"
check "an output hook in the box is no wall" says c.private SUSPECT
check "mend acl" lab mend acl

# --- walls on the host that reject ---------------------------------------------------------------------
rounds=1
[ "${BOXDRILL_FULL:-0}" = 0 ] || rounds=3
for round in $(seq "$rounds"); do
    for name in reject-reset reject-port reject-host reject-admin uplink nowhere; do
        check "break $name" lab break "$name"
        alone c.host c.private
        check "$name, round $round: exactly the cells written down" only_cells "$name"
        if [ "${BOXDRILL_FULL:-0}" = 1 ] || [ "$name" = reject-reset ] || [ "$name" = nowhere ]; then
            alone c.host c.private --no-witness
            check "$name, round $round, without the witness: exactly the cells written down" only_cells "blind-$name"
        fi
        check "mend $name" lab mend "$name"
    done
done

in_lab_sh 'nft -s list table inet box' >"$DIR/box.nft"
# resets RULE: the host's own rules reject TCP with a reset and UDP like a closed port, behind RULE.
resets() {
    nft_add "table inet walls { chain i { type filter hook input priority -10;
        iifname != boxnet accept; ct state established,related accept
        udp dport { 53, 67 } accept; ip daddr 10.88.0.1 tcp dport 53 accept
        $1
        meta l4proto tcp reject with tcp reset; meta l4proto udp reject; drop; }; }"
}
resets "tcp dport 22 accept"
in_lab nft delete table inet box
alone c.host
check "nor is a hole in it taken for it" says c.host FAIL
alone c.host --no-witness
check "and not without the witness" says c.host SUSPECT
in_lab nft delete table inet walls
nft_add "$(cat "$DIR/box.nft")"

# --- from the host its own firewall is the wall --------------------------------------------------------
nft_add "table inet walls { chain o { type filter hook output priority -10; udp sport { 53, 67 } accept
    oifname boxnet ct state new drop; }; }"
alone c.inbound
check "the host's own output hook is a wall" says c.inbound PASS
in_lab nft delete table inet walls

check "put back: all green" drill 0
check "nothing left" nothing_left
finish
