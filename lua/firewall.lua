--- The host's own rules for the boxes' bridge, as the contract wants them: asked of the kernel's ruleset by
-- what it does with packets, not by a table's name or a rule's wording.
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

return firewall
