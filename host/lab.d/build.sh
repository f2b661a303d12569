# shellcheck shell=bash
# Sourced by host/lab: the cached Debian tree and the box image, built once from the machine's
# own apt configuration. Nothing here names an archive; it is read from apt.

readonly LAB_SUITE=trixie

cache_dir() { printf '%s\n' "${BOXDRILL_CACHE:-/var/cache/boxdrill}"; }

# The cache's path becomes an option of the overlay mount.
check_cache() {
    case $(cache_dir) in
        *[:,\\]*) refuse "BOXDRILL_CACHE must not contain ':', ',' or a backslash" ;;
        /*) ;;
        *) refuse "BOXDRILL_CACHE must be an absolute path" ;;
    esac
}

# A cached thing is named after everything that decides what is in it.
recipe_key() {
    local seed=$1
    shift
    { printf '%s\n' "$seed" "$LAB_SUITE"; cd "$LAB_D" && find "$@" -type f -print0 | LC_ALL=C sort -z |
        xargs -0 sha256sum; } | sha256sum | cut -c1-16
}

tree_path() {
    printf '%s/tree-%s\n' "$(cache_dir)" "$(recipe_key "$(dpkg --print-architecture)" tree.packages tree.hook)"
}

image_path() {
    printf '%s/image-%s\n' "$(cache_dir)" "$(recipe_key "$(basename "$(tree_path)")" image.packages image.hook image)"
}

package_list() { grep -v '^#' "$LAB_D/$1" | paste -sd, -; }

# One line per Debian archive that apt knows: URI, release, label. apt itself reads both
# formats of its sources; the origin in the signed Release file tells Debian's archives from
# third parties' that use Debian's suite names.
debian_sources() {
    # shellcheck disable=SC2016 # these are apt's own variables
    apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(LABEL)|$(ORIGIN)|$(COMPONENT)' \
        'Created-By: Packages' 2>/dev/null | awk -F'|' '$4 == "Debian" && $5 == "main" && $1 !~ /^cdrom:/' | sort -u
}

# The machine's Debian archives with the suite swapped for the lab's, as one-line sources.
lab_sources() {
    local uri release label rest suite keyring=/usr/share/keyrings/debian-archive-keyring
    if [ -f "$keyring.gpg" ]; then keyring+=.gpg; else keyring+=.pgp; fi
    debian_sources | while IFS='|' read -r uri release label rest; do
        case $label:$release in
            Debian-Security:*) suite=$LAB_SUITE-security ;;
            Debian:*-updates) suite=$LAB_SUITE-updates ;;
            Debian:*-backports* | Debian:*-proposed*) continue ;;
            Debian:*) suite=$LAB_SUITE ;;
            *) continue ;;
        esac
        # apt adds a slash, which a list of mirrors in a file does not bear.
        printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "${uri%/}" "$suite"
    done | sort -u
}

# Proxies, retries and clock checks of the machine's apt hold for the build as well.
apt_options() {
    apt-config dump --format '%F "%v";%n' Acquire |
        grep -E '^Acquire::(Check-|Retries|ForceIPv|https?::|http::|Max-FutureTime|Queue-Mode)' |
        grep -v ':: \| "";$' || true
    printf 'Dir::Etc::netrc "/etc/apt/auth.conf";\nDir::Etc::netrcparts "/etc/apt/auth.conf.d/";\n'
}

# What a failed build prints must not name the machine's mirror.
hide_mirrors() {
    sed -E -e "s#[a-z+]+:/+[^ ']+#(archive)#g" -e "s#'[A-Za-z0-9.-]+'#(archive)#g" \
        -e 's#(onnect to|connecting to|IP:) [^ ]+#\1 (archive)#g'
}

# Runs a build step in a pid namespace of its own, which dies with us whatever kills us. It is
# started straight from this shell, not from a function in the background: the death signal
# follows the parent process, and that must be the `lab up` itself.
# run_build TEXT LOG COMMAND...
run_build() {
    local text=$1 log=$2 beat=0 rc=0
    shift 2
    setpriv --pdeathsig KILL -- unshare --mount --pid --fork --kill-child --mount-proc -- \
        "$@" >>"$log" 2>&1 </dev/null &
    BUILD_PID=$!
    while kill -0 "$BUILD_PID" 2>/dev/null; do
        sleep 0.5
        beat=$((beat + 1))
        [ $((beat % 20)) -ne 0 ] || note "$text: still at work, $((beat / 2)) s"
    done
    wait "$BUILD_PID" || rc=$?
    BUILD_PID=
    return "$rc"
}

# bootstrap TEXT VARIANT PACKAGES HOOK DIR NAME
bootstrap() {
    local hook dir=$5
    # shellcheck disable=SC2016 # mmdebstrap expands $1
    printf -v hook '%q "$1"' "$LAB_D/$4"
    run_build "$1" "$dir/log" env TMPDIR="$dir" LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        mmdebstrap --mode=root --format=directory --variant="$2" --include="$3" \
        --aptopt="$dir/apt.conf" --customize-hook="$hook" "$LAB_SUITE" "$dir/$6" "$dir/sources.list"
}

prepare_apt() {
    local dir=$1
    lab_sources >"$dir/sources.list"
    if ! [ -s "$dir/sources.list" ]; then
        note "apt has no package lists yet: running apt-get update"
        apt-get -q update >"$dir/log" 2>&1 || true
        lab_sources >"$dir/sources.list"
    fi
    [ -s "$dir/sources.list" ] || refuse "apt on this machine knows no Debian archive to build the lab from"
    apt_options >"$dir/apt.conf"
}

build_failed() {
    note "the build of the $1 failed; the end of its log:"
    tail -n 15 "$2" | hide_mirrors >&2
    return 1
}

build_tree() {
    bootstrap "lab tree" apt "$(package_list tree.packages)" tree.hook "$1" tree ||
        build_failed "lab tree" "$1/log"
}

# A box image the way an image server holds it: metadata tarball, squashfs, index. They are
# made with the tree's own tools: the machine needs neither squashfs nor Incus.
build_image() {
    local dir=$1 tree
    tree=$(tree_path)
    export LAB_IMAGE_FILES=$LAB_D/image LAB_CA=$tree/etc/boxdrill-lab/ca.crt
    bootstrap "box image" minbase "$(package_list image.packages)" image.hook "$dir" rootfs ||
        { build_failed "box image" "$dir/log"; return 1; }
    write_metadata "$dir" "$tree"
    run_build "box image" "$dir/log" bash "$LAB_D/image.pack" "$tree" "$dir" ||
        { build_failed "box image" "$dir/log"; return 1; }
}

write_metadata() {
    local dir=$1 debarch arch
    debarch=$(chroot "$2" dpkg --print-architecture)
    case $debarch in
        amd64) arch=x86_64 ;;
        arm64) arch=aarch64 ;;
        *) arch=$debarch ;;
    esac
    mkdir -p "$dir/meta/templates"
    cp "$LAB_D"/image/templates/* "$dir/meta/templates/"
    sed -e "s/@ARCH@/$arch/; s/@DEBARCH@/$debarch/; s/@DATE@/$(date +%s)/" \
        "$LAB_D/image/metadata.yaml.in" >"$dir/meta/metadata.yaml"
}

# ensure_built WHAT(tree|image) PATH: builds under a lock, into a folder that gets its final
# name only when it is whole.
ensure_built() {
    local what=$1 path=$2 cache lock dir
    [ -d "$path" ] && return 0
    cache=$(cache_dir)
    mkdir -p "$cache" || return 1
    exec {lock}>"$cache/lock"
    if ! flock -n "$lock"; then
        note "waiting: another lab is building in $cache"
        # In the background, so that a signal ends the wait at once.
        setpriv --pdeathsig KILL -- flock "$lock" &
        wait $! || return 1
    fi
    if ! [ -d "$path" ]; then
        # Whatever bears this name now was left by a builder that was killed.
        rm -rf --one-file-system "$cache"/building.*
        dir=$cache/building.$$
        mkdir -m 0700 "$dir"
        prepare_apt "$dir" {lock}>&-
        step "build the $what"
        if ! "build_$what" "$dir" {lock}>&-; then
            rm -rf --one-file-system "$dir"
            exec {lock}>&-
            return 1
        fi
        chmod 0755 "$dir/$what"
        mv "$dir/$what" "$path"
        rm -rf --one-file-system "$dir"
        step_done
    fi
    exec {lock}>&-
}
