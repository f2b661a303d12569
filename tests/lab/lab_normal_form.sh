#!/bin/bash
# A drill leaves the host as it was, in the normal form; and the normal form sees what it should: beside
# each thing that it leaves out, a real change shows.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/lab/normal_form.sh
. "$(dirname "$0")/normal_form.sh"
lab_up test-normal-form
in_lab incus launch -q images:debian/13/cloud work -p box-net -c user.box=1 </dev/null
sleep 5

same() {
    normal_form >"$DIR/now"
    diff "$DIR/before" "$DIR/now" | head -n 20
    cmp -s "$DIR/before" "$DIR/now"
}
# seen TEXT DO UNDO: the change shows, and is gone when it is undone.
seen() {
    in_lab sh -c "$2" >/dev/null 2>&1 </dev/null
    check "seen: $1" differs
    in_lab sh -c "$3" >/dev/null 2>&1 </dev/null
    check "and its end: $1" same
}
differs() {
    normal_form >"$DIR/now"
    ! cmp -s "$DIR/before" "$DIR/now"
}

normal_form >"$DIR/before"
check "it has something of everything" [ "$(grep -c . "$DIR/before")" -gt 200 ]
check "unchanged is the same" same
seen "an instance's key" "incus config set work user.x=1" "incus config unset work user.x"
seen "an instance" "incus init images:debian/13/cloud x -p box-net" "incus delete -f x"
seen "a network's key" "incus network set boxnet user.x=1" "incus network unset boxnet user.x"
seen "a network" "incus network create xx ipv4.address=none ipv6.address=none" "incus network delete xx"
seen "an ACL's rule" "incus network acl rule add box-isolate egress action=drop destination=203.0.113.9/32" \
    "incus network acl rule remove box-isolate egress action=drop destination=203.0.113.9/32"
seen "a profile's key" "incus profile set box-net user.x=1" "incus profile unset box-net user.x"
seen "an nft rule" "nft add rule inet box input tcp dport 1 accept" \
    "nft -a list chain inet box input | sed -n 's/.*dport 1 accept # handle //p' | xargs nft delete rule inet box input handle"
seen "a link" "ip link add x type bridge" "ip link del x"
seen "a port's isolation" "for p in \$(ls /sys/class/net/boxnet/brif); do bridge link set dev \$p isolated off; done" \
    "for p in \$(ls /sys/class/net/boxnet/brif); do bridge link set dev \$p isolated on; done"
seen "a process" "setsid sleep 1234 >/dev/null 2>&1 & sleep 0.2" \
    "for f in /proc/[0-9]*/cmdline; do grep -qsa 1234 \$f && kill \$(echo \$f | cut -d/ -f3); done; sleep 0.2"
seen "a file of Incus's" "touch /var/lib/incus/x" "rm /var/lib/incus/x"
seen "recorded output" "mkdir -p /var/log/incus/x/exec-output; touch /var/log/incus/x/exec-output/y" "rm -r /var/log/incus/x"

check "a drill: exit 0" drill 0
sleep 1
check "a drill leaves the host as it was" same
in_lab bash -c 'boxdrill drill.lua --yes >/dev/null 2>&1 & sleep 4; kill -INT $!; wait $!' </dev/null
sleep 1
check "an interrupted drill leaves the host as it was" same
in_lab bash -c 'boxdrill drill.lua --yes >/dev/null 2>&1 & sleep 4; kill -9 $!' </dev/null
sleep 1
check "a killed drill does not" differs
in_lab boxdrill journal revert --yes >/dev/null 2>&1 </dev/null
sleep 1
check "but its revert does" same
finish
