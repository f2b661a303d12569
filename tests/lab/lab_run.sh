#!/bin/bash
# What a run says of itself: what was asked of it, what it waits for, its log, and what a small host gets.
# shellcheck disable=SC2016 # what stands in single quotes is expanded in the lab
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-run

says() { grep -qE "$1" "$DIR/out" "$DIR/err" || { cat "$DIR/out" "$DIR/err"; return 1; }; }
log_has() { in_lab grep -qE "$1" /root/log.md || { in_lab cat /root/log.md; return 1; }; }
site() { in_lab sh -c 'cat >/root/site.lua' <<<"return { $1 }"; }

logged() {
    check "a drill with --log: exit 0" drill 0 --only A --log /root/log.md
    check "the section says where" log_has '^\| host \| .*Debian GNU/Linux 13, kernel .*no KVM'
    check "with which versions" log_has '^\| versions \| boxdrill [0-9.]+, Incus [0-9.]+, storage [a-z]+'
    check "what was counted" log_has '^\| verdicts \| 10 PASS \|'
    check "that nothing was found" log_has '^No findings'
    check "and the audit's answers" log_has '^\| B4 \| a.unset \| PASS \|'
    check "break dns-mode" lab break dns-mode
    check "a second: exit 1" drill 1 --only C --log /root/log.md
    check "mend dns-mode" lab mend dns-mode
    check "it stands behind the first" [ "$(in_lab grep -c '^## ' /root/log.md)" = 2 ]
    check "with its finding" log_has '^- \*\*FAIL c.names\*\*'
    check "the clause" log_has '^        - clause: `'
    check "and the question by hand" log_has '^        - by hand: `'
    check "a log that cannot be written: exit 2" drill 2 --log /root/none/log.md
    check "and nothing was made" nothing_left
}

small() {
    site 'memory = { container = { wanted = 99999999 } }'
    check "a small host: the plan says so" drill 0 --site /root/site.lua --only A --dry-run
    check "with figures" says 'SMALL HOST: [0-9]+ MiB are free, so each box gets [0-9]+ MiB of memory, not 99999999'
    check "single probes" in_lab sh -c 'boxdrill run --yes --site /root/site.lua --keep-boxes c.address >/tmp/out'
    check "say so too" in_lab grep -q 'small host: ' /tmp/out
    local box
    box=$(in_lab incus list -f csv -c n | grep -m1 ^bd-)
    check "the box has that limit" in_lab sh -c "incus config get $box limits.memory | grep -qE '^[0-9]+MiB\$'"
    in_lab sh -c 'incus list -f csv -c n | grep ^bd- | xargs -n 1 incus delete -f' </dev/null
    check "a drill" drill 0 --site /root/site.lua --only B
    site 'memory = { container = { wanted = 99999999, least = 99999999 } }'
    check "a host too small: exit 4" drill 4 --site /root/site.lua
    check "and says what it would take" says 'refused: [0-9]+ MiB are free, .* less than 99999999'
    check "nothing was made" nothing_left
}

verdict_is() { [ "$(verdicts)" = "$1" ] || { cat "$DIR/out"; return 1; }; }

selected() {
    check "--only an id and --skip: exit 0" drill 0 --only A,c.address --skip a.tag,a.delete
    check "exactly those are asked" [ "$(verdicts | wc -l)" = 9 ]
    check "the others are named" says 'Not asked, by --only or --skip: [0-9]+ probes: .*a\.tag'
    check "a probe that needs no box: exit 0" drill 0 --only a.columns
    check "no other" verdict_is a.columns=PASS
    check "one that is not there: exit 2" drill 2 --only nosuch
    check "in one line" [ "$(wc -l <"$DIR/err")" = 1 ]
    check "which names it" says 'only nosuch'
    check "nothing left over: exit 2" drill 2 --only A --skip A
    check "nothing left" nothing_left
}

# incusd stands still for a while: what is waited for is said meanwhile.
waited_for() {
    in_lab sh -c 'boxdrill run --yes a.tag >/dev/null 2>/tmp/err & sleep 0.7; kill -STOP $(pidof incusd); sleep 8
        kill -CONT $(pidof incusd); wait' </dev/null
    check "a line after four seconds of silence" in_lab grep -qE '^boxdrill: [4-6] s: ' /tmp/err
    check "it says what is waited for" in_lab grep -qE '^boxdrill: [0-9]+ s: .*waiting [0-9]+ s for [a-z.]+' /tmp/err
    in_lab script -qec 'stty cols 60; boxdrill run --yes c.private' /tmp/typescript </dev/null >/dev/null
    check "on a terminal it is one line that lives" in_lab grep -q "$(printf '\r\033\\[K[0-9]* s: phase C: c.private')" /tmp/typescript
    check "which is gone in the end" in_lab sh -c 'tail -n 1 /tmp/typescript | grep -vq " s: "'
    check "with --json" drill 0 --json --only a.columns
    check "stdout is JSON, line by line" eval 'jq -es "all(type == \"object\")" "$DIR/out" >/dev/null'
}

# What was done of a mint that failed is told.
unmintable() {
    site 'image = { alias = "nosuch" }'
    check "no such image: exit 3" drill 3 --site /root/site.lua --only c.egress
    check "the mint says how far it came" says 'could not be minted: bd-[0-9a-f]+-[ab]: create: .* \(before: nothing\)'
    check "nothing left" nothing_left
}

selected
waited_for
unmintable
logged
small
finish
