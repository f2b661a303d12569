# What the engine's tests share, to be sourced. STAGE is where boxdrill is installed.
# shellcheck shell=bash
: "${STAGE:?}"
BOXDRILL=$STAGE/bin/boxdrill
DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT
passed=0 failed=0

# script NAME: writes stdin to a script of that name and prints its path.
script() {
    cat >"$DIR/$1.lua"
    printf '%s' "$DIR/$1.lua"
}

# check TEXT COMMAND...: one test; it passes when the command succeeds.
check() {
    local text=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n' "$text"
        sed 's/^/    | /' "$DIR/out" "$DIR/err" 2>/dev/null
    fi
}

# run EXPECTED-STATUS ARG...: runs boxdrill; its output is in $DIR/out and $DIR/err.
run() {
    local expected=$1 status=0
    shift
    timeout -k 5 60 "$BOXDRILL" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    [ "$status" = "$expected" ] || {
        echo "    status $status, expected $expected"
        return 1
    }
}

says() { grep -qF -- "$1" "$DIR/out"; }
complains() { grep -qF -- "$1" "$DIR/err"; }
one_line() { [ "$(wc -l <"$DIR/err")" = 1 ] && [ ! -s "$DIR/out" ]; }

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
