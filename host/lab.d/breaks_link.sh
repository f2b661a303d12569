# shellcheck shell=bash
# Sourced by host/lab: walls between siblings of which one kind of frame gets through and no other. The ports'
# isolation, which lets nothing through, is off; what stands in its place is a bridge chain of the lab's own.

link_help() {
    cat <<'TEXT'
  sibling-tcp, sibling-udp, sibling-icmp
              only TCP, only UDP, only ICMP over IPv4 passes between the boxes' ports
  sibling-arp, sibling-arp-reply
              only ARP requests, only ARP replies
  sibling-nd, sibling-ip6
              only neighbour solicitations; only IPv6 between link-local addresses, without those
  sibling-multicast, sibling-all-hosts, sibling-llmnr, sibling-mdns
              only frames to groups; only to one of them
  sibling-broadcast, sibling-other, sibling-vlan
              only IPv4 to everybody, only what is neither IP nor ARP, only what has a VLAN's tag
  sibling-spoof-address, sibling-spoof-mac, sibling-spoof-both
              only what comes from the gateway's address, from another MAC than a box's, from both
  isolation   port isolation off; the bridge's own rules are left, and drop IPv4 and ARP within the subnet
  sibling-routed
              the ACL lets the boxes' own subnet through: siblings reach each other by way of the gateway
TEXT
}

readonly BOXES=10.88.0.2-10.88.0.254
# Incus gives boxes MACs that begin so.
readonly OWN='ether saddr & ff:ff:ff:00:00:00 == 10:66:6a:00:00:00' OTHER='ether saddr & ff:00:00:00:00:00 == 02:00:00:00:00:00'
readonly UNICAST='ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00'
readonly GROUP4='ether daddr & ff:ff:ff:80:00:00 == 01:00:5e:00:00:00' GROUP6='ether daddr & ff:ff:00:00:00:00 == 33:33:00:00:00:00'
readonly SOLICITED=ff02::1:ff00:0/104

# link_rules PART: what that part lets through, one rule a line.
link_rules() {
    local boxes="$OWN $UNICAST ip saddr $BOXES ip daddr $BOXES"
    case $1 in
        tcp | udp | icmp) echo "$boxes ip protocol $1" ;;
        arp) echo "$OWN arp operation request" ;;
        arp-reply) echo "$OWN arp operation reply" ;;
        nd) echo "$OWN ip6 daddr $SOLICITED" ;;
        ip6) echo "$OWN $UNICAST ip6 saddr fe80::/10 ip6 daddr fe80::/10" ;;
        multicast)
            echo "$OWN $GROUP4"
            echo "$OWN $GROUP6 ip6 daddr != $SOLICITED"
            ;;
        all-hosts)
            echo "$OWN ip daddr 224.0.0.1"
            echo "$OWN ip6 daddr ff02::1"
            ;;
        llmnr) link_port 5355 ;;
        mdns) link_port 5353 ;;
        broadcast) echo "$OWN ether daddr ff:ff:ff:ff:ff:ff ether type ip" ;;
        other) echo "$OWN ether type != { ip, ip6, arp, 8021q }" ;;
        vlan) echo "$OWN ether type 8021q" ;;
        spoof-address) echo "$OWN $UNICAST ip saddr $GATEWAY ip daddr $BOXES" ;;
        spoof-mac) echo "$OTHER $UNICAST ip saddr $BOXES ip daddr $BOXES" ;;
        spoof-both) echo "$OTHER $UNICAST ip saddr $GATEWAY ip daddr $BOXES" ;;
    esac
}

link_port() {
    echo "$OWN $GROUP4 udp dport $1"
    echo "$OWN $GROUP6 ip6 nexthdr udp udp dport $1"
}

# The bridge's table with that part's rules in it, in place of the contract's.
link_table() {
    echo "delete table bridge box"
    echo "table bridge box {"
    echo "  chain forward {"
    echo "    type filter hook forward priority filter; policy accept;"
    [ "$1" = vlan ] || echo '    iifname "veth*" oifname "veth*" ether type 8021q drop'
    link_rules "$1" | sed 's/^/    iifname "veth*" oifname "veth*" /; s/$/ accept/'
    echo '    iifname "veth*" oifname "veth*" drop'
    echo "  }"
    echo "}"
}

whole_sibling_part() { whole_sibling && ! grep -q veth <<<"$(table bridge box)"; }
broken_sibling_part() { [ "$(isolation)" = false ] && grep -q veth <<<"$(table bridge box)" && ports_isolated 0; }
save_and_break_sibling_part() {
    save_table bridge box && link_table "$PART" >"$SAVED/rules" &&
        in_lab timeout 20 nft -f - <"$SAVED/rules" &&
        lab_do incus profile device set "$PROFILE" eth0 security.port_isolation=false
}
mend_sibling_part() {
    { ! has_table bridge box || lab_do nft delete table bridge box; } && mend_table &&
        lab_do incus profile device set "$PROFILE" eth0 security.port_isolation=true
}

# Left is what the contract's table can say on a kernel without `meta ibrname`.
broken_isolation() { [ "$(isolation)" = false ] && has_table bridge box && ports_isolated 0; }
whole_isolation() { whole_sibling; }
save_and_break_isolation() { lab_do incus profile device set "$PROFILE" eth0 security.port_isolation=false; }
mend_isolation() { lab_do incus profile device set "$PROFILE" eth0 security.port_isolation=true; }

# --- the ACL's rules -----------------------------------------------------------------------------------

# acl_open DESTINATION RANGES: the rule that drops a range drops these in its place.
acl_open() {
    lab_get incus network acl show "$ACL" >"$SAVED/acl" && grep -q "destination: $1\$" "$SAVED/acl" &&
        sed "s|destination: $1\$|destination: $2|" "$SAVED/acl" | in_lab timeout 20 incus network acl edit "$ACL"
}
acl_mend() { in_lab timeout 20 incus network acl edit "$ACL" <"$SAVED/acl"; }
acl_drops() { lab_get nft list chain inet incus "acl.$NET" | grep -q "ip daddr .*$1.* drop"; }

whole_sibling_routed() { acl_drops "10.0.0.0/8"; }
broken_sibling_routed() { acl_drops "10.0.0.0-10.88.0.1" && ! acl_drops "10.0.0.0/8"; }
save_and_break_sibling_routed() { acl_open 10.0.0.0/8 10.0.0.0-10.88.0.1,10.88.0.255-10.255.255.255; }
mend_sibling_routed() { acl_mend; }
