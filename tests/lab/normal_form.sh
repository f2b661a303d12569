# The host's normal form: everything a run could have changed, as text that is the same before and after
# one that left nothing behind. To be sourced after lib.sh; `normal_form >FILE`. What is left out, each
# with its reason:
#   Incus: volatile.*, last_used_at, created_at, uploaded_at, expires_at (Incus's own bookkeeping),
#          used_by (follows from the other objects), and `state` of instances (counters)
#   Incus: cached images and image refresh times: a mint may fetch the image that the contract names
#   nft:   handles and counters (numbers that every rewrite of a chain renews); an empty `table bridge incus`, which
#          Incus makes for the first filtered NIC and never removes
#   links: indexes, and the random names of veths (the master and the kind stay)
#   processes: kernel threads (no argv), and whatever this very listing runs
#   files: /var/lib/incus/database (raft segments), the btrfs pool's own file, logs that only grow, and the
#          folder /var/log/incus/NAME of a deleted instance and the log dnsmasq.NAME.log of a deleted network,
#          which Incus 6.0.4 leaves behind whoever deletes it (what is in its exec-output is not left out)
# shellcheck shell=bash

# incus_objects PATH: one REST collection of all projects, in full.
incus_objects() {
    in_lab incus query "/1.0/$1?recursion=1&all-projects=true" 2>/dev/null | jq -S '
        def clean: walk(if type == "object" then
            del(.last_used_at, .created_at, .uploaded_at, .expires_at, .used_by, .state, .last_seen_at, .fingerprint)
            | with_entries(select(.key | startswith("volatile.") | not)) else . end);
        clean'
}

rules() {
    in_lab nft -j list ruleset | jq -S '[.nftables[] | walk(if type == "object" then del(.handle, .counter) else . end)]
        | if any(.[]; .chain.family == "bridge" and .chain.table == "incus") then .
          else map(select(.table.family != "bridge" or .table.name != "incus")) end'
}

links() {
    in_lab ip -d -j link | jq -S '[.[] | {kind: .linkinfo.info_kind, master, flags: (.flags | sort),
        isolated: .linkinfo.info_slave_data.isolated,
        name: (if .linkinfo.info_kind == "veth" then "veth" else .ifname end)}] | sort_by(tostring)'
}

processes() {
    in_lab sh -c 'for f in /proc/[0-9]*/cmdline; do tr "\0" " " <$f 2>/dev/null; echo; done' |
        grep -vE '^$|^sh -c for f|^tr |forkexec|nsenter|^/usr/bin/env|^\(sd-|udev-worker|systemd-userwork|nft -j|ip -d|^cat ' | sort
}

files() {
    in_lab sh -c 'find /var/lib/incus /var/log/incus /var/lib/boxdrill /etc /run/boxdrill* -xdev 2>/dev/null' |
        grep -vE '^/var/lib/incus/(database|disks|images)/|/(lxc|incusd|qemu|console|forkstart|dnsmasq)[a-z.]*log|/etc/(mtab|resolv.conf)|/seccomp|/security/|lxc.conf|/var/lib/boxdrill(/lock)?$|^/var/log/incus/(bd-[0-9a-f]{8}-[^/]*|x)(/forkexec.log)?$|^/var/log/incus/dnsmasq[.]bd-[0-9a-f]{8}-[^/]*[.]log$|\.leases' | sort
}

normal_form() {
    local what
    for what in instances networks network-acls profiles storage-pools projects; do
        echo "== $what"
        incus_objects "$what"
    done
    for what in rules links processes files; do
        echo "== $what"
        "$what"
    done
}
