#!/bin/bash
# Everything that is tested: sets the machine up as host/try.sh does, builds, runs every test.
set -euo pipefail
# shellcheck source=host/prepare.sh
. "$(dirname "${BASH_SOURCE[0]}")/../host/prepare.sh"

usage() {
    cat <<'END'
usage: tests/run.sh [--yes] [--full] [-R REGEX]

Installs what is missing (asks, unless --yes), builds the release and the sanitizer
preset, and runs every test: C units, the Lua library in the sandbox, the engine, the
linters, and the drills in the lab on a real Incus.

  --full     also the long runs (repeats)
  -R REGEX   only the tests whose name matches

Exit status: 0, all passed and something ran; 1 else; 2 usage or privilege.
END
}

TEST_PACKAGES=(libcmocka-dev nftables iproute2 procps jq clang-format clang-tidy cppcheck lua-check shellcheck git)
YES=0 FULL=0 ONLY=.
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage && exit 0 ;;
    --yes) YES=1 ;;
    --full) FULL=1 ;;
    -R) [ $# -gt 1 ] || refuse "-R needs a regular expression"
        ONLY=$2 && shift ;;
    *) refuse "unknown option '$1' (see --help)" ;;
    esac
    shift
done

# tests PRESET: runs a preset's tests; the results go to build/PRESET/results.xml.
tests() {
    ctest --test-dir "$ROOT/build/$1" -R "$ONLY" -j "$(nproc)" --output-on-failure \
        --output-junit "$ROOT/build/$1/results.xml" || true
}

# count PRESET ATTRIBUTE: a number of the suite's head.
count() {
    sed -n "/<testsuite /,/>/s/.*[[:space:]]$2=\"\([0-9]*\)\".*/\1/p" "$ROOT/build/$1/results.xml" | head -n 1
}

# named PRESET STATUS: the tests with that status, one a line.
named() {
    sed -n "s/.*<testcase name=\"\([^\"]*\)\".*status=\"$2\".*/$1: \1/p" "$ROOT/build/$1/results.xml"
}

need_root
install_packages "$YES" "${BUILD_PACKAGES[@]}" "${LAB_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
export BOXDRILL_FULL=$FULL
build release -DBOXDRILL_TESTS=ON
build asan -DBOXDRILL_TESTS=ON
# Once by itself, so that no test's time runs out while the userland and the box image are built.
step "bring a lab up once" "$ROOT/host/lab" up --no-setup --name "run$$"
step "and down" "$ROOT/host/lab" down --name "run$$"

total=0 failed=0 skipped=0
rm -f "$ROOT"/build/{release,asan}/results.xml
for preset in release asan; do
    say "==> tests ($preset)"
    tests "$preset"
    total=$((total + $(count "$preset" tests)))
    failed=$((failed + $(count "$preset" failures)))
    skipped=$((skipped + $(count "$preset" skipped)))
done
for preset in release asan; do
    named "$preset" fail | sed 's/^/FAILED /'
    named "$preset" notrun | sed 's/^/SKIPPED /'
done
passed=$((total - failed - skipped))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
