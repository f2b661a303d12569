#!/bin/bash
# Phase A can go red: a client that behaves otherwise than the real one, in one way at a time, turns
# exactly that probe. The daemon is the real one; only what a box CLI would see of it is bent.
set -uo pipefail
# shellcheck source=tests/lab/lib.sh
. "$(dirname "$0")/lib.sh"
lab_up test-phase-a

# The words of the client's command line are in $*; `real` is the client itself.
declare -A BENT=(
    [a.tag]='case "$*" in *"config get"*" user.box") echo 2; exit ;; esac'
    [a.filter]='case "$*" in *" list user.box=1 "*) exec "$real" list --format csv --columns n ;; esac'
    [a.columns]='case "$*" in *"--columns nstS") "$real" "$@" | sed s/CONTAINER/"CONTAINER,x"/; exit ;; esac'
    [a.state]='case "$*" in *"--columns s") "$real" "$@" | sed s/RUNNING/Running/; exit ;; esac'
    [a.rename]='case "$*" in *" rename "*) exit 0 ;; esac'
    [a.snapshot]='case "$*" in *" snapshot list "*) "$real" "$@" | sed s/^/1,/; exit ;; esac'
    [a.ipv4]='case "$*" in *"--columns 4") "$real" "$@" | head -n 1; exit ;; esac'
    [a.unset]='case "$*" in *"never-set") echo "Error: not set" >&2; exit 1 ;; esac'
    [a.copy]='case "$*" in *" copy "*) "$real" "$@" && "$real" config unset "${@: -1}" user.box; exit ;; esac'
    [a.delete]='case "$*" in *" delete -f "*) shift 4; for n; do "$real" delete -f "$n" 2>/dev/null; done; exit 1 ;; esac'
)

in_lab mv /usr/bin/incus /usr/bin/incus.real
bend() {
    printf '#!/bin/bash\nreal=/usr/bin/incus.real\n%s\nexec "$real" "$@"\n' "$1" >"$DIR/incus"
    in_lab sh -c 'cat >/usr/bin/incus; chmod 755 /usr/bin/incus' <"$DIR/incus"
}

only() {
    local differ
    differ=$(verdicts | grep -v '=PASS$')
    [ "$differ" = "$1=FAIL" ] || {
        echo "    seen: $differ"
        cat "$DIR/out"
        return 1
    }
}

bend ''
check "the wrapper alone changes nothing" drill 0 --only A
for probe in "${!BENT[@]}"; do
    bend "${BENT[$probe]}"
    check "$probe bent: exit 1" drill 1 --only A
    check "$probe bent: exactly $probe is FAIL" only "$probe"
done
bend 'exec sleep 1000'
check "a client that never answers: exit 3" drill 3 --only A
check "it passes nothing" [ "$(verdicts | grep -c '=PASS$')" = 0 ]
in_lab sh -c 'cp /usr/bin/incus.real /usr/bin/incus.tmp; rm /usr/bin/incus'
check "no client: exit 3" drill 3 --only A
check "it passes nothing" [ "$(verdicts | grep -c '=PASS$')" = 0 ]
in_lab mv /usr/bin/incus.tmp /usr/bin/incus
check "nothing left" nothing_left
finish
