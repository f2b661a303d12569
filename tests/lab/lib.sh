# What the tests in the lab share, to be sourced: a lab of the test's own, checks, verdicts.
# shellcheck shell=bash
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB=$HERE/../../host/lab
DIR=$(mktemp -d)
passed=0 failed=0 NAME=

lab() { "$LAB" "$1" --name "$NAME" "${@:2}" 2>>"$DIR/lab.log"; }
in_lab() { "$LAB" run --name "$NAME" -- "$@"; }

# lab_up NAME ARG...: a lab of that name and this process (other checkouts may be testing too), `lab up` with these
# arguments; from here on, taken down at the end however that comes.
lab_up() {
    NAME=$1-$$
    trap 'lab down; rm -rf "$DIR"' EXIT
    # Phase B has up to eight boxes at a time, and tests run side by side.
    lab up --many-boxes "${@:2}" || {
        cat "$DIR/lab.log"
        echo "0 passed, 1 failed"
        exit 1
    }
}

# check TEXT COMMAND...: one test; it passes when the command succeeds.
check() {
    local text=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        printf 'ok: %s\n' "$text"
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n' "$text"
    fi
}

# drill EXPECTED-STATUS ARG...: a drill in the lab, its report in $DIR/out.
drill() {
    local expected=$1 status=0
    shift
    in_lab timeout -k 10 200 boxdrill drill.lua --yes "$@" >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    [ "$status" = "$expected" ] || {
        echo "    status $status, expected $expected"
        cat "$DIR/out" "$DIR/err"
        return 1
    }
}

# Verdicts of the report, "ID=VERDICT", sorted; of the healthy lab's all are PASS but these: it has no KVM, and
# its contract names no template with a program.
HEALTHY=(-e '=PASS$' -e '^c.boundary=NOTE$' -e '^b.template.program=SKIP$')
verdicts() { sed -nE 's/^(PASS|FAIL|NOTE|SKIP|SUSPECT|ERROR|VETO) +([a-d]\.[a-z0-9.]+) .*/\2=\1/p' "$DIR/out" | sort; }

# The cells that ROW of expected.txt turns.
expected_cells() { sed -n "s/^$1 //p" "$HERE/expected.txt" | tr ' ' '\n' | grep . | sort; }

# cells_match ROW: every probe of the installation has a verdict, and exactly the row's differ.
cells_match() {
    local differ
    differ=$(verdicts | grep -v "${HEALTHY[@]}")
    if [ "$differ" != "$(expected_cells "$1")" ]; then
        echo "    expected: $(expected_cells "$1" | tr '\n' ' ')"
        echo "    seen:     $(tr '\n' ' ' <<<"$differ")"
        cat "$DIR/out"
        return 1
    fi
    [ "$(verdicts | wc -l)" = "$(in_lab sh -c 'ls /usr/local/share/boxdrill/probes | grep -cv "^h[.]"')" ]
}

# only_cells ROW: of the probes that ran exactly the row's differ. A cell may be `ID=A|B`: one of them; `*` in the row:
# the others are not looked at.
only_cells() {
    local cell id seen told=
    while read -r cell; do
        [ -n "$cell" ] || continue
        [ "$cell" != '*' ] || { told='.*'; continue; }
        id=${cell%%=*} seen=$(verdicts | sed -n "s/^${cell%%=*}=//p")
        [[ $seen =~ ^(${cell#*=})$ ]] || { echo "    $id is '$seen', not ${cell#*=}"; cat "$DIR/out"; return 1; }
        told+="${told:+|}${id//./\\.}=.*"
    done <<<"$(expected_cells "$1")"
    seen=$(verdicts | grep -v "${HEALTHY[@]}" | grep -vxE "${told:-none}")
    [ -z "$seen" ] || { echo "    besides: $seen"; cat "$DIR/out"; return 1; }
    verdicts | grep -q .
}

# Nothing of a run is left in the lab: no instance (but the one that an operator named like ours), network, ACL or profile, no link, no firewall chain, no
# folder, no recorded output, no process.
nothing_left() {
    local left
    left=$(in_lab sh -c 'incus list --all-projects -f csv -c n | grep "^bd-" | grep -vx bd-0123abcd-a
        for kind in network "network acl" profile; do
            incus $kind list --all-projects -f csv | tr , "\n" | grep "^bd-"
        done
        ls -d /sys/class/net/bd-* /var/lib/incus/networks/bd-* 2>/dev/null
        nft list ruleset | grep -E "bd-[0-9a-f]{8}"
        grep -lsE "interface=[b]d-" /proc/[0-9]*/cmdline
        find /run -maxdepth 1 -name "boxdrill-*"
        find /var/lib/incus /var/log/incus -path "*exec-output/*" -type f 2>/dev/null
        grep -lsE "^(boxdrill.*|bd:.*|guest)$" /proc/[0-9]*/comm')
    [ -z "$left" ] || {
        printf '    left: %s\n' "$left"
        return 1
    }
}

# signal_boxdrill SIGNAL: to every boxdrill process in the lab (its userland has no pkill).
signal_boxdrill() {
    in_lab sh -c 'for f in $(grep -lsx boxdrill /proc/[0-9]*/comm); do f=${f#/proc/}; kill -'"$1"' "${f%/comm}"; done'
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
