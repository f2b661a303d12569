#!/bin/bash
# Walls between siblings that let one kind of frame through and no other: exactly the probes and the questions of
# expected.txt fail, so each question has something that only it catches. In every run some of them; with
# BOXDRILL_FULL=1 all, three times.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
SOME=(sibling-udp sibling-icmp sibling-arp sibling-ip6 sibling-multicast sibling-spoof-mac sibling-routed isolation)
ALL=("${SOME[@]}" sibling-tcp sibling-arp-reply sibling-nd sibling-all-hosts sibling-llmnr sibling-mdns
    sibling-broadcast sibling-other sibling-vlan sibling-spoof-address sibling-spoof-both)
rounds=1 names=("${SOME[@]}")
[ "${BOXDRILL_FULL:-0}" = 0 ] || rounds=3 names=("${ALL[@]}")

# The questions of c.sibling.* that failed, each once; "any" is left out beside others: a box's kernel may send by itself.
failed_questions() {
    jq -r 'select(.type == "verdict" and (.id | startswith("c.sibling.")))
        | .evidence.observations[]? | select(.verdict == "FAIL") | .what' "$DIR/json" |
        sed 's/^[^:]*: //' | sort -u | awk '/^a frame of another kind/ { any = $0; next } { print; n++ } END { if (!n && any) print any }'
}

# fails_as ROW
fails_as() {
    diff <(sed -n "s/^frames:$1 //p" "$HERE/expected.txt" | tr ';' '\n' | grep . | sort) <(failed_questions)
}

# ask: the three probes, in boxes of their own.
ask() {
    in_lab timeout -k 10 200 boxdrill run --yes --json c.sibling c.sibling.l2 c.sibling.root >"$DIR/json" 2>"$DIR/err" </dev/null
    jq -r 'select(.type == "verdict") | "\(.verdict)   \(.id) "' "$DIR/json" >"$DIR/out"
    [ "$(wc -l <"$DIR/out")" = 3 ]
}

lab_up test-siblings
check "whole: asked" ask
check "whole: all green" only_cells whole
for round in $(seq "$rounds"); do
    for name in "${names[@]}"; do
        check "break $name" lab break "$name"
        check "$name, round $round: asked" ask
        check "$name, round $round: exactly the probes written down" only_cells "$name"
        check "$name, round $round: exactly the questions written down" fails_as "$name"
        check "mend $name" lab mend "$name"
    done
done
check "mended: asked" ask
check "mended: all green" only_cells whole
check "nothing left" nothing_left
finish
