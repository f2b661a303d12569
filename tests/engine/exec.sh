#!/bin/bash
# exec through the engine: commands that do not want to end are gone by the deadline plus grace, and
# leave no process; also when the broker is killed.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"

# Whatever a command starts carries this in its arguments.
MARK=boxdrill-exec-test-$$
alive() { pgrep -f -- "$MARK" | grep -cvx "$$"; }
gone() {
    for _ in $(seq 100); do
        [ "$(alive)" = 0 ] && return 0
        sleep 0.1
    done
    pgrep -af -- "$MARK"
    return 1
}

# hostile NAME COMMAND: a script that runs it in bash with a deadline of 1 s and a grace of 0.5 s.
hostile() {
    script "$1" <<END
local from = engine.clock()
local state, value, truncated, ms = engine.call("exec", 1000, 500, 1000, "bash", "-c", [==[$2]==], "$MARK")
print(state, value, truncated, engine.clock() - from < 4 and "in time" or "late")
END
}

declare -A COMMANDS=(
    [holds-output]='(exec -a "$0" sleep 1000) & sleep 0.8; echo started'
    [ignores-term]='trap "" TERM; while :; do sleep 1; : "$0"; done'
    [forks-away]='setsid bash -c "trap \"\" TERM; setsid bash -c \"trap \\\"\\\" TERM; exec -a $0 sleep 1000\" &" & exec -a "$0" sleep 1000'
    [writes-for-ever]='exec -a "$0" yes'
    [reads-terminal]='read -r x </dev/tty; read -r y; exec -a "$0" sleep 1000'
)
declare -A EXPECTED=(
    [holds-output]=$'exit\t0\t0\tin time'
    [ignores-term]=$'timeout\t9\t0\tin time'
    [forks-away]=$'timeout\t'
    [writes-for-ever]=$'timeout\t15\t1\tin time'
    [reads-terminal]=$'timeout\t15\t0\tin time'
)

# A terminal on boxdrill's own stdin: script(1) makes one.
on_terminal() { timeout -k 5 60 script -qec "$BOXDRILL --grant host.exec $1" /dev/null >"$DIR/out" 2>&1; }

for name in "${!COMMANDS[@]}"; do
    path=$(hostile "$name" "${COMMANDS[$name]}")
    check "$name: ends" run 0 --grant host.exec "$path"
    check "$name: ${EXPECTED[$name]}" says "${EXPECTED[$name]}"
    check "$name: leaves no process" gone
    check "$name: with a terminal on stdin" on_terminal "$path"
    check "$name: ${EXPECTED[$name]}, with a terminal" says "${EXPECTED[$name]}"
    check "$name: leaves no process, with a terminal" gone

    "$BOXDRILL" --grant host.exec "$path" >/dev/null 2>&1 </dev/null &
    broker=$!
    sleep 0.4
    check "$name: was running when the broker is killed" [ "$(alive)" -gt 0 ]
    kill -9 "$broker"
    wait "$broker" 2>/dev/null
    check "$name: gone after the broker was killed" gone
done

# Not mixed up: killed by us, could not start, exited 127.
three=$(script three <<'END'
print(engine.call("exec", 5000, 100, 100, "bash", "-c", "exit 127"))
print(engine.call("exec", 5000, 100, 100, "/nonexistent"))
print(engine.call("exec", 5000, 100, 100, "bash", "-c", "kill -SEGV $$"))
END
)
check "results" run 0 --grant host.exec "$three"
check "exited 127" says $'exit\t127\t0'
check "could not start" says $'error\tENOENT\t0'
check "died of a signal" says $'signal\t11\t0'

# Ctrl-C while an exec runs.
path=$(hostile interrupted 'trap "" TERM; exec -a "$0" sleep 1000')
"$BOXDRILL" --grant host.exec "$path" >/dev/null 2>&1 </dev/null &
broker=$!
sleep 0.4
kill -INT "$broker"
wait "$broker"
status=$?
check "Ctrl-C: exit 130 (was $status)" [ "$status" = 130 ]
check "Ctrl-C: leaves no process" gone

finish
