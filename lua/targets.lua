--- What gets a packet, enumerated from the contract: the probes take their targets from here, and
-- --dry-run lists the same ones.
local contract = require "contract"
local dns = require "dns"
local inet = require "inet"

local targets = {}

local DNS, DHCP = 53, 67

-- A question that a resolver answers, so that a UDP port 53 with somebody behind it can be told.
local function question(data)
    return dns.hex(dns.query(math.random(0, 65535), data.allowed.names[1] or "example.com", "A"))
end

local function spec(data, proto, address, port)
    return {
        proto = proto,
        to = address,
        port = port,
        ms = data.budgets.attempt,
        send = proto == "udp" and port == DNS and question(data) or nil,
    }
end

-- Ports of a list and of known listeners, each once.
local function ports_of(data, ports, address, proto)
    local out, seen = {}, {}
    local listening = contract.listener_ports(data, address, proto)
    for _, list in ipairs { ports, listening } do
        for _, port in ipairs(list) do
            if not seen[port] then
                seen[port] = true
                out[#out + 1] = port
            end
        end
    end
    return out
end

-- Appends a target for each port, and one for ICMP, with the fields of `common`.
local function append(out, data, address, lists, common)
    local function add(proto, port)
        if contract.excluded(data, address, port) then
            return
        end
        local target = { spec = spec(data, proto, address, port) }
        for key, value in pairs(common) do
            target[key] = value
        end
        out[#out + 1] = target
    end
    for _, proto in ipairs { "tcp", "udp" } do
        for _, port in ipairs(ports_of(data, lists[proto], address, proto)) do
            add(proto, port)
        end
    end
    add("icmp", nil)
end

-- The addresses asked in one range: the contract's, and those of known listeners.
local function addresses_in(data, range, addresses)
    local out, seen = {}, {}
    local function add(address)
        if not seen[address] and not inet.held(addresses, address) then
            seen[address] = true
            out[#out + 1] = address
        end
    end
    for _, address in ipairs(data.forbidden[range].addresses) do
        add(address)
    end
    for _, listener in ipairs(data.listeners) do
        if inet.within(listener.address, range) then
            add(listener.address)
        end
    end
    return out
end

--- The targets in the forbidden ranges, without the host's own addresses.
-- @param data a contract @param addresses the host's, as of host.addresses
-- @return array as of isolated.measure; `range` besides
function targets.forbidden(data, addresses)
    local out = {}
    for _, range in ipairs(contract.sorted_keys(data.forbidden)) do
        for _, address in ipairs(addresses_in(data, range, addresses)) do
            append(out, data, address, data.forbidden[range], { range = range })
        end
    end
    return out
end

-- Whether a box could send a packet to this address of the host at all: not the loopback's, not a
-- link-local one of another link.
local function askable(data, entry)
    return entry.scope ~= "host" and (entry.scope ~= "link" or entry.link == data.network.name)
end

--- The addresses of the host that a box could send a packet to.
-- @param data a contract @param addresses the host's, as of host.addresses
-- @param link the name of the box's own link, for link-local addresses; nil leaves those out
-- @return array of { address (as the box says it), host_address (where the host must say it otherwise), on_link }
function targets.addresses(data, addresses, link)
    local out = {}
    for _, entry in ipairs(addresses) do
        local scoped = entry.scope == "link"
        if askable(data, entry) and not (scoped and not link) then
            out[#out + 1] = {
                address = scoped and ("%s%%%s"):format(entry.address, link) or entry.address,
                host_address = scoped and ("%s%%%s"):format(entry.address, entry.link) or nil,
                on_link = entry.link == data.network.name,
            }
        end
    end
    return out
end

-- What a box is meant to reach at its own gateway.
local function is_service(data, target)
    local port = target.spec.port
    return inet.same(target.spec.to, data.gateway)
        and (port == DNS or port == DHCP and target.spec.proto == "udp")
end

--- The targets on the host itself: every address it holds.
-- @param data a contract @param addresses the host's, as of host.addresses
-- @param link the name of the box's own link, for link-local addresses; nil leaves those out
-- @return array as of isolated.measure; `host_address` besides where the host must say it otherwise
function targets.host(data, addresses, link)
    local out = {}
    for _, place in ipairs(targets.addresses(data, addresses, link)) do
        append(out, data, place.address, data.host,
            { on_link = place.on_link, up = true, host_address = place.host_address })
    end
    local kept = {}
    for _, target in ipairs(out) do
        if not is_service(data, target) then
            kept[#kept + 1] = target
        end
    end
    return kept
end

-- Lines "ADDRESS: tcp 80, udp 53, icmp".
local function lines_of(list, out)
    local order, ports = {}, {}
    for _, target in ipairs(list) do
        local one = target.spec
        if not ports[one.to] then
            ports[one.to] = {}
            order[#order + 1] = one.to
        end
        table.insert(ports[one.to], one.port and ("%s %d"):format(one.proto, one.port) or one.proto)
    end
    for _, address in ipairs(order) do
        out[#out + 1] = ("  %s: %s"):format(address, table.concat(ports[address], ", "))
    end
end

--- Every address and port that may get a packet from a drill, as lines of text.
-- @param data a contract @param addresses the host's, as of host.addresses
-- @param rehearsals probes as of session.allot; may be left out
function targets.lines(data, addresses, rehearsals)
    local out = { "the public internet, from the boxes and from the host:" }
    for _, place in ipairs(data.allowed.addresses) do
        out[#out + 1] = ("  %s: tcp %d"):format(place.address, place.port)
    end
    out[#out + 1] = "the public internet, from the boxes:"
    for _, address in ipairs(data.allowed.resolvers) do
        out[#out + 1] = ("  %s: udp %d"):format(address, DNS)
    end
    for _, name in ipairs(data.allowed.names) do
        out[#out + 1] = ("  the addresses of %s: tcp %d"):format(name, data.allowed.name_port)
    end
    out[#out + 1] = "the resolvers that a box has, from the boxes:"
    out[#out + 1] = ("  %s: tcp %d, udp %d; those a box is configured with: udp %d"):format(data.gateway, DNS, DNS, DNS)
    out[#out + 1] = ("  every address of the host's on which a resolver answers the host: tcp %d, udp %d"):format(
        DNS, DNS)
    out[#out + 1] = "forbidden, from the boxes, and from the host to see who is there:"
    lines_of(targets.forbidden(data, addresses), out)
    out[#out + 1] = "the host itself, from the boxes and from the host:"
    lines_of(targets.host(data, addresses, "LINK"), out)
    out[#out + 1] = "the run's own boxes, from each other and from the host:"
    out[#out + 1] = ("  their addresses: tcp %d, %d, %d, udp %d, %d, %d, icmp"):format(
        data.box.port, data.box.inbound_port, data.box.closed_port,
        data.box.port, data.box.inbound_port, data.box.closed_port)
    out[#out + 1] = ("  the same through the gateway, and with VLAN 1's tag: tcp %d, udp %d, icmp"):format(
        data.box.raw_port, data.box.raw_port)
    out[#out + 1] = ("  their fe80:: addresses: tcp %d, udp %d, icmp; ARP, ND"):format(
        data.box.link_port, data.box.link_port)
    out[#out + 1] = "who listens on the boxes' own link, in single frames from the boxes:"
    for _, group in ipairs(data.groups) do
        out[#out + 1] = ("  %s (%s): udp %d"):format(group.address, group.name, group.port)
    end
    out[#out + 1] = ("  %s: udp %d; and an EtherType for experiments"):format(data.broadcast, data.box.raw_port)
    for _, probe in ipairs(rehearsals or {}) do
        local gateway = (probe.allotted or "?"):match("^[^/]+")
        out[#out + 1] = ("for %s from its boxes, twenty times a second while its change settles:"):format(probe.id)
        out[#out + 1] = ("  %s: udp %d, and the public internet as above"):format(gateway, DNS)
    end
    return out
end

return targets
