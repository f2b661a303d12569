#!/bin/bash
# The lab's own promise: it comes up, refuses what it must, breaks and mends, and leaves nothing
# on the machine, however it ended. Needs root; touches no lab but its own (named t-life...), and
# does not mind others that are up.
# shellcheck disable=SC2016 # what stands in single quotes is expanded by an eval or in the lab
set -u

HERE=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
LAB=$HERE/../../host/lab
NAME=t-life
WORK=$(mktemp -d /tmp/lifecycle.XXXXXX) || exit 1
: >"$WORK/namespaces"
passed=0 failed=0

ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
not_ok() { failed=$((failed + 1)); printf 'FAIL  %s\n' "$1"; [ ! -s "$WORK/err" ] || sed 's/^/      /' "$WORK/err"; }
check() { local text=$1; shift; if "$@"; then ok "$text"; else not_ok "$text"; fi; }

lab() { "$LAB" "$@" >"$WORK/out" 2>"$WORK/err" </dev/null; }
mine() { local command=$1; shift; lab "$command" --name "$NAME" "$@"; }
inside() { "$LAB" run --name "$NAME" -- "$@"; }
both() { "$1" "$2" "$3" && "$1" "$4" "$5"; }

# refused TEXT PATTERN ARG...: exit 2, and exactly one line, which says why.
refused() {
    local text=$1 pattern=$2 rc=0
    shift 2
    lab "$@" || rc=$?
    if [ "$rc" = 2 ] && [ "$(wc -l <"$WORK/err")" = 1 ] && grep -q -e "$pattern" "$WORK/err"; then
        ok "$text"
    else
        echo "exit $rc" >>"$WORK/err"
        not_ok "$text"
    fi
}

# --- what is on the machine ---------------------------------------------------------------------------

init_pid() { cut -d' ' -f1 "/run/boxdrill-lab/$NAME/init.pid" 2>/dev/null; }

# Other labs may be up meanwhile, so what is looked for is this lab's by a mark of its own: its
# cgroup, or its overlay in a process's mount table. A zombie is only a line that its parent, often
# the machine's init, has yet to read.
processes_of_lab() {
    local pid
    for pid in /proc/[0-9]*; do
        if grep -qs "boxdrill-lab[./]$NAME\(/\|\$\)" "$pid/cgroup" "$pid/mountinfo" &&
            ! grep -qs '^State:.Z' "$pid/status"; then
            # One on its way out has no command line any more, and says what it is by its name and state.
            echo "$(tr '\0' ' ' <"$pid/cmdline") $(awk '/^(Name|State):/ { print $2 }' "$pid/status" | paste -sd' ')"
        fi
    done 2>/dev/null
}

# Settings of the machine that stand still by themselves.
settings() {
    grep -rs . /proc/sys/fs /proc/sys/kernel /proc/sys/vm /proc/sys/net/ipv4/ip_forward /proc/sys/net/bridge |
        grep -vE '^/proc/sys/(fs/(dentry-state|file-nr|inode-|aio-nr|quota|binfmt_misc)|kernel/(random|ns_last_pid|pty/nr|perf|tainted|sched))' | sort
}

machine_state() {
    printf '== processes\n'
    processes_of_lab
    printf '== mounts\n'
    cut -d' ' -f 3-5 /proc/self/mountinfo | sort
    printf '== links\n'
    for link in /sys/class/net/*; do echo "${link##*/}"; done
    printf '== loop devices on files of a dead lab\n'
    losetup -n -l -O BACK-FILE | grep '^/disks/'
    printf '== cgroups\n'
    find /sys/fs/cgroup -type d -name "boxdrill-lab.$NAME*" 2>/dev/null
    printf '== files\n'
    find /var/lib/incus /var/lib/lxcfs /var/log/incus /etc /dev ! -path '/dev/pts/*' ! -path '/dev/shm/*' 2>/dev/null | sort
    find /run -name "*$NAME*" -o -name '*incus*' 2>/dev/null
    find /tmp /var/tmp -maxdepth 1 -name "*$NAME*" -o -name 'mmdebstrap*'
    printf '== settings\n'
    settings
}

before() { machine_state >"$WORK/before"; }

# Namespaces and loop devices have no name: what this lab has is noted while it is up.
note_belongings() {
    local pid
    pid=$(init_pid)
    {
        readlink /proc/"$pid"/ns/{mnt,net,pid,uts,ipc,cgroup}
        inside stat -L -c 'net:[%i]' /run/netns/wan
    } >"$WORK/namespaces" 2>/dev/null
    cat "/run/boxdrill-lab/$NAME/disks.dev" >"$WORK/dev"
}

# A number of a namespace is used again, so one that shows up inside another lab is not ours.
namespaces_gone() {
    local pid
    for pid in /proc/[0-9]*; do
        grep -qs 'boxdrill-lab[.]' "$pid/cgroup" && continue
        readlink "$pid"/ns/{mnt,net,pid,uts,ipc,cgroup} 2>/dev/null
    done | sort -u | grep -qxFf "$WORK/namespaces" && return 1
    return 0
}

loop_gone() { [ ! -s "$WORK/dev" ] || ! losetup -n -l -O BACK-MAJ:MIN | tr -d ' ' | grep -qxFf "$WORK/dev"; }

is_clean() {
    machine_state >"$WORK/after"
    cmp -s "$WORK/before" "$WORK/after" && namespaces_gone && loop_gone
}

left_nothing() {
    local text=$1 try clean=1
    # The kernel tears a namespace down behind its last process, and a namespace's init cannot go before the
    # machine's own has reaped what was killed in it: on a busy machine that takes seconds.
    for ((try = 0; try < 50; try++)); do
        if is_clean; then clean=0 && break; fi
        sleep 0.2
    done
    if [ "$clean" = 0 ]; then
        ok "$text"
    else
        { diff "$WORK/before" "$WORK/after"; namespaces_gone || echo "a namespace"; loop_gone || losetup -l; } >"$WORK/err"
        not_ok "$text (looked $try times)"
    fi
    rm -f "$WORK/dev"
    : >"$WORK/namespaces"
}

gone() { ! [ -e "/proc/$1" ]; }
until_gone() { local i; for ((i = 0; i < 100; i++)); do gone "$1" && return 0; sleep 0.05; done; return 1; }

cleanup() {
    lab down --name "$NAME"
    lab down --name "$NAME-b"
    rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- refusals that need no lab --------------------------------------------------------------------------

test_refusals() {
    local tool
    refused "an unknown command" "unknown command" nosuch
    refused "a name that is none" "name" up --name ../x
    refused "run without a lab" "no lab named" run --name "$NAME" -- true
    refused "break without a lab" "no lab named" break --name "$NAME" acl
    refused "up with a word too many" "unknown argument" up --name "$NAME" --nonsense
    BOXDRILL_LAB_NEED_MIB=99999999 refused "too little memory" "free memory" up --name "$NAME" --no-setup
    mkdir "$WORK/bin"
    for tool in bash id readlink dirname awk unshare nsenter setpriv pivot_root flock mount mountpoint \
        losetup apt-get dpkg perl cat head tail mkdir rmdir rm; do
        ln -s "$(command -v "$tool")" "$WORK/bin/$tool"
    done
    PATH=$WORK/bin refused_with_path "a missing tool is named" "mmdebstrap" up --name "$NAME" --no-setup
    check "not root" not_root
    check "down without a lab is no error" mine down
    check "help" eval 'lab --help && grep -q "no-egress" "$WORK/out"'
}

# The same as refused, but the check itself keeps its tools.
refused_with_path() {
    local text=$1 pattern=$2 rc=0
    shift 2
    "$LAB" "$@" >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    PATH=/usr/sbin:/usr/bin:/sbin:/bin
    [ "$rc" = 2 ] && [ "$(wc -l <"$WORK/err")" = 1 ] && grep -q -e "$pattern" "$WORK/err"
    check "$text" [ $? = 0 ]
}

not_root() {
    local rc=0
    # Copied to where nobody can read it, whatever the checkout's own permissions are.
    cp -r "$HERE/../../host" "$WORK/host" && chmod -R a+rX "$WORK"
    setpriv --reuid 65534 --regid 65534 --clear-groups "$WORK/host/lab" up --no-setup 2>"$WORK/err" || rc=$?
    [ "$rc" = 2 ] && [ "$(wc -l <"$WORK/err")" = 1 ] && grep -q root "$WORK/err"
}

# --- up, run, down ------------------------------------------------------------------------------------

exit_code_is() {
    local want=$1 rc=0
    shift
    inside "$@" >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    [ "$rc" = "$want" ]
}

test_run() {
    check "run passes the exit code on" exit_code_is 37 sh -c 'exit 37'
    check "run passes a signal on" exit_code_is 143 sh -c 'kill -TERM $$'
    check "run passes stdin on" [ "$(echo through | inside cat)" = through ]
    check "run keeps words apart" [ "$(inside printf '%s|' 'a b' '' c)" = 'a b||c|' ]
    check "the environment is clean" [ "$(SECRET=1 inside env | cut -d= -f1 | LC_ALL=C sort | paste -sd' ')" = \
        "HOME LANG PATH TERM USER" ]
    check "NO_COLOR goes through" [ "$(NO_COLOR=1 inside sh -c 'echo $NO_COLOR')" = 1 ]
    check "systemd is process 1" [ "$(inside cat /proc/1/comm)" = systemd ]
    check "no unit failed" [ -z "$(inside systemctl --failed --no-legend)" ]
    check "no /dev/kvm" exit_code_is 1 test -e /dev/kvm
    check "the machine's settings cannot be changed from inside" exit_code_is 2 sh -c 'v=$(cat /proc/sys/vm/swappiness); echo "$v" >/proc/sys/vm/swappiness'
    check "a command does not outlive its run" killed_run
}

killed_run() {
    "$LAB" run --name "$NAME" -- sleep 4242 &
    local pid=$! i
    sleep 0.5
    inside grep -qs 4242 /proc/[0-9]*/cmdline || true
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    for ((i = 0; i < 40; i++)); do
        inside sh -c 'for p in /proc/[0-9]*; do [ "$(tr "\0" " " <$p/cmdline 2>/dev/null)" = "sleep 4242 " ] && exit 1; done; exit 0' &&
            return 0
        sleep 0.05
    done
    return 1
}

answers() { [ "$(inside sh -c "echo ping | timeout 3 socat -t1 - $1" 2>/dev/null)" = ping ]; }

test_internet() {
    local address
    for address in 10.200.0.1 172.16.9.9 192.168.1.1 169.254.169.254 100.64.0.9 203.0.113.2 10.99.0.1; do
        check "TCP and UDP echo at $address" eval "answers TCP4:$address:8099 && answers UDP4:$address:8099"
    done
    check "https on a name" exit_code_is 0 curl -sS -m 5 -o /dev/null https://example.com/
    check "https with TLS 1.2" exit_code_is 0 curl -sS -m 5 --tls-max 1.2 -o /dev/null https://example.org/
    check "https on 1.1.1.1" exit_code_is 0 curl -sS -m 5 -o /dev/null https://1.1.1.1/
    check "http on 8.8.8.8" exit_code_is 0 curl -sS -m 5 -o /dev/null http://8.8.8.8/
    check "DNS over TCP at 8.8.8.8" exit_code_is 0 timeout 3 bash -c ': </dev/tcp/8.8.8.8/53'
    check "a bare name does not exist" exit_code_is 2 getent hosts sibling
    check "images:debian/13/cloud launches" exit_code_is 0 incus launch -q images:debian/13/cloud one
}

test_isolated_from_machine() {
    check "no link of the lab on the machine" eval '! ip -o link | grep -qE "uplink|boxnet|lab-other"'
    check "no route of the machine in the lab" [ "$(inside ip -o route show default | wc -l)" = 1 ]
}

test_breaks() {
    refused "an unknown break is named" "no 'nosuch'" break --name "$NAME" nosuch
    refused "an unknown mend is named" "no 'nosuch'" mend --name "$NAME" nosuch
    refused "mending what is whole" "is not broken" mend --name "$NAME" acl
    refused "break wants a name" "wants one of" break --name "$NAME"
    check "break no-egress" mine break no-egress
    refused "breaking twice" "broken already" break --name "$NAME" no-egress
    check "status names the break" eval 'mine status && grep -q no-egress "$WORK/out"'
    check "no internet" eval '! inside curl -s -m 2 -o /dev/null http://8.8.8.8/'
    check "mend no-egress" mine mend no-egress
    check "internet" exit_code_is 0 curl -s -m 3 -o /dev/null http://8.8.8.8/
    if [ -n "$setup" ]; then test_stack_breaks; else refused "breaking what is not set up" "cannot be broken" break --name "$NAME" acl; fi
}

stack_state() {
    inside nft -s list table inet box
    inside nft -s list table bridge box
    inside incus network show boxnet
    inside incus profile show box-net
}

test_stack_breaks() {
    local name
    inside incus launch -q images:debian/13/cloud two -p box-net </dev/null
    stack_state >"$WORK/whole"
    for name in sibling acl host-input ingress dns-mode dnsmasq ipv6; do
        check "break $name" mine break "$name"
        check "mend $name" mine mend "$name"
    done
    stack_state >"$WORK/mended"
    diff "$WORK/whole" "$WORK/mended" >"$WORK/err"
    check "breaking and mending leaves the stack as it was" cmp -s "$WORK/whole" "$WORK/mended"
}

# --- endings ----------------------------------------------------------------------------------------------

# killed TEXT PID-COMMAND: up, kill that, down, nothing left.
killed() {
    local text=$1 pid
    shift
    mine up --no-setup || { not_ok "up before $text"; return; }
    inside incus launch -q images:debian/13/cloud one </dev/null >/dev/null 2>&1
    pid=$("$@")
    check "$text is a process of the lab" [ -n "$pid" ]
    note_belongings
    # One that does not let go by itself, as Incus has for a moment while it makes its pool.
    inside sh -c 'truncate -s 1M /var/lib/incus/disks/odd.img && losetup -f /var/lib/incus/disks/odd.img'
    kill -KILL "$pid"
    check "down after $text was killed" mine down
    left_nothing "nothing left after $text was killed"
}

# The machine's process id of the first process of the lab with that name.
pid_named() {
    local pid ns
    ns=$(readlink "/proc/$(init_pid)/ns/pid")
    for pid in /proc/[0-9]*; do
        if [ "$(readlink "$pid/ns/pid")" = "$ns" ] && [ "$(cat "$pid/comm" 2>/dev/null)" = "$1" ]; then
            echo "${pid#/proc/}"
            return
        fi
    done
}

keeper_pid() { cut -d' ' -f1 "/run/boxdrill-lab/$NAME/keeper.pid"; }

test_killed_midway() {
    local delay pid
    for delay in 0.1 0.3 0.6 1.0 1.6 2.2; do
        "$LAB" up --name "$NAME" --no-setup >"$WORK/out" 2>"$WORK/err" </dev/null &
        pid=$!
        sleep "$delay"
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        check "down after up was killed at $delay s" mine down
        left_nothing "nothing left after up was killed at $delay s"
    done
}

until_no_process() {
    local i
    for ((i = 0; i < 40; i++)); do
        grep -qsF -e "$1" /proc/[0-9]*/cmdline || return 0
        sleep 0.05
    done
    return 1
}

# A build in a cache of its own, killed while it runs: no process of it stays, and the half-made
# tree is not taken for a whole one.
test_killed_build() {
    local pid
    BOXDRILL_CACHE=$WORK/cache "$LAB" up --name "$NAME" --no-setup >"$WORK/out" 2>"$WORK/err" </dev/null &
    pid=$!
    sleep 3
    check "the build is at work" [ -n "$(find "$WORK/cache" -maxdepth 1 -name 'building.*')" ]
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    check "its build is gone with it" until_no_process "$WORK/cache"
    check "down after a killed build" mine down
    left_nothing "nothing left after a killed build"
    check "no half-built tree bears a tree's name" [ -z "$(find "$WORK/cache" -maxdepth 1 -name 'tree-*')" ]
    rm -rf "$WORK/cache"
}

test_interrupted() {
    local pid
    "$LAB" up --name "$NAME" --no-setup >"$WORK/out" 2>"$WORK/err" </dev/null &
    pid=$!
    sleep 1
    kill -TERM "$pid"
    wait "$pid"
    check "up ends with 143 after TERM" [ $? = 143 ]
    left_nothing "an interrupted up cleans up by itself"
}

test_inotify() {
    local was
    was=$(cat /proc/sys/fs/inotify/max_user_instances)
    [ "$was" -lt 1024 ] || { ok "inotify: nothing to raise on this machine"; return; }
    mine up --no-setup --many-boxes
    check "raising fs.inotify is said" grep -q max_user_instances "$WORK/err"
    check "fs.inotify is raised" [ "$(cat /proc/sys/fs/inotify/max_user_instances)" = 1024 ]
    pid=$(init_pid)
    note_belongings
    kill -KILL "$pid"
    until_gone "$pid"
    lab status
    check "the next command after a kill puts it back" [ "$(cat /proc/sys/fs/inotify/max_user_instances)" = "$was" ]
    mine down
    left_nothing "nothing left after that"
}

test_side_by_side() {
    check "a second lab beside the first" lab up --name "$NAME-b" --no-setup
    check "status shows both" eval 'lab status && [ "$(grep -c "^$NAME" "$WORK/out")" = 2 ]'
    inside touch /tmp/mark
    check "they are two" eval '! "$LAB" run --name "$NAME-b" -- test -e /tmp/mark'
    check "the second goes alone" lab down --name "$NAME-b"
    check "the first stays" exit_code_is 0 incus list
}

main() {
    setup=
    [ ! -x "$HERE/../../build/stage/bin/boxdrill" ] || setup=1
    test_refusals
    # The cache is built first: it is allowed to stay.
    mine up --no-setup
    mine down
    before
    if [ -n "$setup" ]; then check "up" mine up; else check "up without set-up" mine up --no-setup; fi
    refused "a lab of that name is up already" "already up" up --name "$NAME" --no-setup
    test_run
    test_internet
    test_isolated_from_machine
    test_breaks
    test_side_by_side
    note_belongings
    check "down" mine down
    left_nothing "nothing left after down"
    killed "the lab's init" init_pid
    killed "incusd" pid_named incusd
    killed "the keeper" keeper_pid
    killed "dnsmasq" pid_named dnsmasq
    test_killed_midway
    test_interrupted
    test_killed_build
    test_inotify
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

main
