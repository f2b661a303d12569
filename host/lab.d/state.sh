# shellcheck shell=bash
# Sourced by host/lab: what a lab leaves on the machine while it is up, and taking it away.
#
#   /run/boxdrill-lab/NAME/   up.pid keeper.pid init.pid since disks.dev loops breaks/...
#   CGROUP/boxdrill-lab.NAME  every process of the lab

# --- processes, told apart by start time, since ids are used again -----------------------------

start_time() {
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    # The name in field two may hold blanks and parentheses; count from its end.
    stat=${stat##*) }
    # shellcheck disable=SC2086 # split into fields
    set -- $stat
    printf '%s' "${20}"
}

# same_process FILE: FILE holds "PID START" of a process that is still that process.
same_process() {
    local pid start
    { read -r pid start <"$1"; } 2>/dev/null || return 1
    [ -n "$start" ] && [ "$(start_time "$pid")" = "$start" ]
}

remember() { printf '%s %s\n' "$2" "$(start_time "$2")" >"$STATE/$1"; }

# init is a zombie for a moment after a kill, and counts as dead.
lab_alive() {
    same_process "$STATE/init.pid" && ! grep -q '^State:.Z' "/proc/$(lab_pid)/status" 2>/dev/null
}
lab_pid() { local pid; read -r pid _ <"$STATE/init.pid" && printf '%s' "$pid"; }
up_alive() { same_process "$STATE/up.pid"; }
keeper_alive() { same_process "$STATE/keeper.pid"; }
lab_known() { [ -d "$STATE" ] || [ -d "$(cgroup_path)" ]; }

# --- the cgroup ----------------------------------------------------------------------------------

cgroup_mount() { awk '{ for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo; }
# shellcheck disable=SC2153 # NAME is host/lab's
cgroup_path() { printf '%s/boxdrill-lab.%s' "$CGROUP2" "$NAME"; }

cgroup_empty() { ! grep -q '^populated 1' "$1/cgroup.events" 2>/dev/null; }

kill_cgroup() {
    local pid
    if [ -e "$1/cgroup.kill" ]; then
        echo 1 >"$1/cgroup.kill"
    else
        find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r pid; do
            kill -KILL "$pid" 2>/dev/null
        done
    fi
}

remove_cgroup() { find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null; [ ! -d "$1" ]; }

# --- one state folder a lab --------------------------------------------------------------------

# The lock is on the folder itself, so that no lock file is left. Whoever got hold of a folder
# that was removed meanwhile tries again.
lock_base() {
    while :; do
        mkdir -p "$BASE" && exec {BASE_LOCK}<"$BASE" || return 1
        flock "$BASE_LOCK"
        [ "/proc/self/fd/$BASE_LOCK" -ef "$BASE" ] && return 0
        exec {BASE_LOCK}<&-
    done
}

unlock_base() {
    rmdir "$BASE" 2>/dev/null
    exec {BASE_LOCK}<&-
}

claim_state() {
    lock_base || exit 1
    if lab_known; then
        if lab_alive; then refuse "a lab named '$NAME' is already up"; fi
        if up_alive; then refuse "a lab named '$NAME' is being brought up right now"; fi
        note "clearing what a killed lab named '$NAME' left"
        take_down_locked || refuse "'$NAME' is not gone: $LEFT"
    fi
    mkdir -m 0700 "$STATE" || exit 1
    remember up.pid $$
    loop_devices >"$STATE/loops"
    date '+%Y-%m-%d %H:%M:%S' >"$STATE/since"
    unlock_base
}

# --- taking it away ------------------------------------------------------------------------------

# A killed `up` takes its build down with it; the lab itself falls to take_down.
stop_up() {
    local pid
    up_alive || return 0
    read -r pid _ <"$STATE/up.pid"
    note "ending the 'lab up' that is at work (process $pid)"
    kill -KILL "$pid"
}

# The loop devices on files of this lab: the number of the file system they lie on is the lab's
# alone, for as long as one of them holds it.
lab_loops() {
    local dev
    [ -s "$STATE/disks.dev" ] || return 0
    dev=$(cat "$STATE/disks.dev")
    losetup -n -l -O NAME,BACK-MAJ:MIN | awk -v dev="$dev" '$2 == dev { print $1 }'
}

# A mounted one lets go with the mount. But Incus asks for that only once it is mounted, so one
# that was made a moment before the kill has to be taken off by hand.
free_loops() {
    local loop
    until_true 10 no_lab_loops && return 0
    for loop in $(lab_loops); do losetup -d "$loop" 2>/dev/null; done
    until_true 250 no_lab_loops
}

no_lab_loops() { [ -z "$(lab_loops)" ]; }

loop_devices() { (cd /sys/block && printf '%s\n' loop*); }

# A machine that makes loop devices on demand keeps an idle one in /dev; those that were not
# there before this lab go with it. Losetup of Debian 12 cannot, perl-base is always there.
drop_new_loops() {
    local loop
    for loop in "$@"; do
        loop=${loop#/dev/}
        if [ -e "$STATE/loops" ] && ! grep -qxF "$loop" "$STATE/loops"; then
            until_true 25 drop_loop "${loop#loop}"
        fi
    done
}

# 0x4C81 is LOOP_CTL_REMOVE; it is refused while anybody uses the device.
drop_loop() {
    perl -e 'open(my $c, "<", "/dev/loop-control") or exit 1; ioctl($c, 0x4C81, 0 + $ARGV[0]) or exit 1' "$1" 2>/dev/null
}

# until_true TRIES COMMAND...: a try every 20 ms.
until_true() {
    local tries=$1
    shift
    until "$@"; do
        [ "$((tries -= 1))" -gt 0 ] || return 1
        sleep 0.02
    done
}

take_down() {
    local rc=0
    lock_base || return 1
    take_down_locked || rc=$?
    unlock_base
    put_back_inotify
    return "$rc"
}

# LEFT says what is not gone.
take_down_locked() {
    local cg loops file
    cg=$(cgroup_path)
    mapfile -t loops < <(lab_loops)
    for file in keeper.pid init.pid; do
        if same_process "$STATE/$file"; then kill -KILL "$(cut -d' ' -f1 "$STATE/$file")" 2>/dev/null; fi
    done
    if [ -d "$cg" ]; then
        kill_cgroup "$cg"
        until_true 500 cgroup_empty "$cg" || { LEFT="processes in $cg"; return 1; }
        until_true 100 remove_cgroup "$cg" || { LEFT="cgroup $cg"; return 1; }
    fi
    free_loops || { LEFT="loop device $(lab_loops | paste -sd' ' -)"; return 1; }
    drop_new_loops ${loops[@]+"${loops[@]}"}
    rm -rf --one-file-system "$STATE" || { LEFT="folder $STATE"; return 1; }
}

# --- the one setting of the whole machine ------------------------------------------------------

# The record holds the value found, then the labs that asked for more.
raise_inotify() {
    local was
    lock_base || return 1
    was=$(cat "$INOTIFY")
    if [ -e "$BASE/inotify" ] || [ "$was" -lt "$INOTIFY_WANTED" ]; then
        [ -e "$BASE/inotify" ] || echo "$was" >"$BASE/inotify"
        echo "$NAME" >>"$BASE/inotify"
        note "setting fs.inotify.max_user_instances of this machine from $was to $INOTIFY_WANTED until '$NAME' is down"
        echo "$INOTIFY_WANTED" >"$INOTIFY"
    fi
    unlock_base
}

# Runs at the start of every command too, so that a killed lab's setting does not stay.
put_back_inotify() {
    [ -e "$BASE/inotify" ] || return 0
    lock_base || return 1
    if [ -e "$BASE/inotify" ] && ! inotify_wanted; then
        # Changed by somebody else since: then it is theirs.
        if [ "$(cat "$INOTIFY")" = "$INOTIFY_WANTED" ]; then
            note "putting fs.inotify.max_user_instances back to $(head -n 1 "$BASE/inotify")"
            head -n 1 "$BASE/inotify" >"$INOTIFY"
        fi
        rm -f "$BASE/inotify"
    fi
    unlock_base
}

inotify_wanted() {
    local name STATE
    while read -r name; do
        STATE=$BASE/$name
        if lab_alive || up_alive; then return 0; fi
    done < <(tail -n +2 "$BASE/inotify")
    return 1
}

# --- status --------------------------------------------------------------------------------------

status_line() {
    local since broken=
    since=$(cat "$STATE/since" 2>/dev/null)
    [ ! -d "$STATE/breaks" ] || broken=$(cd "$STATE/breaks" && printf ' %s' *)
    if up_alive; then
        printf '%s: being brought up since %s\n' "$NAME" "$since"
    elif ! lab_alive; then
        printf '%s: dead, its leftovers are still here (lab down --name %s)\n' "$NAME" "$NAME"
    elif [ -e "$STATE/up.pid" ]; then
        printf '%s: half up since %s, its lab up was killed (lab down --name %s)\n' "$NAME" "$since" "$NAME"
    else
        printf '%s: up since %s, init is process %s, broken:%s\n' "$NAME" "$since" "$(lab_pid)" "${broken:- nothing}"
    fi
}
