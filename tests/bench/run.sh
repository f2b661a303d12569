#!/bin/bash
# Figures, each as a ratio against the ordinary tool in the same run; never a test. Prints a table
# for RUNS.md. Needs a build (tests/run.sh makes one) and root.
set -euo pipefail
cd "$(dirname "$0")/../.."
BOXDRILL=build/stage/bin/boxdrill
LAB=host/lab
NAME=bench$$
N=200

ms() { awk -v us=$((${2/[.,]/} - ${1/[.,]/})) -v n="$3" 'BEGIN { printf "%.3f", us / 1000 / n }'; }

# repeat N COMMAND...: milliseconds each.
repeat() {
    local n=$1 from i
    shift
    from=$EPOCHREALTIME
    for ((i = 0; i < n; i++)); do "$@" >/dev/null 2>&1 </dev/null; done
    ms "$from" "$EPOCHREALTIME" "$n"
}

row() { printf '| %s | %s | %s | %s |\n' "$1" "$2" "$3" "$(awk -v a="$2" -v b="$3" 'BEGIN { printf "%.2f", a / b }')"; }

empty=$(mktemp --suffix=.lua)
trap 'rm -f "$empty"; "$LAB" down --name "$NAME" >/dev/null 2>&1 || true' EXIT
echo '| what | boxdrill, ms | ordinary, ms | ratio |'
echo '|---|---|---|---|'
row "an empty script, against bash -c :" "$(repeat 50 "$BOXDRILL" "$empty")" "$(repeat 50 bash -c :)"
row "exec of true, against timeout -k in bash" \
    "$("$BOXDRILL" --grant host.exec tests/bench/exec.lua $N)" "$(repeat $N timeout -k 1 10 true)"

"$LAB" up --name "$NAME" >/dev/null 2>&1
while read -r what rest client; do
    row "$what over REST, against the client" "$rest" "$client"
done < <("$LAB" run --name "$NAME" -- boxdrill --yes /opt/boxdrill-tests/bench/rest.lua)

# Peak memory: the sum over all of a drill's processes of their private and shared-in-part pages.
# shellcheck disable=SC2016
"$LAB" run --name "$NAME" -- bash -c '
boxdrill drill.lua --yes >/dev/null 2>&1 &
peak=0
while kill -0 $! 2>/dev/null; do
    pss=0
    for f in $(grep -lsE "^(boxdrill|bd:)" /proc/[0-9]*/comm); do
        p=$(sed -n "s/^Pss: *\([0-9]*\) kB/\1/p" "${f%comm}smaps_rollup" 2>/dev/null) && pss=$((pss + ${p:-0}))
    done
    [ "$pss" -le "$peak" ] || peak=$pss
    sleep 0.05
done
echo "Peak memory of a drill, all its processes (PSS): $((peak / 1024)) MiB"'
