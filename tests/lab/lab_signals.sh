#!/bin/bash
# However a run ends, what it made is removed: a signal, a closed stdout, a Lua error, a killed worker; a network
# is up meanwhile. The second Ctrl-C says what would be left, the third leaves it. In a drill: phase D, with its
# network and boxes up.
# shellcheck disable=SC2016 # what stands in single quotes is expanded in the lab
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-signals

# In the lab: `start ARG...` starts a run in the background, $run, its output in /root/out and /root/err; `made WORDS`
# waits until such a thing of ours is there; `ended` waits for the run, and exits with its status.
PRELUDE='
start() { boxdrill "$@" >/root/out 2>/root/err </dev/null & run=$!; }
ends() { start --grant rehearse --grant box.mint /opt/boxdrill-tests/lab/crash/ends.lua "$@"
    until grep -qs ^made /root/out; do sleep 0.05; done; }
made() { until "$@" -f csv 2>/dev/null | grep -q "^bd-"; do sleep 0.05; done; }
workers() { grep -lsE "^bd:" /proc/[0-9]*/comm | sed "s,/proc/,,; s,/comm,,"; }
'
# ended_as TEXT STATUS SCRIPT: the script's status, and nothing is left.
ended_as() {
    local status=0
    in_lab timeout -k 5 60 bash -c "$PRELUDE$3" >"$DIR/out" 2>&1 </dev/null || status=$?
    in_lab cat /root/err >"$DIR/err"
    check "$1: exit $2 (was $status)" [ "$status" = "$2" ]
    check "$1: nothing left" nothing_left
}
says() { grep -qE "$1" "$DIR/err" || { cat "$DIR/err"; return 1; }; }

for signal in INT TERM HUP; do
    ended_as "SIG$signal" 130 'ends; kill -'$signal' $run; wait $run'
    check "SIG$signal: it says what it does" says "interrupted: removing what this run made"
done
ended_as "SIGTERM to the whole group" 130 'set -m; ends; kill -TERM -- -$run; sleep 0.1; kill -TERM -- -$run; wait $run'
ended_as "a closed stdout" 130 'set -o pipefail
    boxdrill --grant rehearse --grant box.mint /opt/boxdrill-tests/lab/crash/ends.lua 2>/root/err </dev/null | head -n 1'
check "a closed stdout: it says what it does" says "stdout was closed: removing what this run made"
ended_as "a Lua error" 3 'ends error; wait $run'
check "a Lua error: it is told" says "on purpose"
ended_as "a killed worker" 3 'ends; kill -KILL $(workers); wait $run'
check "a killed worker: it is told" says "last primitive"

# incusd is halted, so that the revert takes its time.
HALTED='ends; incusd=$(pidof incusd); kill -STOP $incusd; kill -INT $run; sleep 0.5; kill -INT $run; sleep 0.5;'
ended_as "Ctrl-C twice" 130 "$HALTED"' kill -CONT $incusd; wait $run'
for kind in acl network instance; do
    check "Ctrl-C twice: it says that this would be left: $kind" says "^  $kind bd-[0-9a-f]{8}-.* \(project default\)"
done
check "Ctrl-C twice: it says how" says "interrupt again to leave that behind"
in_lab timeout -k 5 60 bash -c "$PRELUDE$HALTED"' kill -INT $run; wait $run; echo $? >/root/status; kill -CONT $incusd' </dev/null
in_lab cat /root/err >"$DIR/err"
check "Ctrl-C three times: exit 5" [ "$(in_lab cat /root/status)" = 5 ]
check "Ctrl-C three times: it says what it leaves" says "abandoned; left behind:"
check "Ctrl-C three times: and the way back" says "'boxdrill journal revert' removes it"
check "the next drill refuses" drill 4 --only A
check "reverted" in_lab boxdrill journal revert --yes >/dev/null </dev/null
check "nothing left" nothing_left

# Phase D, while its networks and boxes are up.
D='start --yes drill.lua --only D; made incus network list -c n; made incus list -c n; sleep 2; '
for signal in INT HUP; do
    ended_as "phase D, SIG$signal" 130 "$D"'kill -'$signal' $run; wait $run'
done
ended_as "phase D, a closed stdout" 130 'set -o pipefail
    boxdrill --yes drill.lua --only D 2>/root/err </dev/null | { made incus network list -c n; made incus list -c n; exit; }'
ended_as "phase D, killed workers" 3 "$D"'kill -KILL $(workers); wait $run'
finish
