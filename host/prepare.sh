# What host/try.sh and tests/run.sh share, to be sourced: tell, install, build. Needs root, bash, apt.
# shellcheck shell=bash disable=SC2034 # what is defined here is used by those who source it

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
STAGE=$ROOT/build/stage
APT_WAIT=300 # seconds for which somebody else may hold apt's lock

# What building takes, and what the lab takes (host/lab says what each is for).
BUILD_PACKAGES=(gcc libc6-dev make cmake pkg-config liblua5.4-dev libcurl4-openssl-dev lua-cjson libseccomp-dev)
LAB_PACKAGES=(mmdebstrap debian-archive-keyring)

say() { printf '%s\n' "$*" >&2 || true; }

refuse() {
    say "${0##*/}: $*"
    exit 2
}

# step TEXT COMMAND...: says what is being done and how long it took; fails with the command.
step() {
    local text=$1 from=$EPOCHREALTIME status=0
    shift
    say "==> $text"
    "$@" || status=$?
    local us=$((${EPOCHREALTIME/[.,]/} - ${from/[.,]/}))
    local took="$((us / 1000000)).$((us / 100000 % 10)) s"
    if [ "$status" -ne 0 ]; then
        say "==> $text: FAILED (status $status) after $took"
        exit "$status"
    fi
    say "==> $text: done in $took"
}

# quiet LOG COMMAND...: output goes to the log, and is shown when the command fails.
quiet() {
    local log=$1
    shift
    mkdir -p "${log%/*}"
    "$@" >"$log" 2>&1 </dev/null && return
    local status=$?
    tail -n 40 "$log" >&2
    return "$status"
}

need_root() { [ "$(id -u)" = 0 ] || refuse "run it as root: sudo $0"; }

# missing PACKAGE...: those that are not installed, one a line.
missing() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

# The process that holds one of apt's locks: its pid and name, or nothing.
apt_lock_holder() {
    local file inode pid
    for file in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
        [ -e "$file" ] || continue
        inode=$(stat -c %i "$file")
        pid=$(awk -v inode="$inode" '{ split($6, a, ":"); if (a[3] == inode) { print $5; exit } }' /proc/locks)
        [ -z "$pid" ] || {
            echo "$pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
            return
        }
    done
}

wait_for_apt() {
    local holder waited=0
    while holder=$(apt_lock_holder) && [ -n "$holder" ]; do
        [ "$waited" -lt "$APT_WAIT" ] || refuse "apt's lock was held for $APT_WAIT s by process $holder: try again later"
        [ $((waited % 10)) -ne 0 ] || say "    waiting for apt's lock, held by process $holder ($waited s of $APT_WAIT)"
        sleep 1
        waited=$((waited + 1))
    done
}

apt() {
    wait_for_apt
    quiet "$ROOT/build/apt.log" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qy -o DPkg::Lock::Timeout=60 "$@"
}

update_and_install() {
    apt update
    apt install --no-install-recommends "$@"
}

# install_packages YES PACKAGE...: asks (unless YES is 1), then installs what is missing.
install_packages() {
    local yes=$1 packages answer
    shift
    mapfile -t packages < <(missing "$@")
    [ "${#packages[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null || refuse "needs these packages, and there is no apt-get: ${packages[*]}"
    if [ "$yes" = 1 ]; then
        say "Installing the packages that are missing: ${packages[*]}"
    else
        say "These packages are missing: ${packages[*]}"
        [ -t 0 ] || refuse "no terminal to ask on: run it with --yes"
        read -rp "Install them? [y/N] " answer || true
        [[ $answer == [yY]* ]] || refuse "not installed, nothing done"
    fi
    step "install packages" update_and_install "${packages[@]}"
}

configure_and_build() {
    local preset=$1
    shift
    # Where a status is looked at, as `step` does, bash does not end at a failure by itself.
    quiet "$ROOT/build/configure-$preset.log" cmake -S "$ROOT" --preset "$preset" "$@" &&
        quiet "$ROOT/build/build-$preset.log" cmake --build "$ROOT/build/$preset" -j "$(nproc)" &&
        quiet "$ROOT/build/install-$preset.log" cmake --install "$ROOT/build/$preset"
}

# build PRESET [CMAKE-OPTION...]: into build/PRESET, installed into the preset's stage.
build() {
    local preset=$1
    mkdir -p "$ROOT/build"
    (cd "$ROOT" && step "build ($preset)" configure_and_build "$@")
}
