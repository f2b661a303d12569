--- The host's own rules for the boxes' bridge, as the contract wants them: asked of the kernel's ruleset by
-- what it does with packets, not by a table's name or a rule's wording.
local contract = require "contract"
local inet = require "inet"
local nft = require "nft"

local firewall = {}

local HIGH_PORT = 40000 -- a port that nobody has a rule for

-- Two addresses of the boxes' subnet that are not the gateway's.
local function two_boxes(data)
    local bytes = inet.parse(data.gateway)
    local last = bytes:byte(4)
    local function other(by)
        return inet.text(bytes:sub(1, 3) .. string.char((last + by) % 256))
    end
    return other(1), other(2)
end

-- Each: what it is, on which hook, the packet, and the verdict it must get (true: it must be let in).
local function demands(data)
    local bridge, gateway = data.network.name, data.gateway
    local one, two = two_boxes(data)
    local function from_bridge(packet)
        packet["meta iifname"] = bridge
        packet["meta iif"] = bridge
        packet["ct state"] = "new"
        packet["ip saddr"] = one
        return packet
    end
    local function switched(packet)
        packet["meta ibrname"], packet["meta obrname"] = bridge, bridge
        packet["meta iifname"], packet["meta oifname"] = "veth0", "veth1"
        return packet
    end
    return {
        {
            what = "a box's packet to the host is dropped",
            family = "inet", hook = "input",
            packet = from_bridge { ["ip daddr"] = gateway, ["tcp dport"] = HIGH_PORT },
        },
        {
            what = "a box's packet to another address of the host is dropped",
            family = "inet", hook = "input",
            packet = from_bridge { ["ip daddr"] = "203.0.113.1", ["udp dport"] = HIGH_PORT },
        },
        {
            what = "DNS over UDP to the gateway is let in",
            family = "inet", hook = "input", accept = true,
            packet = from_bridge { ["ip daddr"] = gateway, ["udp dport"] = 53 },
        },
        {
            what = "DNS over TCP to the gateway is let in",
            family = "inet", hook = "input", accept = true,
            packet = from_bridge { ["ip daddr"] = gateway, ["tcp dport"] = 53 },
        },
        {
            what = "DHCP is let in",
            family = "inet", hook = "input", accept = true,
            packet = from_bridge { ["ip daddr"] = "255.255.255.255", ["udp dport"] = 67 },
        },
        {
            what = "IP from box to box is dropped",
            family = "bridge", hook = "forward",
            packet = switched { ["ip saddr"] = one, ["ip daddr"] = two, ["tcp dport"] = HIGH_PORT },
        },
        {
            what = "ARP from box to box is dropped",
            family = "bridge", hook = "forward",
            packet = switched { ["arp saddr ip"] = one, ["arp daddr ip"] = two },
        },
    }
end

--- Which of the contract's demands on the host's own rules the kernel does not meet.
-- @param ruleset as of nft.ruleset
-- @param data a contract
-- @return array of texts; empty when all are met
function firewall.missing(ruleset, data)
    local out = {}
    for _, demand in ipairs(demands(data)) do
        local verdict = nft.verdict(ruleset, demand.family, data.firewall.table, demand.hook, demand.packet)
        if (verdict == "accept") ~= (demand.accept == true) then
            out[#out + 1] = demand.what
        end
    end
    return out
end

-- The families whose rules see a packet of a family.
local FAMILIES = { inet = { "inet", "ip" }, bridge = { "bridge" } }
-- Two addresses of a range, near its ends: what drops only a half of it lets one of them through.
local function ends(range)
    local bytes = inet.parse((range:match("^[^/]+")))
    local bits = tonumber(range:match("/(%d+)$"))
    if not bytes or #bytes ~= 4 or bits > 30 then
        return {}
    end
    local first = string.unpack(">I4", bytes)
    local last = first + (1 << (32 - bits)) - 1
    return { inet.text(string.pack(">I4", first + 1)), inet.text(string.pack(">I4", last - 1)) }
end

-- What is routed: { what, hook, packet, accept }. uplink: the link of the default route.
local function routed_demands(data, uplink)
    local bridge, one = data.network.name, two_boxes(data)
    local public = data.allowed.addresses[1]
    local function packet(from, to, more)
        local out = { ["ct state"] = "new", ["tcp dport"] = public.port }
        for prefix, link in pairs { iif = from, oif = to } do
            out["meta " .. prefix .. "name"], out["meta " .. prefix] = link, link
        end
        for key, value in pairs(more) do
            out[key] = value
        end
        return out
    end
    local out = {}
    local function demand(what, accept, hook, one_packet)
        out[#out + 1] = { what = what, accept = accept, family = "inet", hook = hook, packet = one_packet }
    end
    demand("what a box sends to the public internet is forwarded", true, "forward",
        packet(bridge, uplink, { ["ip saddr"] = one, ["ip daddr"] = public.address }))
    demand("what the public internet answers to a box is forwarded", true, "forward",
        packet(uplink, bridge, { ["ip saddr"] = public.address, ["ip daddr"] = one, ["ct state"] = "established" }))
    for _, range in ipairs(contract.sorted_keys(data.forbidden)) do
        for _, address in ipairs(ends(range)) do
            demand(("what a box sends to %s (%s) is dropped"):format(range, address), false, "forward",
                packet(bridge, uplink, { ["ip saddr"] = one, ["ip daddr"] = address }))
        end
    end
    demand("what comes to a box from outside is dropped", false, "forward",
        packet(uplink, bridge, { ["ip saddr"] = public.address, ["ip daddr"] = one }))
    demand("what the host sends to a box is dropped", false, "output",
        packet(nil, bridge, { ["ip saddr"] = data.gateway, ["ip daddr"] = one, ["tcp dport"] = HIGH_PORT }))
    return out
end

-- Each demand, as the kernel meets it: "met", "unmet", "untold" (by a rule that is not read), and the chain.
local function answered(ruleset, wanted)
    local out = {}
    for _, demand in ipairs(wanted) do
        local verdict, sure, chain = nft.fate(ruleset, FAMILIES[demand.family], demand.hook,
            nft.packet(demand.packet, demand.hook))
        local state = (verdict == "accept") == (demand.accept == true) and "met" or "unmet"
        -- That it is let in by rules that are not all read is no news: those of ufw are full of extensions.
        if not sure and not (demand.accept and state == "met") then
            state = "untold"
        end
        out[#out + 1] = { what = demand.what, state = state, chain = chain, verdict = verdict, accept = demand.accept }
    end
    return out
end

--- How the kernel's whole ruleset, whoever wrote it, meets the contract's demands on the host's own rules.
-- @param ruleset as of nft.ruleset @param data a contract
-- @return array of { what, state, chain, verdict, accept }: state is "met", "unmet", or "untold" where a
--   rule that is not read here may decide; chain is the one that drops it; accept: it must be let through
function firewall.own(ruleset, data)
    return answered(ruleset, demands(data))
end

--- The same for what is routed and for what the host sends: the network's ACL, and forwarding.
-- @param uplink the link of the default route
function firewall.routed(ruleset, data, uplink)
    return answered(ruleset, routed_demands(data, uplink))
end

return firewall
