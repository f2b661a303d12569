#!/bin/bash
# Builds boxdrill, brings up a disposable Incus host (host/lab), drills it, takes it down.
# Whatever Incus this machine has is not touched.
set -euo pipefail
# shellcheck source=host/prepare.sh
. "$(dirname "${BASH_SOURCE[0]}")/prepare.sh"

usage() {
    cat <<'END'
usage: host/try.sh [--yes] [DRILL-OPTION...]

Builds boxdrill, brings up a real Incus host in namespaces of its own, runs
`boxdrill drill.lua` in it, prints the report and takes the host down again.
Nothing leaves this machine but apt's own downloads; the lab's userland and box
image are cached (in /var/cache/boxdrill, or where BOXDRILL_CACHE points).

  --yes     install the build tools that are missing without asking
  --help    this text
Anything else is passed to drill.lua.

Exit status: the drill's own; 2 for usage or privilege.
END
}

YES=0
DRILL=()
for argument; do
    case $argument in
    --help | -h) usage && exit 0 ;;
    --yes) YES=1 ;;
    *) DRILL+=("$argument") ;;
    esac
done

need_root
NAME=try$$
LAB=$ROOT/host/lab
took_down=0

# Nothing interrupts it: a second Ctrl-C, or a reader that went away, would leave the lab's remains.
take_down() {
    trap '' INT TERM HUP PIPE
    [ "$took_down" = 0 ] || return 0
    took_down=1
    step "take the lab down" "$LAB" down --name "$NAME"
}

install_packages "$YES" "${BUILD_PACKAGES[@]}" "${LAB_PACKAGES[@]}"
build release -DBOXDRILL_TESTS=OFF
# Before a lab is brought up for nothing: --dry-run refuses what the drill would refuse.
options=0
"$STAGE/bin/boxdrill" drill.lua --dry-run "${DRILL[@]}" >/dev/null 2>"$ROOT/build/options.log" || options=$?
if [ "$options" = 2 ]; then
    cat "$ROOT/build/options.log" >&2
    exit 2
fi
trap take_down EXIT
step "bring up the lab (the first time builds its userland and box image: some minutes)" \
    "$LAB" up --name "$NAME"
say "==> boxdrill drill.lua"
status=0
"$LAB" run --name "$NAME" -- boxdrill drill.lua --yes "${DRILL[@]}" || status=$?
take_down
exit "$status"
