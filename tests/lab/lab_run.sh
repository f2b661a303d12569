#!/bin/bash
# What a run says of itself: its log, and what a small host gets.
# shellcheck disable=SC2016 # what stands in single quotes is expanded in the lab
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-run

says() { grep -qE "$1" "$DIR/out" "$DIR/err" || { cat "$DIR/out" "$DIR/err"; return 1; }; }
log_has() { in_lab grep -qE "$1" /root/log.md || { in_lab cat /root/log.md; return 1; }; }
site() { in_lab sh -c 'cat >/root/site.lua' <<<"return { $1 }"; }

logged() {
    check "a drill with --log: exit 0" drill 0 --phase A --log /root/log.md
    check "the section says where" log_has '^\| host \| .*Debian GNU/Linux 13, kernel .*no KVM'
    check "with which versions" log_has '^\| versions \| boxdrill [0-9.]+, Incus [0-9.]+, storage [a-z]+'
    check "what was counted" log_has '^\| verdicts \| 10 PASS \|'
    check "that nothing was found" log_has '^No findings'
    check "and the audit's answers" log_has '^\| B4 \| a.unset \| PASS \|'
    check "break dns-mode" lab break dns-mode
    check "a second: exit 1" drill 1 --phase C --log /root/log.md
    check "mend dns-mode" lab mend dns-mode
    check "it stands behind the first" [ "$(in_lab grep -c '^## ' /root/log.md)" = 2 ]
    check "with its finding" log_has '^- \*\*FAIL c.names\*\*'
    check "the clause" log_has '^        - clause: `'
    check "and the question by hand" log_has '^        - by hand: `'
    check "a log that cannot be written: exit 2" drill 2 --log /root/none/log.md
    check "and nothing was made" nothing_left
}

small() {
    site 'memory = { wanted = 99999999 }'
    check "a small host: the plan says so" drill 0 --site /root/site.lua --phase A --dry-run
    check "with figures" says 'SMALL HOST: [0-9]+ MiB are free, so each box gets [0-9]+ MiB of memory, not 99999999'
    check "single probes" in_lab sh -c 'boxdrill run --yes --site /root/site.lua --keep-boxes c.address >/tmp/out'
    check "say so too" in_lab grep -q 'small host: ' /tmp/out
    local box
    box=$(in_lab incus list -f csv -c n | grep -m1 ^bd-)
    check "the box has that limit" in_lab sh -c "incus config get $box limits.memory | grep -qE '^[0-9]+MiB\$'"
    in_lab sh -c 'incus list -f csv -c n | grep ^bd- | xargs -n 1 incus delete -f' </dev/null
    check "a drill" drill 0 --site /root/site.lua --phase B
    site 'memory = { wanted = 99999999, least = 99999999 }'
    check "a host too small: exit 4" drill 4 --site /root/site.lua
    check "and says what it would take" says 'refused: [0-9]+ MiB are free, .* less than 99999999'
    check "nothing was made" nothing_left
}

logged
small
finish
