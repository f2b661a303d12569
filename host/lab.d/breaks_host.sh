# shellcheck shell=bash
# Sourced by host/lab: walls of the host that are no such ones, or others than the contract's.

host_help() {
    cat <<'TEXT'
  reject-reset, reject-port, reject-host, reject-admin
              (no hole) the host rejects what it drops: TCP with a reset; with ICMP's port-unreachable,
              host-unreachable, admin-prohibited
  uplink      the host's own rules let boxes at the uplink's address; the gateway's is closed
  nowhere     the ACL lets boxes at one private address, and nobody is there
  resolver    a resolver at another bridge's address knows the boxes that are up now, and answers boxes
TEXT
}

readonly UPLINK=203.0.113.2 OTHER_BRIDGE=lab-other OTHER_GATEWAY=10.99.0.1 NOBODY=172.16.9.9
readonly FORBIDDEN='10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 169.254.0.0/16, 100.64.0.0/10'

# --- walls that reject -----------------------------------------------------------------------------------

reject_words() {
    case $1 in
        reset) printf '%s\n' "meta l4proto tcp $2 reject with tcp reset" "$2 reject" ;;
        port) echo "$2 reject with icmpx port-unreachable" ;;
        host) echo "$2 reject with icmpx host-unreachable" ;;
        admin) echo "$2 reject with icmpx admin-prohibited" ;;
    esac
}

# Before everybody else's chains, and of what these drop only.
reject_table() {
    cat <<NFT
table inet lab_reject {
    chain forward { type filter hook forward priority -10
        ct state established,related accept
        $(reject_words "$1" "iifname \"$NET\" ip daddr { $FORBIDDEN }")
    }
    chain input { type filter hook input priority -10
        iifname != "$NET" accept
        ct state established,related accept
        udp dport { 53, 67 } accept
        ip daddr $GATEWAY tcp dport 53 accept
        $(reject_words "$1" "")
    }
}
NFT
}

whole_reject() { ! has_table inet lab_reject; }
broken_reject() { has_table inet lab_reject; }
save_and_break_reject() { reject_table "$PART" >"$SAVED/table" && mend_table; }
mend_reject() { lab_do nft delete table inet lab_reject; }

# --- holes -------------------------------------------------------------------------------------------------

# let_in ADDRESS MORE: a rule before all others of the host's own.
let_in() { lab_do nft insert rule inet box input iifname "$NET" ip daddr "$1" "${@:2}" accept; }
lets_in() { grep -q "daddr $1 .*accept" <<<"$(table inet box)"; }
put_back_box() { { ! has_table inet box || lab_do nft delete table inet box; } && mend_table; }

whole_uplink() { has_table inet box && ! lets_in "$UPLINK"; }
broken_uplink() { lets_in "$UPLINK"; }
save_and_break_uplink() { save_table inet box && let_in "$UPLINK" ct state new; }
mend_uplink() { put_back_box; }

# Routed to a link where nobody answers ARP: what is let through comes back as "host unreachable", late.
route_to_nobody() { [ -n "$(lab_get ip route show "$NOBODY/32")" ]; }
whole_nowhere() { ! route_to_nobody && acl_drops "172.16.0.0/12"; }
broken_nowhere() { route_to_nobody && acl_drops "172.16.0.0-172.16.9.8" && ! acl_drops "172.16.0.0/12"; }
save_and_break_nowhere() {
    lab_do ip route add "$NOBODY/32" dev "$OTHER_BRIDGE" &&
        acl_open 172.16.0.0/12 172.16.0.0-172.16.9.8,172.16.9.10-172.31.255.255
}
mend_nowhere() { { ! route_to_nobody || lab_do ip route del "$NOBODY/32"; } && acl_mend; }

# --- a resolver of somebody else's ---------------------------------------------------------------------------

whole_resolver() { has_table inet box && ! dns_answers "$OTHER_GATEWAY"; }
broken_resolver() { lets_in "$OTHER_GATEWAY" && dns_answers "$OTHER_GATEWAY"; }
save_and_break_resolver() {
    our_boxes || return 1
    our_addresses | sed 's/ .*/&&.incus/' | in_lab tee /run/lab-resolver.hosts >"$SAVED/hosts"
    save_table inet box && let_in "$OTHER_GATEWAY" meta l4proto '{ tcp, udp }' th dport 53 &&
        lab_do systemd-run -q --unit lab-resolver dnsmasq --keep-in-foreground --conf-file=/dev/null \
            --bind-interfaces --listen-address="$OTHER_GATEWAY" --no-resolv --no-hosts \
            --addn-hosts=/run/lab-resolver.hosts --address=/example.com/198.51.100.80
}
mend_resolver() { lab_do systemctl stop lab-resolver; lab_do rm -f /run/lab-resolver.hosts; put_back_box; }
