# shellcheck shell=bash
# Sourced by host/lab: the ways to break one clause of the contract, and to put it back from
# what was saved at the break, so that mending does not lean on the thing under test.
#
# For each NAME: break_NAME does it, mend_NAME undoes it, whole_NAME and broken_NAME look at the
# kernel's or the daemon's own state. SAVED is the folder of this break. Some names are of a family: sibling-udp is
# sibling_part with PART=udp, reject-host is reject with PART=host.

readonly NET=boxnet GATEWAY=10.88.0.1 PROFILE=box-net ACL=box-isolate

breaks_help() {
    cat <<'TEXT'
  sibling     port isolation off, in the profile and on running boxes; the bridge's drop gone
  acl         the network ACL detached
  host-input  the host's own input drop gone
  ingress     the network's default ingress action is allow
  dns-mode    dns.mode=managed: boxes' names resolve
  dnsmasq     the network's resolver killed, and it stays dead
  ipv6        the network has IPv6 addresses
  no-egress   the pretend internet's end of the link is down
TEXT
    link_help
    host_help
    boxes_help
}

# Lines of names begin with two spaces, lines of words with more; a line of neither ends with a colon.
break_names() { breaks_help | grep -v ':$' | sed -nE 's/^  ([a-z].*)/\1/p' | sed -E 's/  .*//; s/, */\n/g'; }

# --- the two commands ------------------------------------------------------------------------------

cmd_break() {
    take_break_name break "$@"
    [ ! -d "$SAVED" ] || refuse "'$BREAK' is broken already (lab mend $BREAK)"
    "whole_$FN" || refuse "'$BREAK' cannot be broken: that clause does not hold now, or the stack is not set up"
    mkdir -p "$SAVED" || exit 1
    if "save_and_break_$FN" && wait_for 10 "broken_$FN"; then
        note "broken: $BREAK"
    else
        note "breaking '$BREAK' did not work; what was saved is in $SAVED"
        exit 1
    fi
}

cmd_mend() {
    take_break_name mend "$@"
    [ -d "$SAVED" ] || refuse "'$BREAK' is not broken"
    if "mend_$FN" && wait_for 10 "whole_$FN"; then
        rm -rf --one-file-system "$SAVED"
        rmdir "$STATE/breaks" 2>/dev/null
        note "mended: $BREAK"
    else
        note "mending '$BREAK' did not work; what was saved is in $SAVED"
        exit 1
    fi
}

take_break_name() {
    local verb=$1
    [ $# -eq 2 ] || refuse "$verb: wants one of: $(break_names | paste -sd' ' -)"
    BREAK=$2
    break_names | grep -qxF -e "$BREAK" ||
        refuse "$verb: no '$BREAK'; there are: $(break_names | paste -sd' ' -)"
    need_lab
    # shellcheck disable=SC2034 # the families read it
    PART=${BREAK#*-}
    case $BREAK in
        sibling-routed) FN=sibling_routed ;;
        sibling-*) FN=sibling_part ;;
        reject-*) FN=reject ;;
        *) FN=${BREAK//-/_} ;;
    esac
    SAVED=$STATE/breaks/$BREAK
}

# --- asking ----------------------------------------------------------------------------------------

lab_get() { in_lab timeout 20 "$@" </dev/null 2>/dev/null; }
lab_do() { in_lab timeout 60 "$@" </dev/null >/dev/null; }

net_get() { lab_get incus network get "$NET" "$1"; }
net_is() { [ "$(net_get "$1")" = "$2" ]; }
net_set() { lab_do incus network set "$NET" "$1=$2"; }
net_exists() { quiet_in_lab timeout 20 incus network show "$NET"; }
save_key() { net_get "$1" >"$SAVED/value"; }
mend_key() { net_set "$1" "$(cat "$SAVED/value")"; }

table() { lab_get nft -s list table "$@"; }
has_table() { [ -n "$(table "$@")" ]; }
save_table() { table "$@" >"$SAVED/table" && [ -s "$SAVED/table" ]; }
mend_table() { in_lab timeout 20 nft -f - <"$SAVED/table"; }
acl_chain() { lab_get nft list chain inet incus "acl.$NET" >/dev/null; }

# dns_answers ADDRESS: asks for example.com over UDP and wants one answer without error.
dns_answers() {
    local reply
    # shellcheck disable=SC2016 # the inner shell expands
    reply=$(lab_get timeout 3 bash -c '
        exec 3<>"/dev/udp/$1/53" &&
            printf "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01" >&3 &&
            timeout 2 dd bs=512 count=1 status=none <&3 | od -An -N8 -tx1' bash "$1")
    [[ $reply =~ ^\ 12\ 34\ [89a-f].\ .0\ 00\ 01\ 00\ 01 ]]
}

# --- sibling -----------------------------------------------------------------------------------------

isolation() { lab_get incus profile device get "$PROFILE" eth0 security.port_isolation; }

# ports_isolated 1|0: every port of the bridge has that value.
ports_isolated() {
    # shellcheck disable=SC2016
    quiet_in_lab sh -c 'for port in /sys/class/net/"$1"/brif/*; do
        [ -e "$port" ] || continue
        [ "$(cat "$port/isolated")" = "$2" ] || exit 1
    done' sh "$NET" "$1"
}

whole_sibling() { [ "$(isolation)" = true ] && has_table bridge box && ports_isolated 1; }
broken_sibling() { [ "$(isolation)" = false ] && ! has_table bridge box && ports_isolated 0; }
save_and_break_sibling() {
    save_table bridge box && lab_do nft delete table bridge box &&
        lab_do incus profile device set "$PROFILE" eth0 security.port_isolation=false
}
mend_sibling() {
    has_table bridge box || mend_table || return 1
    lab_do incus profile device set "$PROFILE" eth0 security.port_isolation=true
}

# --- the network's keys ------------------------------------------------------------------------------

whole_acl() { net_is security.acls "$ACL" && acl_chain; }
broken_acl() { net_exists && net_is security.acls "" && ! acl_chain; }
save_and_break_acl() { save_key security.acls && net_set security.acls ""; }
mend_acl() { mend_key security.acls; }

ingress=security.acls.default.ingress.action
last_ingress_rule() { lab_get nft list chain inet incus "acl.$NET" | grep "oifname \"$NET\"" | tail -n 1; }
whole_ingress() { net_is "$ingress" drop && [[ $(last_ingress_rule) == *drop* ]]; }
broken_ingress() { net_is "$ingress" allow && [[ $(last_ingress_rule) == *accept* ]]; }
save_and_break_ingress() { save_key "$ingress" && net_set "$ingress" allow; }
mend_ingress() { mend_key "$ingress"; }

whole_dns_mode() { net_is dns.mode none; }
broken_dns_mode() { net_is dns.mode managed; }
save_and_break_dns_mode() { save_key dns.mode && net_set dns.mode managed; }
mend_dns_mode() { mend_key dns.mode; }

has_ipv6() { [ -n "$(lab_get ip -6 address show dev "$NET" scope global)" ]; }
whole_ipv6() { net_is ipv6.address none && ! has_ipv6; }
broken_ipv6() { net_is ipv6.address fd42:b0d:411::1/64 && has_ipv6; }
save_and_break_ipv6() { save_key ipv6.address && net_set ipv6.address fd42:b0d:411::1/64; }
mend_ipv6() { mend_key ipv6.address; }

# --- host-input --------------------------------------------------------------------------------------

whole_host_input() { has_table inet box; }
broken_host_input() { ! has_table inet box; }
save_and_break_host_input() { save_table inet box && lab_do nft delete table inet box; }
mend_host_input() { has_table inet box || mend_table; }

# --- dnsmasq -----------------------------------------------------------------------------------------

whole_dnsmasq() { net_exists && dns_answers "$GATEWAY"; }
broken_dnsmasq() { net_exists && ! dns_answers "$GATEWAY"; }
save_and_break_dnsmasq() {
    # shellcheck disable=SC2016
    lab_do sh -c 'kill -KILL "$(sed -n "s/^pid: //p" "/var/lib/incus/networks/$1/dnsmasq.pid")"' sh "$NET"
}

# Incus starts it again only when a key really changes: one is changed, and changed back.
mend_dnsmasq() {
    local was
    was=$(net_get ipv4.dhcp.expiry)
    net_set ipv4.dhcp.expiry 61m && net_set ipv4.dhcp.expiry "$was"
}

# --- no-egress ---------------------------------------------------------------------------------------

internet_answers() { lab_get curl -s -m 2 -o /dev/null http://1.1.1.1/; }
whole_no_egress() { internet_answers; }
broken_no_egress() { ! internet_answers; }
save_and_break_no_egress() { lab_do /usr/lib/boxdrill-lab/net cut; }
mend_no_egress() { lab_do /usr/lib/boxdrill-lab/net link; }
