-- The contract: what a box host promises, as data. Setup converges a host to it, the drill
-- measures it, and nothing else names a project, a network, a subnet or an address.
--
-- A site changes it with a file of its own (--site FILE) of the same shape: maps are merged key by
-- key, arrays are replaced whole, and a key that this file does not know is refused by name.
--
-- Every address and port that may receive a packet from a drill stands here; the drill's --dry-run
-- lists them. (The host's own addresses are read live: c.host asks every one of them.)
--
-- In the strings of network.config, acl and profile.devices these words are replaced when the
-- contract is loaded, so that renaming or renumbering is one change: $network, $acl, $pool,
-- $gateway (the address), $subnet, $resolvers (the pin, as dnsmasq's server= lines).
--
-- Times are milliseconds.
return {
    project = "default",
    pool = "default",

    image = {
        server = "https://images.linuxcontainers.org",
        alias = "debian/13/cloud",
        -- "auto": a virtual machine where the host has /dev/kvm, else a container.
        type = "auto",
    },

    -- The tags of a box: the first is the one a new box gets, the others are honoured alike.
    tags = {
        { key = "user.box", value = "1" },
        { key = "user.claudebox", value = "1" },
    },

    network = {
        name = "boxnet",
        description = "Boxes: the public internet and nothing else",
        address = "10.88.0.1/24",
        domain = "incus",
        -- The resolver pin: the gateway's resolver asks these and not the host's own.
        resolvers = { "1.1.1.1", "8.8.8.8" },
        config = {
            ["ipv4.nat"] = "true",
            ["ipv6.address"] = "none",
            ["dns.mode"] = "none",
            -- dns.mode=none alone is not enough: dnsmasq still answers for the host names that boxes
            -- send with their DHCP requests, by name and by reverse lookup (measured by c.names).
            ["raw.dnsmasq"] = "no-resolv\ndhcp-ignore-names\n$resolvers",
            ["security.acls"] = "$acl",
            ["security.acls.default.egress.action"] = "allow",
            ["security.acls.default.ingress.action"] = "drop",
        },
    },

    acl = {
        name = "box-isolate",
        description = "Boxes reach the public internet and nothing else",
        egress = {
            { action = "allow", destination = "$gateway/32", description = "the box's own gateway" },
            { action = "drop", destination = "10.0.0.0/8", description = "RFC 1918" },
            { action = "drop", destination = "172.16.0.0/12", description = "RFC 1918" },
            { action = "drop", destination = "192.168.0.0/16", description = "RFC 1918" },
            { action = "drop", destination = "169.254.0.0/16", description = "link-local, metadata" },
            { action = "drop", destination = "100.64.0.0/10", description = "CGNAT, tailnets" },
        },
        ingress = {},
    },

    profile = {
        name = "box-net",
        description = "A box's place on the network",
        devices = {
            eth0 = {
                type = "nic",
                name = "eth0",
                network = "$network",
                ["security.port_isolation"] = "true",
            },
            root = { type = "disk", path = "/", pool = "$pool" },
        },
    },

    -- The host's own rules: nft tables `inet NAME` (input from the bridge: established, DNS and
    -- DHCP accepted, the rest dropped) and `bridge NAME` (bridge port to bridge port dropped).
    firewall = { table = "box" },

    -- What a box must reach: addresses by TCP, names by asking `resolvers` over UDP and then TCP
    -- to `name_port`.
    allowed = {
        addresses = {
            { address = "1.1.1.1", port = 443 },
            { address = "8.8.8.8", port = 53 },
        },
        names = { "example.com" },
        name_port = 443,
        resolvers = { "1.1.1.1", "8.8.8.8" },
    },

    -- What a box must not reach. Each range with the addresses asked in it, and the ports asked at
    -- each of them (besides those in `listeners`); all are sent an ICMP echo request too.
    forbidden = {
        ["10.0.0.0/8"] = { addresses = { "10.0.0.1", "10.200.0.1" }, tcp = { 80 }, udp = { 53 } },
        ["172.16.0.0/12"] = { addresses = { "172.16.0.1", "172.16.9.9" }, tcp = { 80 }, udp = { 53 } },
        ["192.168.0.0/16"] = { addresses = { "192.168.1.1" }, tcp = { 80 }, udp = { 53 } },
        ["169.254.0.0/16"] = { addresses = { "169.254.169.254" }, tcp = { 80 }, udp = { 53 } },
        ["100.64.0.0/10"] = { addresses = { "100.64.0.9", "100.100.100.100" }, tcp = { 80 }, udp = { 53 } },
    },

    -- Ports asked at every address of the host, besides those in `listeners`. (DNS and DHCP at the
    -- boxes' own gateway are theirs to reach, and are not asked.)
    host = { tcp = { 22, 53, 80, 443, 8443 }, udp = { 53, 161 } },

    -- A rehearsal's own network is the first /24 in these ranges that nothing on the host overlaps: no route,
    -- no address, no other network of Incus, and no address of this contract.
    rehearsal = { ranges = { "10.208.0.0/12", "172.24.0.0/14", "192.168.224.0/20" } },

    -- In a box: the port our own program holds for a sibling, the one it holds for the host, one that
    -- nothing holds, and those it holds while a sibling sends frames: what a link carries, what root can do.
    box = { port = 8088, inbound_port = 8087, closed_port = 8089, link_port = 8086, raw_port = 8085 },

    -- Where a box sends a datagram to see whether its siblings get it: groups, and everybody on its link.
    groups = {
        { name = "all hosts", address = "224.0.0.1", port = 8086 },
        { name = "all nodes", address = "ff02::1", port = 8086 },
        { name = "LLMNR", address = "224.0.0.252", port = 5355 },
        { name = "LLMNR", address = "ff02::1:3", port = 5355 },
        { name = "mDNS", address = "224.0.0.251", port = 5353 },
        { name = "mDNS", address = "ff02::fb", port = 5353 },
    },
    broadcast = "255.255.255.255",

    -- MiB that a box is reckoned to want, and with how little it may be minted on a small host; and how many
    -- boxes a whole drill has at a time. Where `wanted` times `at_once` is not free, each gets its share.
    memory = {
        container = { wanted = 320, least = 128 },
        vm = { wanted = 1024, least = 512 },
        at_once = 10,
    },

    -- Programs known to be listening, on the host or behind a forbidden address, so that silence
    -- proves something: { address = A, port = P, protocols = { "tcp", "udp" } }. Each is verified
    -- from the host just before it is relied on. On UDP it must answer what it gets. The site's
    -- file says which there are.
    listeners = {},

    -- The box CLI under drill (phase B): what is expected of its texts, as Lua patterns, looked for in
    -- stdout and stderr together. $name and the like are what the drill gave it, and literal.
    cli = {
        template = "blank",         -- the template that boxes are minted from
        template_file = "box.env",  -- in the CLI's tree: templates/NAME/FILE, lines KEY="value"
        call = 30000,               -- one call
        mint = 300000,              -- one mint, cloud-init included
        heartbeat = 5000,           -- a slow mint says something at least so often
        -- Programs that a template brings, asked for --version: { template = T, program = P }.
        programs = {},
        texts = {
            no_boxes = "no boxes yet",
            list_header = "NAME%s+STATE%s+TYPE%s+SNAPSHOTS",
            templates = "TEMPLATES",
            no_template = "no such template: $template",
            unknown_key = "unknown key '$key'",
            ready = "ready",
            mint_failed = "[Cc]loud%-init[^\n]-$name",
            cloned = "cloned $name/$label",
            clone_resources = "a clone carries its source's resources",
            info_row = "$key%s+$value",
            info_clone = "new %-%-name %S+ %-%-from $name/%S+",
            running = "is RUNNING.*[Ss]top it: box down $name",
            renamed = "renamed $name to $new",
            hatch = "incus config show $name",
            hatch_warning = "warning: this can move the box off the isolation stack",
            not_forced = "without %-%-force",
            did_you_mean = "did you mean '$verb'",
            unknown_option = "unknown option: $option",
            points_at_info = "box info",
            no_such_box = "no such box: $name",
        },
    },

    -- Never sent a packet: "ADDRESS", "ADDRESS/BITS", or "ADDRESS:PORT" ("[ADDRESS]:PORT"). That holds for
    -- what is `allowed`, too; something of it must be left, and the gateway's resolver.
    exclude = {},

    budgets = {
        attempt = 4000,     -- one attempt; nobody answering ARP shows after 3.07 s, so at least 3500
        -- The same, where a witness on this host sees what becomes of the packet: it is handed on in the moment it
        -- came, or the host asks who has the target then. So this holds the first packet, TCP's repetition after a
        -- second, and that of an ARP request that was under way before. As much as `attempt`: every wait whole.
        watched = 1200,
        control = 3000,     -- one attempt to reach the public internet, around a measurement
        -- The host's own look whether somebody answers behind a wall; no less than an ARP request lasts (3.07 s), which
        -- would still be under way, and hide from the witness that a box's packet asks for one.
        verify = 3500,
        dns = 4000,         -- one query, the resolver's own asking included
        exec = 30000,       -- one exec in a box, its attempts on top
        listen = 30000,     -- a listener in a box, at most; no less than attempt and twice control
        address = 20000,    -- a new container until it has an IPv4 address
        agent = 180000,     -- a new virtual machine until its agent answers, at most
        client = 20000,     -- one call of the incus client
        -- "host unreachable" later than this may be the host's own failed ARP, which shows after 3.07 s. A wall's may
        -- come with a repeated SYN, after 1.02 or (tcp_syn_linear_timeouts) 2.05 s: ICMP errors are rationed.
        routed = 2500,
        frame = 1000,       -- a raw frame is sent again and again for so long
        severed = 1500,     -- in a rehearsal, an attempt that came through before and must not any more
        settle = 30000,     -- a rehearsed change until what it interrupts is back, at most
    },
}
