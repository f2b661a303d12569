#!/bin/bash
# doctor.sh host|breaks|faults|mending: the doctor, on a healthy and a fresh host; for each fault exactly the checks of
# expected-doctor.txt turn, in less than thirty seconds, and it is clean again when the fault is mended.
# shellcheck disable=SC2016 # what stands in single quotes is expanded in the lab
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up "test-doctor-$1"

# doctor EXPECTED-STATUS ARG...: its report in $DIR/out; no longer than thirty seconds.
doctor() { as_root doctor_by "$@"; }
as_root() { BY=() && "$@"; }
doctor_by() {
    local expected=$1 status=0 start=$SECONDS
    shift
    in_lab timeout -k 5 60 ${BY[@]+"${BY[@]}"} boxdrill doctor.lua "$@" >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    if [ "$status" != "$expected" ] || [ "$((SECONDS - start))" -gt 30 ]; then
        echo "    status $status, expected $expected, $((SECONDS - start)) s"
        cat "$DIR/out" "$DIR/err"
        return 1
    fi
}

# The checks that are not clean, "ID=LETTER", sorted.
cells() {
    sed -nE 's/^(DIRTY|could not be asked|not set up yet|nothing to ask) +(h\.[a-z]+) .*/\2=\1/p' "$DIR/out" |
        sed 's/=DIRTY/=d/; s/=could.*/=u/; s/=not .*/=f/; s/=nothing.*/=n/' | sort
}
# are ROW: exactly the row's cells, and a word for every check of the installation.
are() {
    local row
    row=$(sed -nE "s/^$1( |\$)//p" "$HERE/expected-doctor.txt" | tr ' ' '\n' | grep . | sort)
    if [ "$(cells)" != "$row" ]; then
        echo "    expected: $(tr '\n' ' ' <<<"$row")"
        echo "    seen:     $(cells | tr '\n' ' ')"
        cat "$DIR/out"
        return 1
    fi
    [ "$(grep -cE '^(clean|DIRTY|could|not set|nothing).* h\.' "$DIR/out")" = \
      "$(in_lab sh -c 'ls /usr/local/share/boxdrill/probes | grep -c "^h[.]"')" ]
}
says() { grep -qE -- "$1" "$DIR/out" || { cat "$DIR/out" && return 1; }; }
# Every problem says why it matters, what mends it, and whether --fix does.
complete() {
    local problems
    problems=$(sed -nE 's/^([0-9]+) problems?\..*/\1/p' "$DIR/out")
    [ "$(grep -c '^    why ' "$DIR/out")" = "$problems" ] && [ "$(grep -c '^    mend ' "$DIR/out")" = "$problems" ] &&
        [ "$(grep -c '^    --fix ' "$DIR/out")" = "$problems" ]
}

# fault ROW STATUS MEND COMMAND...: on the broken host the row's cells; mended, all clean.
fault() {
    local row=$1 status=$2 mend=$3
    shift 3
    check "$row: broken" in_lab sh -c "$*"
    check "$row: exit $status" doctor "$status"
    check "$row: exactly the cells written down" are "$row"
    [ "$status" != 1 ] || check "$row: each problem is told whole" complete
    check "$row: mended" in_lab sh -c "$mend"
    check "$row, mended: exit 0" doctor 0
    check "$row, mended: all clean" are "${HOST:-boxes}"
}
setup='boxdrill setup.lua --yes --force >/dev/null'
# Nothing less than a real change makes Incus write its rules, and start dnsmasq, again.
again='incus network set boxnet ipv4.dhcp.expiry=61m && incus network unset boxnet ipv4.dhcp.expiry'
incusd='$(grep -lx incusd /proc/[0-9]*/comm | cut -d/ -f3)'

# Changes nothing on the host, and leaves nothing in a box.
state() {
    in_lab sh -c 'incus config show work; incus network show boxnet; incus profile show box-net; nft -s list ruleset
        incus exec work -n -T -- find / -xdev -newer /tmp/mark -not -path "/proc/*" -not -path "/run*" -not -path "/sys/*"
        find /var/lib/incus /var/log/incus -path "*exec-output/*" -type f; find /run -maxdepth 1 -name "boxdrill-*"' |
        grep -v -e last_used -e lastlog -e journal -e '^/var/log/'
}

without_boxes() {
    HOST=no-boxes
    check "no boxes: exit 0" doctor 0
    check "no boxes: exactly the cells written down" are no-boxes
    check "and says so" says '^Clean\. 17 checks in'
    fault renumbered 1 'incus network set boxnet ipv4.address=10.88.0.1/24' 'incus network set boxnet ipv4.address=10.77.0.1/24'
    HOST=
}

# Two boxes of an operator's, booted.
boxes() {
    in_lab sh -c 'for name in work peer; do
        incus launch -q images:debian/13/cloud $name -p box-net -c user.box=1 </dev/null
    done
    for name in work peer; do
        until incus exec $name -n -T -- systemctl is-system-running 2>/dev/null | grep -qE "running|degraded"; do sleep 0.2; done
    done'
}

healthy() {
    in_lab incus exec work -n -T -- touch /tmp/mark
    state >"$DIR/before"
    check "healthy: exit 0" doctor 0
    check "healthy: all clean" are boxes
    check "healthy, two boxes: under 2 s" fast
    state >"$DIR/after"
    check "healthy: nothing is changed, and nothing left" diff "$DIR/before" "$DIR/after"
    check "one check alone" doctor 0 h.ports
    check "a check that there is not: exit 2" doctor 2 h.nothing
    check "a probe that is no check: exit 2" doctor 2 c.host
    check "--json: exit 0" doctor 0 --json
    check "--json: a verdict for each, and the whole" json_is
    check "no drill runs a check" in_lab sh -c '! boxdrill drill.lua --only H --dry-run 2>/dev/null'
    check "list shows them" in_lab sh -c 'boxdrill list | grep -q "^h.ports "'
    check "a check is a probe like any" in_lab sh -c 'boxdrill run h.ports --yes | grep -q ^PASS'
}
# The best of three: other tests may be at work beside this one.
fast() { is_fast || { doctor 0 && is_fast; } || { doctor 0 && is_fast; }; }
is_fast() { sed -nE 's/.* checks in ([0-9.]+) s$/\1/p' "$DIR/out" | awk '{ exit !($1 < 2) }'; }
json_is() {
    jq -es 'all(type == "object") and (map(select(.type == "check" and .verdict == "clean")) | length == 17)
        and .[-1].type == "doctor" and .[-1].status == 0' "$DIR/out" >/dev/null
}

breaks() {
    local name
    for name in sibling acl host-input ingress dns-mode dnsmasq ipv6 no-egress; do
        check "break $name" lab break "$name"
        check "$name: exit 1" doctor 1
        check "$name: exactly the cells written down" are "$name"
        check "$name: each problem is told whole" complete
        check "mend $name" lab mend "$name"
        check "$name, mended: exit 0" doctor 0
    done
    check "mended: all clean" are boxes
}

called_clean() {
    fault drop-10 1 "$setup" 'incus network acl rule remove box-isolate egress destination=10.0.0.0/8'
    fault empty-chain 1 "$setup" 'nft flush chain bridge box forward'
    fault one-port 1 'for p in /sys/class/net/boxnet/brif/*; do echo 1 >$p/isolated; done' \
        'set -- /sys/class/net/boxnet/brif/*; echo 0 >$1/isolated'
}

daemon() {
    fault stopped 1 "kill -CONT $incusd" "kill -STOP $incusd"
    fault no-socket 1 'mv /var/lib/incus/away /var/lib/incus/unix.socket' 'mv /var/lib/incus/unix.socket /var/lib/incus/away'
    fault refused 1 'mv /var/lib/incus/away /var/lib/incus/unix.socket' 'mv /var/lib/incus/unix.socket /var/lib/incus/away
        perl -MIO::Socket::UNIX -e "IO::Socket::UNIX->new(Local => q(/var/lib/incus/unix.socket), Listen => 1) or exit 1"'
    fault no-client 1 'mv /usr/bin/incus.away /usr/bin/incus' 'mv /usr/bin/incus /usr/bin/incus.away'
    fault no-nft 3 'mv /usr/sbin/nft.away /usr/sbin/nft' 'mv /usr/sbin/nft /usr/sbin/nft.away'
    fault frozen 0 'incus resume work peer' 'incus pause work peer'
}

users() {
    BY=(setpriv --reuid 1234 --regid 1234 --clear-groups)
    check "nobody: exit 3" doctor_by 3
    check "nobody: exactly the cells written down" are nobody
    check "nobody: is told which group" says 'belongs to group incus-admin'
    BY=(setpriv --reuid 1234 --regid 1234 --groups "$(in_lab getent group incus | cut -d: -f3)")
    check "one of group incus: exit 3" doctor_by 3
    check "one of group incus: no blame" are nobody
    check "and nothing was made for it" in_lab sh -c '! incus project list -f csv | grep -q 1234'
    BY=(setpriv --reuid 1234 --regid 1234 --groups "$(in_lab getent group incus-admin | cut -d: -f3)")
    check "one of incus-admin: exit 3" doctor_by 3
    check "one of incus-admin: exactly the cells written down" are admin
    check "--fix is root's: exit 2" doctor_by 2 --fix
}

others() {
    fault tag 1 'incus delete bd-0123abcd-x' 'incus init -q images:debian/13/cloud bd-0123abcd-x -c user.boxdrill=0123abcd </dev/null'
    fault filtering 1 'incus profile device unset box-net eth0 security.mac_filtering' \
        'incus profile device set box-net eth0 security.mac_filtering=true'
    fault flushed 1 "$again && $setup" 'nft flush ruleset'
    fault port-53 1 "kill \$(cat /tmp/socat); sleep 0.3; $again" \
        'kill -KILL $(sed -n "s/^pid: //p" /var/lib/incus/networks/boxnet/dnsmasq.pid); sleep 0.3
        socat UDP-RECVFROM:53,bind=10.88.0.1,fork SYSTEM:true >/dev/null 2>&1 & echo $! >/tmp/socat; sleep 0.3'
    fault foreign-forward 1 'nft delete table ip filter' \
        'nft add table ip filter && nft "add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }"'
    fault no-forward 1 'echo 1 >/proc/sys/net/ipv4/ip_forward' 'echo 0 >/proc/sys/net/ipv4/ip_forward'
    fault squat 1 'ip address delete 203.0.113.1/32 dev lab-other' 'ip address add 203.0.113.1/32 dev lab-other'
    fault squat-route 1 'ip link delete squat' \
        'ip link add squat type bridge && ip link set squat up && ip address add 203.0.113.9/24 dev squat noprefixroute &&
        ip route add 203.0.113.0/24 dev squat metric 500'
    fault nesting 1 'incus config unset work security.nesting' 'incus config set work security.nesting=true'
    fault astray 1 'incus delete astray' 'incus init -q images:debian/13/cloud astray -c user.box=1 </dev/null &&
        incus config device add astray eth0 nic nictype=bridged parent=lab-other'
    fault second-nic 1 'incus config device remove work eth1' \
        'incus config device add work eth1 nic nictype=bridged parent=lab-other'
    fault internal 1 'incus network acl rule remove box-isolate egress action=drop destination=@internal && '"$setup" \
        'incus network set boxnet security.acls= && incus network acl rule add box-isolate egress action=drop destination=@internal'
    fault override 1 'incus config device remove work eth0; sleep 4' 'incus config device override work eth0; sleep 4'
}

pin() {
    check "unpinned: broken" in_lab sh -c 'cp /etc/resolv.conf /tmp/resolv; echo nameserver 100.100.100.100 >/etc/resolv.conf
        incus network set boxnet raw.dnsmasq=dhcp-ignore-names'
    check "unpinned: exit 1" doctor 1
    check "unpinned: exactly the cells written down" are unpinned
    check "unpinned: the tailnet's resolver is named" says '100\.100\.100\.100 \(in 100\.64\.0\.0/10\)'
    check "--pin-dns asks: exit 2 without an answer" doctor 2 --pin-dns
    check "--pin-dns: exit 0" doctor 0 --pin-dns --yes
    check "--pin-dns: all clean" are boxes
    in_lab cp /tmp/resolv /etc/resolv.conf
}

# A drill that stands still because incusd does, seen from a second terminal; then it is killed.
kill_drill() {
    in_lab timeout 90 bash -c 'boxdrill drill.lua --yes --only C >/tmp/out 2>&1 & drill=$!
        until grep -qE " bd-[0-9a-f]+-b 10" /tmp/out; do sleep 0.05; done
        kill -STOP '"$incusd"'; sleep 2.5
        boxdrill doctor.lua h.journal; boxdrill doctor.lua --stall
        kill -KILL $drill; wait $drill; kill -CONT '"$incusd" </dev/null >"$DIR/out" 2>/dev/null
}

fix() {
    kill_drill
    check "during a run: it is no leftover" says 'a run is in progress: process [0-9]+'
    check "--stall: what the run waits for" says '^ +[0-9.]+ s (instance|network)\.[a-z]+ of c\.'
    check "--stall: who is stopped" says 'incusd STOPPED'
    check "--stall: who holds the lock" says 'boxdrill/lock +held by process [0-9]+'
    check "--stall: who serves DNS" says 'udp 10.88.0.1: dnsmasq'
    check "left: exit 1" doctor 1
    check "left: exactly the cells written down" are left
    check "left: --fix mends it" says '^    --fix +mends it'
    check "--fix asks: exit 2 without an answer" doctor 2 --fix
    check "--fix: exit 0" doctor 0 --fix --yes
    check "--fix: all clean" are boxes
    check "--fix: nothing is left" nothing_left
    check "--fix again changes nothing" doctor 0 --fix --yes
    fault damaged 1 'rm /var/lib/boxdrill/journal' 'echo nonsense >/var/lib/boxdrill/journal'
    check "an operator's box is as it was" in_lab sh -c 'incus list -f csv -c ns | grep -q work,RUNNING'
}

# In a user namespace of its own with all the machine's users in it, whose limit nobody else feels. (The lab's /proc/sys
# is read-only.)
inotify() {
    in_lab timeout 60 bash -c 'unshare --user sleep 60 & pid=$!; sleep 0.3
        echo "0 0 4294967295" >/proc/$pid/uid_map; echo "0 0 4294967295" >/proc/$pid/gid_map
        nsenter -U -t $pid sh -c "echo 10 >/dev/.lxc/proc/sys/user/max_inotify_instances; exec boxdrill doctor.lua h.limits"
        status=$?; kill $pid; exit $status' </dev/null >"$DIR/out" 2>&1
    check "inotify used up: exit 1" [ $? = 1 ]
    check "inotify used up: says how many are left" says '10 inotify instances are left'
}

fresh() {
    in_lab sh -c 'incus delete -f work peer; incus profile delete box-net; incus network delete boxnet
        incus network acl delete box-isolate; nft delete table inet box; nft delete table bridge box'
    HOST=fresh
    check "fresh: exit 0" doctor 0
    check "fresh: exactly the cells written down" are fresh
    check "fresh: and says so" says '^Not set up yet: a fresh host'
    fault no-incus 0 'mv /usr/bin/incus.away /usr/bin/incus; mv /usr/libexec/incus/away /usr/libexec/incus/incusd
        mv /var/lib/incus/away /var/lib/incus/unix.socket' \
        'mv /usr/bin/incus /usr/bin/incus.away; mv /usr/libexec/incus/incusd /usr/libexec/incus/away
        mv /var/lib/incus/unix.socket /var/lib/incus/away'
    check "half set up" in_lab sh -c 'incus network acl create box-isolate </dev/null'
    check "half set up: exit 1" doctor 1
    check "half set up: exactly the cells written down" are half
    check "setup.lua mends it" in_lab sh -c "$setup"
    check "set up: exit 0" doctor 0
    check "set up: exactly the cells written down" are no-boxes
}

case $1 in
host) without_boxes; boxes; healthy; users; inotify; fresh ;;
breaks) boxes; breaks; daemon ;;
faults) boxes; called_clean; others ;;
mending) boxes; pin; fix ;;
esac
finish
