#!/bin/bash
# The guest program against real networks: namespaces with a router that rejects, drops and routes
# in every way a box may meet, each fact asserted as it is reported.
#
# usage: test_guest.sh PATH-TO-boxdrill-guest      (root)
#
# Runs in mount, network and pid namespaces of its own: no packet leaves them, and nothing is left
# behind whatever happens to it.
#
#   box a            router r                        target t
#   10.9.0.5/24 ---- 10.9.0.1/24  10.9.1.1/24 ------ 10.9.1.7/24 (and .2 to .6)
#   fd09::5/64       fd09::1/64   fd09:1::1/64       fd09:1::7/64
set -u

guest=$(readlink -f "${1:?usage: test_guest.sh PATH-TO-boxdrill-guest}")
if [ "${2:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo "test_guest: needs root" >&2; exit 77; }
    for tool in ip nft unshare; do
        command -v $tool >/dev/null || { echo "test_guest: needs $tool" >&2; exit 1; }
    done
    exec unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" "$guest" inside
fi

nonce=0123456789abcdef
token=feedfacefeedface
failures=0
checks=0
out=

mount -t tmpfs tmpfs /run || exit 1

fail() {
    failures=$((failures + 1))
    echo "FAIL: $*"
    echo "    | ${out//$'\n'/$'\n'    | }"
}

# run NS ARG...: an attempt in a namespace; its output must be complete.
run() {
    local ns=$1 count
    shift
    out=$(ip netns exec "$ns" "$guest" attempt nonce=$nonce "$@" 2>&1)
    count=$(grep -c "^$nonce n=" <<<"$out")
    checks=$((checks + 1))
    [ "$(tail -n 1 <<<"$out")" = "$nonce end=$count" ] || fail "no end line: $*"
    if grep -vq "^$nonce " <<<"$out"; then fail "a line without the nonce: $*"; fi
}

# expect N PATTERN: line n=N matches the whole extended regular expression after its n.
expect() {
    local line
    checks=$((checks + 1))
    line=$(grep "^$nonce n=$1 " <<<"$out")
    [[ ${line#"$nonce n=$1 "} =~ ^$2$ ]] || fail "n=$1 is not $2"
}

# within N LOW HIGH: line n=N took so many whole milliseconds.
within() {
    local ms
    checks=$((checks + 1))
    ms=$(sed -n "s/^$nonce n=$1 .* ms=\([0-9]*\)\.[0-9]* \?.*/\1/p" <<<"$out")
    if [ -z "$ms" ] || [ "$ms" -lt "$2" ] || [ "$ms" -gt "$3" ]; then
        fail "n=$1 took $ms ms, not $2..$3"
    fi
}

ms='ms=[0-9]+\.[0-9]{3}'
frames='frames=[0-9]+( frames-seen=[^ ]+)?'
v4='local=10\.9\.0\.5:[0-9]+'
v6='local=\[fd09::5\]:[0-9]+'

set_up() {
    for ns in a r t; do
        ip netns add $ns
        ip netns exec $ns sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
        ip -n $ns link set lo up
    done
    ip -n r link add eth0 type veth peer name eth0 netns a
    ip -n r link add eth1 type veth peer name eth0 netns t
    ip -n a link set eth0 up; ip -n r link set eth0 up
    ip -n r link set eth1 up; ip -n t link set eth0 up
    ip -n a address add 10.9.0.5/24 dev eth0; ip -n a address add fd09::5/64 dev eth0 nodad
    ip -n a address add fe80::a/64 dev eth0 nodad; ip -n r address add fe80::1/64 dev eth0 nodad
    ip -n r address add 10.9.0.1/24 dev eth0; ip -n r address add fd09::1/64 dev eth0 nodad
    ip -n r address add 10.9.1.1/24 dev eth1; ip -n r address add fd09:1::1/64 dev eth1 nodad
    for i in 2 3 4 5 6 7; do
        ip -n t address add 10.9.1.$i/24 dev eth0; ip -n t address add fd09:1::$i/64 dev eth0 nodad
    done
    ip -n a route add 10.9.1.0/24 via 10.9.0.1; ip -n a route add fd09:1::/64 via fd09::1
    ip -n t route add 10.9.0.0/24 via 10.9.1.1; ip -n t route add fd09::/64 via fd09:1::1
    ip -n a route add prohibit 10.9.2.0/24; ip -n a route add blackhole 10.9.3.0/24
    # The facts are asked for side by side; a kernel sends only so many ICMP errors a second.
    ip netns exec r sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
        net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0
    ip netns exec t sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0
    ip netns exec r nft -f - <<'NFT'
table inet f {
    chain forward {
        type filter hook forward priority 0;
        tcp dport 7001 reject with tcp reset
        meta l4proto { tcp, udp } th dport 7002 meta nfproto ipv4 reject with icmp type admin-prohibited
        meta l4proto { tcp, udp } th dport 7003 meta nfproto ipv4 reject with icmp type host-unreachable
        meta l4proto { tcp, udp } th dport 7004 meta nfproto ipv4 reject with icmp type port-unreachable
        meta l4proto { tcp, udp } th dport 7002 meta nfproto ipv6 reject with icmpv6 type admin-prohibited
        meta l4proto { tcp, udp } th dport 7003 meta nfproto ipv6 reject with icmpv6 type addr-unreachable
        meta l4proto { tcp, udp } th dport 7004 meta nfproto ipv6 reject with icmpv6 type port-unreachable
        meta l4proto { tcp, udp } th dport 7006 meta nfproto ipv6 reject with icmpv6 type no-route
        meta l4proto { tcp, udp } th dport 7005 drop
        ip protocol icmp ip daddr 10.9.1.2 reject with icmp type admin-prohibited
        ip protocol icmp ip daddr 10.9.1.3 reject with icmp type host-unreachable
        ip protocol icmp ip daddr 10.9.1.4 reject with icmp type port-unreachable
        ip protocol icmp ip daddr 10.9.1.5 drop
        icmpv6 type echo-request ip6 daddr fd09:1::2 reject with icmpv6 type admin-prohibited
        icmpv6 type echo-request ip6 daddr fd09:1::5 drop
    }
}
NFT
    ip netns exec a nft -f - <<'NFT'
table inet f {
    chain output {
        type filter hook output priority 0;
        meta l4proto { tcp, udp } th dport 7100 drop
        ip protocol icmp ip daddr 10.9.1.6 drop
    }
}
NFT
}

# The target's listener runs for as long as a test needs it, and is asked whether it is up.
listen_on_target() {
    ip netns exec t "$guest" attempt nonce=$nonce "proto=listen,port=80,ms=60000,token=$token${1:-}" \
        >/run/listen.out &
    listener=$!
    run t "proto=await,port=80,token=$token,ms=5000,to=${2:-127.0.0.1}"
    expect 1 "proto=await result=ready $ms"
}

stop_on_target() {
    run t "proto=stop,port=80,token=$token,to=${1:-127.0.0.1}"
    expect 1 "proto=stop result=stopped $ms"
    wait "$listener"
    out=$(cat /run/listen.out)
}

test_tcp() {
    local p=proto=tcp,to=10.9.1.7,ms=800
    listen_on_target
    run a $p,port=80 $p,port=81 $p,port=7001 $p,port=7002 $p,port=7003 $p,port=7004 $p,port=7005 \
        $p,port=80,send=68656c6c6f,recv=5 $p,port=80,send=6869 $p,port=80,recv=9 \
        $p,port=80,from=10.9.0.5 $p,port=7100 $p,port=80,ttl=1 \
        $p,port=80,send=0003414243,recv=99,framed=1 $p,port=80,send=0004414243,recv=99,framed=1
    expect 14 "proto=tcp result=connected $ms $v4 read=full read-$ms bytes=5 data=0003414243"
    within 14 0 400
    expect 15 "proto=tcp result=connected $ms $v4 read=timeout read-$ms bytes=5 data=0004414243"
    expect 1 "proto=tcp result=connected $ms $v4"
    expect 2 "proto=tcp result=error call=async errno=ECONNREFUSED errnum=111 $ms $v4"
    expect 3 "proto=tcp result=error call=async errno=ECONNREFUSED errnum=111 $ms $v4"
    expect 4 "proto=tcp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/13 from=10.9.0.1 origin=icmp $v4"
    expect 5 "proto=tcp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.1 origin=icmp $v4"
    expect 6 "proto=tcp result=error call=async errno=ECONNREFUSED errnum=111 $ms icmp=3/3 from=10.9.0.1 origin=icmp $v4"
    expect 7 "proto=tcp result=timeout $ms $v4"
    within 7 800 1500
    expect 8 "proto=tcp result=connected $ms $v4 read=full read-$ms bytes=5 data=68656c6c6f"
    expect 9 "proto=tcp result=connected $ms $v4 read=full read-$ms bytes=0"
    expect 10 "proto=tcp result=connected $ms $v4 read=timeout read-$ms bytes=0"
    within 10 0 700
    expect 11 "proto=tcp result=connected $ms $v4"
    expect 12 "proto=tcp result=timeout $ms $v4"
    expect 13 "proto=tcp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=11/0 from=10.9.0.1 origin=icmp $v4"
    for i in 1 2 3 4 5 6; do within $i 0 700; done
    stop_on_target
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=7 tcp=7 udp=0 seen=(tcp:10\.9\.0\.5:[0-9]+;?){7} $frames"
}

test_udp() {
    local p=proto=udp,to=10.9.1.7,ms=600
    listen_on_target
    run a $p,port=80 $p,port=81 $p,port=7002 $p,port=7003 $p,port=7004 $p,port=7005 \
        $p,port=80,send=00ff,recv=1 $p,port=80,recv=0 $p,port=7100 $p,port=80,from=10.9.0.5
    expect 1 "proto=udp result=reply $ms $v4 bytes=9 data=626f786472696c6c0a"
    expect 2 "proto=udp result=error call=async errno=ECONNREFUSED errnum=111 $ms icmp=3/3 from=10.9.1.7 origin=icmp $v4"
    expect 3 "proto=udp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/13 from=10.9.0.1 origin=icmp $v4"
    expect 4 "proto=udp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.1 origin=icmp $v4"
    expect 5 "proto=udp result=error call=async errno=ECONNREFUSED errnum=111 $ms icmp=3/3 from=10.9.0.1 origin=icmp $v4"
    expect 6 "proto=udp result=timeout $ms $v4"
    within 6 600 1200
    expect 7 "proto=udp result=reply $ms $v4 bytes=2 data=00"
    expect 8 "proto=udp result=reply $ms $v4 bytes=9"
    expect 9 "proto=udp result=error call=send errno=EPERM errnum=1 $ms $v4"
    expect 10 "proto=udp result=reply $ms $v4 bytes=9 .*"
    stop_on_target
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=4 tcp=0 udp=4 seen=(udp:10\.9\.0\.5:[0-9]+;?){4} $frames"
}

test_icmp() {
    local p=proto=icmp,ms=600
    run a $p,to=10.9.1.7 $p,to=10.9.1.2 $p,to=10.9.1.3 $p,to=10.9.1.4 $p,to=10.9.1.5 $p,to=10.9.1.6 \
        $p,to=10.9.1.7,ttl=1 $p,to=10.9.1.7,from=10.9.0.5 $p,to=127.0.0.1 $p,to=10.9.2.1 $p,to=fd09:1::7 \
        $p,to=fd09:1::2 $p,to=fd09:1::5 $p,to=fe80::1%eth0 $p,to=10.9.1.7,ttl=1
    expect 1 "proto=icmp result=reply $ms $v4 bytes=16"
    expect 2 "proto=icmp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/13 from=10.9.0.1 origin=icmp $v4"
    expect 3 "proto=icmp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.1 origin=icmp $v4"
    expect 4 "proto=icmp result=error call=async errno=ECONNREFUSED errnum=111 $ms icmp=3/3 from=10.9.0.1 origin=icmp $v4"
    expect 5 "proto=icmp result=timeout $ms $v4"
    expect 6 "proto=icmp result=error call=send errno=EPERM errnum=1 $ms $v4"
    expect 7 "proto=icmp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=11/0 from=10.9.0.1 origin=icmp $v4"
    expect 8 "proto=icmp result=reply $ms $v4 bytes=16"
    expect 9 "proto=icmp result=reply $ms local=127.0.0.1:[0-9]+ bytes=16"
    expect 10 "proto=icmp result=error call=connect errno=EACCES errnum=13 $ms.*"
    expect 11 "proto=icmp result=reply $ms $v6 bytes=16"
    expect 12 "proto=icmp result=error call=async errno=EACCES errnum=13 $ms icmp=1/1 from=fd09::1 origin=icmp6 $v6"
    expect 13 "proto=icmp result=timeout $ms $v6"
    expect 14 "proto=icmp result=reply $ms local=\[fe80::[^]]*%eth0\]:[0-9]+ bytes=16"
    expect 15 "proto=icmp result=error .* icmp=11/0 .*"
}

test_ipv6() {
    local t=proto=tcp,to=fd09:1::7,ms=600 u=proto=udp,to=fd09:1::7,ms=600
    listen_on_target
    run a $t,port=80 $t,port=81 $t,port=7001 $t,port=7002 $t,port=7003 $t,port=7004 $t,port=7005 \
        $t,port=7006 $u,port=80 $u,port=81 $u,port=7002 $u,port=7003 proto=tcp,to=fe80::1%eth0,port=81,ms=600 \
        proto=tcp,to=fd77::1,port=80,ms=600 proto=tcp,to=fe80::1%nolink,port=81,ms=600
    expect 1 "proto=tcp result=connected $ms $v6"
    expect 2 "proto=tcp result=error call=async errno=ECONNREFUSED errnum=111 $ms $v6"
    expect 3 "proto=tcp result=error call=async errno=ECONNREFUSED errnum=111 $ms $v6"
    expect 4 "proto=tcp result=error call=async errno=EACCES errnum=13 $ms icmp=1/1 from=fd09::1 origin=icmp6 $v6"
    expect 5 "proto=tcp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=1/3 from=fd09::1 origin=icmp6 $v6"
    expect 6 "proto=tcp result=error call=async errno=ECONNREFUSED errnum=111 $ms icmp=1/4 from=fd09::1 origin=icmp6 $v6"
    expect 7 "proto=tcp result=timeout $ms $v6"
    expect 8 "proto=tcp result=error call=async errno=ENETUNREACH errnum=101 $ms icmp=1/0 from=fd09::1 origin=icmp6 $v6"
    expect 9 "proto=udp result=reply $ms $v6 bytes=9 .*"
    expect 10 "proto=udp result=error call=async errno=ECONNREFUSED errnum=111 $ms icmp=1/4 from=fd09:1::7 origin=icmp6 $v6"
    expect 11 "proto=udp result=error call=async errno=EACCES errnum=13 $ms icmp=1/1 from=fd09::1 origin=icmp6 $v6"
    expect 12 "proto=udp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=1/3 from=fd09::1 origin=icmp6 $v6"
    expect 13 "proto=tcp result=error call=async errno=ECONNREFUSED errnum=111 $ms local=\[fe80::[^]]*%eth0\]:[0-9]+"
    expect 14 "proto=tcp result=error call=connect errno=ENETUNREACH errnum=101 $ms.*"
    expect 15 "proto=tcp result=failed call=scope errno=ENODEV errnum=19 $ms"
    stop_on_target
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=2 tcp=1 udp=1 seen=tcp:\[fd09::5\]:[0-9]+;udp:\[fd09::5\]:[0-9]+ $frames"
}

# Nobody answers ARP or ND: on the own link the own kernel says so, behind the router the router.
# Then the entry has failed already and the answer may come sooner.
test_nobody() {
    run a proto=tcp,to=10.9.0.99,port=80,ms=5000 proto=udp,to=10.9.0.98,port=80,ms=5000 \
        proto=icmp,to=10.9.0.97,ms=5000 proto=tcp,to=10.9.1.99,port=80,ms=5000 \
        proto=udp,to=10.9.1.98,port=80,ms=5000 proto=tcp,to=fd09::99,port=80,ms=5000 \
        proto=udp,to=fd09::98,port=80,ms=5000 proto=icmp,to=fd09::97,ms=5000
    expect 1 "proto=tcp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.5 origin=icmp $v4"
    expect 2 "proto=udp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.5 origin=icmp $v4"
    expect 3 "proto=icmp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.5 origin=icmp $v4"
    expect 4 "proto=tcp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.1 origin=icmp $v4"
    expect 5 "proto=udp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=3/1 from=10.9.0.1 origin=icmp $v4"
    expect 6 "proto=tcp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=1/3 from=fd09::5 origin=icmp6 $v6"
    expect 7 "proto=udp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=1/3 from=fd09::5 origin=icmp6 $v6"
    expect 8 "proto=icmp result=error call=async errno=EHOSTUNREACH errnum=113 $ms icmp=1/3 from=fd09::5 origin=icmp6 $v6"
    for i in 1 2 3 4 5 6 7 8; do within $i 2000 4500; done
}

test_no_route() {
    run a proto=tcp,to=192.0.2.1,port=80,ms=500 proto=udp,to=192.0.2.1,port=80,ms=500 \
        proto=icmp,to=192.0.2.1,ms=500 proto=tcp,to=10.9.2.1,port=80,ms=500 proto=udp,to=10.9.3.1,port=80,ms=500
    for i in 1 2 3; do
        expect $i "proto=(tcp|udp|icmp) result=error call=connect errno=ENETUNREACH errnum=101 $ms.*"
        within $i 0 100
    done
    expect 4 "proto=tcp result=error call=connect errno=EACCES errnum=13 $ms"
    expect 5 "proto=udp result=error call=connect errno=EINVAL errnum=22 $ms"
    # A route, but not the router's. Its kernel says so once a second to each source, and not by
    # the limits that the set-up lifts (ip_error() in net/ipv4/route.c).
    ip -n a route add default via 10.9.0.1
    for i in tcp,port=80 udp,port=80 icmp; do
        sleep 1.2
        run a proto=$i,to=192.0.2.1,ms=500
        expect 1 "proto=(tcp|udp|icmp) result=error call=async errno=ENETUNREACH errnum=101 $ms icmp=3/0 from=10.9.0.1 origin=icmp $v4"
    done
    ip -n a route del default
}

# What is the instrument's own fault is no outcome.
test_failed() {
    run a proto=tcp,to=10.9.1.7,port=80,ms=500,from=10.9.0.6 proto=udp,to=10.9.1.7,port=80,ms=500,from=10.9.0.6 \
        proto=icmp,to=10.9.1.7,ms=500,from=10.9.0.6
    for i in 1 2 3; do
        expect $i "proto=(tcp|udp|icmp) result=failed call=bind errno=EADDRNOTAVAIL errnum=99 $ms"
    done
    out=$(ip netns exec a bash -c "exec 3>&-; ulimit -n 4; exec $guest attempt nonce=$nonce proto=tcp,to=10.9.1.7,port=80,ms=500")
    expect 1 "proto=tcp result=failed call=socket errno=EMFILE errnum=24 $ms"
    out=$(ip netns exec a setpriv --bounding-set -net_raw --inh-caps -net_raw \
        "$guest" attempt nonce=$nonce proto=icmp,to=10.9.1.7,ms=500)
    expect 1 "proto=icmp result=failed call=socket errno=EPERM errnum=1 $ms"
}

test_listen_bound() {
    listen_on_target ,bind=10.9.1.3 10.9.1.3
    # the port is ours already; another address of it is not
    run t proto=listen,port=80,ms=100,token=$token,bind=10.9.1.3 -- \
        proto=listen,port=80,ms=100,token=$token,bind=10.9.1.4 -- proto=listen,port=80,ms=100,token=$token
    expect 1 "proto=listen result=failed call=tcp-bind errno=EADDRINUSE errnum=98 $ms"
    expect 2 "proto=listen result=listened $ms stopped=0 arrivals=0 tcp=0 udp=0 $frames"
    within 2 100 600
    expect 3 "proto=listen result=failed call=tcp-bind errno=EADDRINUSE errnum=98 $ms"
    run a proto=udp,to=10.9.1.3,port=80,ms=500 proto=udp,to=10.9.1.7,port=80,ms=500 proto=tcp,to=10.9.1.3,port=80,ms=500
    expect 1 "proto=udp result=reply .*"
    expect 2 "proto=udp result=error .* errno=ECONNREFUSED .*"
    expect 3 "proto=tcp result=connected .*"
    run a proto=await,port=80,token=$token,ms=300,to=10.9.1.3
    expect 1 "proto=await result=failed call=bind errno=EADDRNOTAVAIL errnum=99 $ms"
    run t proto=stop,port=80,token=$token -- proto=stop,port=80,token=deadbeefdeadbeef,to=10.9.1.3,ms=200
    expect 1 "proto=stop result=error call=async errno=ECONNREFUSED errnum=111 $ms"
    expect 2 "proto=stop result=timeout $ms"
    # from outside, its words are just a datagram that came
    run a "proto=udp,to=10.9.1.3,port=80,ms=300,send=$(printf 'boxdrill-stop 0000000000000000 %s' $token |
        od -An -tx1 | tr -d ' \n')"
    expect 1 "proto=udp result=reply .*"
    stop_on_target 10.9.1.3
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=3 tcp=1 udp=2 .*"
}

# came KIND:ADDR@MAC...: exactly these senders are in the listener's frames-seen, in any order and number.
came() {
    local seen
    checks=$((checks + 1))
    seen=$(sed -n 's/.* frames-seen=\([^ ]*\).*/\1/p' <<<"$out" | tr ';' '\n' | sed 's/\*[0-9]*$//' | sort)
    [ "$seen" = "$(printf '%s\n' "$@" | sort)" ] || fail "frames-seen is not $*"
}

mac_of() { ip netns exec "$1" cat "/sys/class/net/$2/address"; }

# A firewall of the box's own hides what came from its sockets, not from its link: what others send
# to the port, echo requests, and who asks for the address. Nothing else, and nothing of its own.
test_frames() {
    local router p=10.9.1.7 q=fd09:1::7
    router=$(mac_of r eth1)
    ip netns exec t nft -f - <<'NFT'
table inet guest {
    chain input { type filter hook input priority 0; policy drop; iif lo accept; ct state established,related accept; }
}
NFT
    listen_on_target ,bind=$p $p
    ip -n r neigh flush dev eth1
    run a proto=tcp,to=$p,port=80,ms=1500 proto=udp,to=$p,port=80,ms=300 proto=icmp,to=$p,ms=300 \
        proto=tcp,to=10.9.1.6,port=81,ms=300 proto=udp,to=$p,port=81,ms=300
    for i in 1 2 3 4 5; do expect $i "proto=(tcp|udp|icmp) result=timeout $ms.*"; done
    run t proto=icmp,to=10.9.1.1,ms=500 proto=udp,to=10.9.1.1,port=80,ms=300 proto=tcp,to=$p,port=80,ms=300
    stop_on_target $p
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=1 tcp=1 udp=0 seen=tcp:10\.9\.1\.[27]:[0-9]+ $frames"
    came "arp:10.9.1.1@$router" "tcp:10.9.0.5@$router" "udp:10.9.0.5@$router" "icmp:10.9.0.5@$router"

    listen_on_target
    ip netns exec t nft add rule inet guest input icmpv6 type '{ nd-neighbor-solicit, nd-neighbor-advert }' accept
    ip -n r neigh flush dev eth1
    run a proto=tcp,to=$q,port=80,ms=1500 proto=udp,to=$q,port=80,ms=300 proto=icmp,to=$q,ms=300 \
        proto=tcp,to=$q,port=81,ms=300
    stop_on_target
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=0 tcp=0 udp=0 $frames"
    came "tcp:fd09::5@$router" "udp:fd09::5@$router" "icmp:fd09::5@$router" \
        "nd:$(ip -n r -6 -o address show dev eth1 scope link | sed 's/.*inet6 \([^/]*\).*/\1/')@$router"
    ip netns exec t nft delete table inet guest
}

# More senders than fit are counted; who may not watch says so.
test_frames_bounds() {
    local specs=() i
    listen_on_target
    for i in $(seq 100 199); do
        ip -n a address add "10.9.0.$i/24" dev eth0
        specs+=("proto=udp,to=10.9.1.7,port=80,ms=300,from=10.9.0.$i")
    done
    run a "${specs[@]}"
    for i in $(seq 100 199); do ip -n a address del "10.9.0.$i/24" dev eth0; done
    stop_on_target
    expect 1 "proto=listen result=listened .* frames=10[0-9] frames-seen=([^; ]+;?){64} frames-more=3[6-9]"
    out=$(ip netns exec t setpriv --bounding-set -net_raw --inh-caps -net_raw \
        "$guest" attempt nonce=$nonce proto=listen,port=80,ms=100,token=$token)
    expect 1 "proto=listen result=listened $ms stopped=0 arrivals=0 tcp=0 udp=0 frames-errno=EPERM"
}

hex() { od -An -v -tx1 | tr -d ' \n'; }

# Raw frames, and a listener that is told their mark: which of them came, from which MAC, before its own
# firewall; not those of another mark; and whatever else reaches the link, from others only.
test_marked() {
    local mac router m=a1b2c3d4e5f60718 magic i spec=() to
    mac=$(mac_of a eth0 | tr -d :) router=$(mac_of r eth0 | tr -d :) magic=$(printf bd-frame | hex)
    local kept=proto=frame,link=eth0,ms=400,send=${router}${mac}88b6$magic${m}09
    ip netns exec r nft -f - <<'NFT'
table netdev guest { chain in { type filter hook ingress device eth0 priority 0; policy drop; }; }
NFT
    ip netns exec r "$guest" attempt nonce=$nonce \
        "proto=listen,port=80,ms=60000,token=$token,link=eth0,mark=$m" >/run/listen.out &
    listener=$!
    run r "proto=await,port=80,token=$token,ms=5000"
    i=0
    # to the router, to all, to two groups (nobody is in the second), with a VLAN tag; and of another mark
    for to in $router ffffffffffff 01005e000001 01005e7f1234; do
        i=$((i + 1))
        spec+=("proto=frame,link=eth0,ms=400,send=$to${mac}88b5$(printf 'xyz' | hex)$magic${m}0$i")
    done
    run a "${spec[@]}" "proto=frame,link=eth0,ms=400,send=${router}020000000099810000050800$magic${m}ff" \
        "proto=frame,link=eth0,ms=400,send=${router}${mac}88b5${magic}ffffffffffffffff01" \
        "proto=frame,link=eth0,ms=400,send=${router}${mac}88b5${magic}" proto=icmp,to=10.9.0.1,ms=100
    for i in 1 2 3 4 5 6 7; do expect $i "proto=frame result=sent $ms frames=2 left=2"; done
    expect 8 "proto=icmp result=timeout .*"
    ip netns exec r "$guest" attempt nonce=$nonce "proto=stop,port=80,token=$token" >/run/stop.out
    wait "$listener"
    out=$(cat /run/listen.out)
    mac=$(mac_of a eth0)
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=0 tcp=0 udp=0 watched=[0-9]+ marked=1@$mac\*2;2@$mac\*2;3@$mac\*2;4@$mac\*2;255@02:00:00:00:00:99\*2 frames=[0-9]+ frames-seen=[^ ]*"
    checks=$((checks + 1))
    [[ $out == *"other:?@$mac*2"* && $out == *"icmp:10.9.0.5@$mac"* && $out != *"@$(mac_of r eth0)"* ]] ||
        fail "what was not marked: two frames of no kind, a ping, none of its own"
    ip netns exec r nft delete table netdev guest
    # what does not leave the box is not sent, and is no failure of the system's either
    ip netns exec a nft -f - <<'NFT'
table netdev guest { chain out { type filter hook egress device eth0 priority 0; ether type 0x88b6 drop; }; }
NFT
    run a "$kept" "proto=frame,link=nolink,ms=100,send=${router}02000000009988b6"
    ip netns exec a nft delete table netdev guest
    expect 1 "proto=frame result=error call=send errno=EPERM errnum=1 $ms frames=0 left=0"
    expect 2 "proto=frame result=failed call=scope errno=ENODEV errnum=19 $ms"
    run r "proto=listen,port=80,ms=100,token=$token,link=nolink,mark=$m"
    expect 1 "proto=listen result=listened $ms stopped=0 arrivals=0 tcp=0 udp=0 frames-errno=ENODEV"
}

# The reply to a datagram comes from the address it was sent to, though another would be routed.
test_reply_address() {
    listen_on_target
    run a proto=udp,to=10.9.1.4,port=80,ms=500 proto=udp,to=fd09:1::4,port=80,ms=500
    expect 1 "proto=udp result=reply .*"
    expect 2 "proto=udp result=reply .*"
    stop_on_target
}

# A box whose IPv6 is switched off still has a listener on every address it holds.
test_no_ipv6() {
    ip netns exec t sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    listen_on_target
    run a proto=udp,to=10.9.1.4,port=80,ms=500
    expect 1 "proto=udp result=reply .*"
    run t proto=tcp,to=fd09::5,port=80,ms=500 proto=icmp,to=::1,ms=500
    for i in 1 2; do
        expect $i "proto=(tcp|icmp) result=failed call=connect errno=EADDRNOTAVAIL errnum=99 $ms"
    done
    stop_on_target
    ip netns exec t sysctl -qw net.ipv6.conf.all.disable_ipv6=0
    for i in 2 3 4 5 6 7; do ip -n t address add fd09:1::$i/64 dev eth0 nodad; done
    ip -n t route add fd09::/64 via fd09:1::1
}

# A connect to a free local port may meet itself: simultaneous open, and nobody there.
test_self_connect() {
    ip netns exec a sysctl -qw net.ipv4.ip_local_port_range="40000 40001"
    run a proto=tcp,to=127.0.0.1,port=40000,ms=500 proto=tcp,to=127.0.0.1,port=40001,ms=500
    ip netns exec a sysctl -qw net.ipv4.ip_local_port_range="32768 60999"
    for i in 1 2; do
        expect $i "proto=tcp result=(failed call=connect errno=EADDRINUSE|error call=async errno=ECONNREFUSED) .*"
    done
    checks=$((checks + 1))
    grep -q EADDRINUSE <<<"$out" || fail "none met itself: the test tests nothing"
}

test_await() {
    run t proto=await,port=80,token=$token,ms=200
    expect 1 "proto=await result=timeout call=async errno=ECONNREFUSED errnum=111 $ms"
    within 1 200 700
    # one that holds the port with another token, one that merely echoes, one that is silent
    run t proto=listen,port=80,ms=500,token=deadbeefdeadbeef proto=await,port=80,token=$token,ms=300
    expect 2 "proto=await result=timeout $ms other=1"
    run t proto=listen,port=80,ms=4000,token=$token proto=await,port=80,token=$token,ms=3000 \
        proto=stop,port=80,token=$token,ms=3000
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=0 tcp=0 udp=0 $frames"
    expect 3 "proto=stop result=stopped $ms"
}

# One run: a control, the listener, a control again; a sibling reaches it in between.
test_stages() {
    ip netns exec t "$guest" attempt nonce=$nonce proto=icmp,to=10.9.1.1,ms=1000 -- \
        proto=listen,port=8088,ms=20000,token=$token,bind=10.9.1.7 -- proto=icmp,to=10.9.1.1,ms=1000 >/run/stages.out &
    local pid=$!
    run t proto=await,port=8088,token=$token,ms=5000,to=10.9.1.7 -- proto=tcp,to=10.9.1.7,port=8088,ms=500
    expect 1 "proto=await result=ready $ms"
    run a proto=udp,to=10.9.1.7,port=8088,ms=500
    expect 1 "proto=udp result=reply .*"
    run t proto=stop,port=8088,token=$token,to=10.9.1.7
    wait $pid
    out=$(cat /run/stages.out)
    expect 1 "proto=icmp result=reply .*"
    expect 2 "proto=listen result=listened $ms stopped=1 arrivals=2 tcp=1 udp=1 seen=tcp:10\.9\.1\.[27]:[0-9]+;udp:10\.9\.0\.5:[0-9]+ $frames"
    expect 3 "proto=icmp result=reply .*"
    checks=$((checks + 1))
    [ "$(sed "s/^$nonce //; s/ .*//" <<<"$out" | tr '\n' ' ')" = "stage=1 n=1 stage=2 n=2 stage=3 n=3 end=3 " ] ||
        fail "the order of the lines"
}

test_hundreds() {
    local specs=() i
    for i in $(seq 300); do
        specs+=("proto=tcp,to=10.9.1.7,port=$((8000 + i)),ms=3000" "proto=icmp,to=10.9.1.7,ms=3000")
    done
    run a "${specs[@]}"
    checks=$((checks + 2))
    [ "$(grep -c 'result=error call=async errno=ECONNREFUSED' <<<"$out")" = 300 ] || fail "300 refusals"
    [ "$(grep -c 'proto=icmp result=reply' <<<"$out")" = 300 ] || fail "300 echo replies"
}

# Left alone, a kernel rations the ICMP errors of its firewall's reject, but not the resets.
test_rationed() {
    local specs=() errors
    ip netns exec r sysctl -qw net.ipv4.icmp_ratelimit=1000
    # a source of its own: the ration is kept for each, and lifting the limit empties it
    ip -n a address add 10.9.0.8/24 dev eth0
    for _ in $(seq 20); do
        specs+=("proto=udp,to=10.9.1.7,port=7002,ms=300,from=10.9.0.8")
        specs+=("proto=tcp,to=10.9.1.7,port=7001,ms=300,from=10.9.0.8")
    done
    run a "${specs[@]}"
    ip -n a address del 10.9.0.8/24 dev eth0
    ip netns exec r sysctl -qw net.ipv4.icmp_ratelimit=0
    errors=$(grep -c 'proto=udp result=error .* icmp=3/13 ' <<<"$out")
    checks=$((checks + 2))
    if [ "$errors" -lt 1 ] || [ "$errors" -gt 8 ]; then fail "$errors of 20 ICMP errors came"; fi
    [ "$(grep -c 'proto=tcp result=error .*ECONNREFUSED' <<<"$out")" = 20 ] || fail "20 resets"
}

test_many_arrivals() {
    local specs=() i
    listen_on_target
    for i in $(seq 100); do specs+=("proto=tcp,to=10.9.1.7,port=80,ms=3000"); done
    run a "${specs[@]}"
    stop_on_target
    expect 1 "proto=listen result=listened $ms stopped=1 arrivals=100 tcp=100 udp=0 seen=(tcp:10\.9\.0\.5:[0-9]+;?){64} more=36 $frames"
}

# Output that is lost is seen to be lost: the end line is missing, and the status is not 0.
test_lost() {
    local status
    checks=$((checks + 3))
    ip netns exec a "$guest" attempt nonce=$nonce proto=icmp,to=127.0.0.1,ms=100 >/dev/full
    status=$?
    [ $status = 3 ] || fail "a full disk: status $status"
    out=$(ip netns exec a "$guest" attempt nonce=$nonce proto=tcp,to=10.9.1.7,port=7005,ms=10000 &
        sleep 0.2; kill -9 $!; wait $! 2>/dev/null)
    grep -q end= <<<"$out" && fail "an end line from a run that was killed"
    grep -q stage=1 <<<"$out" || fail "it had not begun"
}

refuse() {
    local status
    checks=$((checks + 1))
    out=$(ip netns exec a "$guest" "$@" 2>/run/err)
    status=$?
    if [ $status != 2 ] || [ -n "$out" ] || [ "$(wc -l </run/err)" != 1 ]; then
        fail "not refused ($status): $*"
    fi
}

test_refused() {
    local a=(attempt "nonce=$nonce") bad
    for bad in "" "--" "proto=tcp" "proto=tcp,to=10.9.1.7,port=0,ms=1" "proto=tcp,to=10.9.1.7,port=65536,ms=1" \
        "proto=tcp,to=10.9.1.7,port=80" "proto=tcp,to=10.9.1.7,port=80,ms=0" "proto=tcp,to=10.9.1.7,port=80,ms=600001" \
        "proto=tcp,to=10.9.1.7,port=80,ms=1,ms=1" "proto=tcp,to=10.9.1.7,port=80,ms=1,token=$token" \
        "proto=tcp,to=name,port=80,ms=1" "proto=tcp,to=fe80::1,port=80,ms=1" "proto=tcp,to=fd09::1%eth0,port=80,ms=1" \
        "proto=tcp,to=10.9.1.7,port=80,ms=1,from=fd09::5" "proto=tcp,to=10.9.1.7,port=80,ms=1,send=abc" \
        "proto=tcp,to=10.9.1.7,port=80,ms=1,send=zz" "proto=tcp,to=10.9.1.7,port=80,ms=1,recv=4097" \
        "proto=tcp,to=10.9.1.7,port=80,ms=1,ttl=0" "proto=udp,to=224.0.0.1,port=80,ms=1" "proto=udp,to=ff02::1%eth0,port=80,ms=1" \
        "proto=udp,to=255.255.255.255,port=80,ms=1" "proto=tcp,to=0.0.0.0,port=80,ms=1" "proto=icmp,to=::,ms=1" \
        "proto=tcp,to=::ffff:10.9.1.7,port=80,ms=1" "proto=icmp,to=10.9.1.7,port=1,ms=1" "proto=listen,port=80,ms=1" \
        "proto=listen,port=80,ms=1,token=short" "proto=listen,port=80,ms=1,token=$token,to=10.9.1.7" \
        "proto=listen,port=80,ms=1,token=$token,mark=0011223344556677" "proto=listen,port=80,ms=1,token=$token,link=eth0" \
        "proto=listen,port=80,ms=1,token=$token,link=eth0,mark=00112233445566" "proto=frame,link=eth0,ms=1" \
        "proto=frame,link=eth0,ms=1,send=00112233445566778899aabb08" "proto=frame,link=,ms=1,send=00112233445566778899aabb0800" \
        "proto=frame,link=eth0,ms=1,send=00112233445566778899aabb0800,to=10.9.1.7" \
        "proto=frame,link=a123456789012345,ms=1,send=00112233445566778899aabb0800" \
        "proto=frob,to=10.9.1.7,port=80,ms=1" "proto=tcp,,to=10.9.1.7,port=80,ms=1" "proto=tcp,to=10.9.1.7,port=+80,ms=1"; do
        refuse "${a[@]}" "$bad"
        refuse "${a[@]}" proto=icmp,to=127.0.0.1,ms=100 "$bad"
    done
    refuse "${a[@]}" proto=icmp,to=127.0.0.1,ms=100 --
    refuse "${a[@]}" -- proto=icmp,to=127.0.0.1,ms=100
    refuse attempt proto=icmp,to=127.0.0.1,ms=100
    refuse attempt nonce=XYZ proto=icmp,to=127.0.0.1,ms=100
    refuse frob nonce=$nonce
    refuse info
    refuse info nonce=$nonce more
    refuse exec nonce=$nonce ms=0 grace=1 cap=1 -- true
    refuse exec nonce=$nonce ms=1 grace=1 cap=99999999 -- true
    refuse exec nonce=$nonce ms=1 grace=1 cap=1 true
    refuse exec nonce=$nonce ms=1 grace=1 cap=1 --
}

# exec MS GRACE CAP ARGV...: stdout into $out, stderr into /run/err, its last line into $last.
run_exec() {
    local bounds=("ms=$1" "grace=$2" "cap=$3")
    shift 3
    out=$("$guest" exec nonce=$nonce "${bounds[@]}" -- "$@" 2>/run/err)
    last=$(tail -n 1 /run/err)
}

expect_exec() {
    checks=$((checks + 1))
    [[ $last =~ ^$nonce\ $1\ ms=[0-9]+$ ]] || fail "exec: '$last' is not $1"
}

test_exec() {
    run_exec 5000 100 100 sh -c 'echo out; printf err >&2; exit 3'
    expect_exec "state=exit value=3 truncated=0"
    checks=$((checks + 2))
    [ "$out" = out ] || fail "exec: stdout"
    [ "$(head -n 1 /run/err)" = err ] || fail "exec: stderr"
    run_exec 5000 100 100 sh -c 'exit 127'
    expect_exec "state=exit value=127 truncated=0"
    run_exec 5000 100 100 no-such-program
    expect_exec "state=error value=ENOENT truncated=0"
    run_exec 5000 100 100 sh -c 'kill -9 $$'
    expect_exec "state=signal value=9 truncated=0"
    run_exec 200 100 100 sh -c 'trap "" TERM; sleep 100 & wait; sleep 100'
    expect_exec "state=timeout value=9 truncated=0"
    run_exec 200 100 100 sleep 100
    expect_exec "state=timeout value=15 truncated=0"
    run_exec 300 100 100 yes
    expect_exec "state=timeout value=15 truncated=1"
    checks=$((checks + 1))
    [ "$(wc -c <<<"$out")" = 100 ] || fail "exec: the cap"
    # a command that imitates the last line does not write the last line
    run_exec 5000 100 1000 sh -c "echo '$nonce state=exit value=0 truncated=0 ms=1' >&2; exit 5"
    expect_exec "state=exit value=5 truncated=0"
    checks=$((checks + 1))
    run_exec 5000 200 100 sh -c '(trap "" TERM; setsid sleep 987) & (setsid setsid sh -c "trap \"\" TERM; sleep 988") & exit 4'
    expect_exec "state=exit value=4 truncated=0"
    checks=$((checks + 1))
    ! grep -aqs 'sleep.98[78]' /proc/[0-9]*/cmdline || fail "exec: something is left"
}

test_exec_killed() {
    local pid
    checks=$((checks + 2))
    "$guest" exec nonce=$nonce ms=60000 grace=200 cap=10 -- sh -c 'trap "" TERM; (setsid sleep 989) & sleep 989' &
    pid=$!
    sleep 0.3
    grep -aqs 'sleep.989' /proc/[0-9]*/cmdline || fail "exec killed: it had not begun"
    kill -9 $pid
    wait $pid 2>/dev/null
    for _ in $(seq 50); do
        grep -aqs 'sleep.989' /proc/[0-9]*/cmdline || return
        sleep 0.1
    done
    fail "exec killed: something is left"
}

test_info() {
    local line
    mount -t tmpfs tmpfs /etc/ssl # any directory will do for two files of ours
    printf 'search x\nnameserver 127.0.0.53\nnameserver\tfe80::1%%eth0 # x\nnameserver a\033[2Jb\n' >/etc/ssl/resolv
    echo 00112233445566778899aabbccddeeff >/etc/ssl/id
    touch /etc/machine-id 2>/dev/null
    mount --bind /etc/ssl/resolv "$(readlink -f /etc/resolv.conf)"; mount --bind /etc/ssl/id /etc/machine-id
    out=$(unshare --uts ip netns exec a sh -c "printf 'my box%%' >/proc/sys/kernel/hostname
        ip route add default via 10.9.0.1 metric 7; $guest info nonce=$nonce; ip route del default")
    for line in "hostname=my%20box%25" "machine-id=00112233445566778899aabbccddeeff" "icmp_echo_ignore_all=0" \
        "link=lo mac=00:00:00:00:00:00 up=1" "addr=127.0.0.1/8 link=lo family=4 scope=host" \
        "addr=10.9.0.5/24 link=eth0 family=4 scope=global" "addr=fd09::5/64 link=eth0 family=6 scope=global" \
        "addr=fe80::a/64 link=eth0 family=6 scope=link" "route=default via=10.9.0.1 link=eth0 family=4 metric=7" \
        "route=10.9.0.0/24 link=eth0 family=4 metric=0" "route=10.9.1.0/24 via=10.9.0.1 link=eth0 family=4 metric=0" \
        "nameserver=127.0.0.53" "nameserver=fe80::1%25eth0" "nameserver=a%1B[2Jb" "kernel=$(uname -r)"; do
        checks=$((checks + 1))
        grep -qxF "$nonce $line" <<<"$out" || fail "info: no line $line"
    done
    checks=$((checks + 2))
    grep -qE "^$nonce link=eth0 mac=([0-9a-f]{2}:){5}[0-9a-f]{2} up=1$" <<<"$out" || fail "info: eth0"
    [ "$(tail -n 1 <<<"$out")" = "$nonce end=$(($(wc -l <<<"$out") - 1))" ] || fail "info: the end line"
}

set_up
for name in $(declare -F | sed -n 's/^declare -f test_/test_/p'); do
    before=$failures
    begun=$(date +%s%N)
    $name
    [ $failures = $before ] && word=ok || word='NOT OK'
    echo "$word $name $((($(date +%s%N) - begun) / 1000000)) ms"
done
echo "$checks checks, $failures failed"
[ $failures = 0 ] && [ $checks -gt 100 ]
