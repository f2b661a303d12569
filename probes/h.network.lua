-- The network's configuration, as Incus has it. What the kernel makes of it is asked by h.bridge, h.chains,
-- h.dnsmasq.
local contract = require "contract"
local deviation = require "deviation"
local stack = require "stack"

local WHY = {
    ["ipv4.address"] = "the ACL's gateway, the firewall and every drill ask at the contract's address",
    ["ipv4.nat"] = "boxes reach the internet by the host's address only",
    ["ipv6.address"] = "the ACL and the firewall wall off IPv4: IPv6 would be a way around them",
    ["dns.mode"] = "boxes can find each other by name",
    ["raw.dnsmasq"] = "the resolver pin: without it boxes ask the host's own resolver, and learn each other's names",
    ["security.acls"] = "without its ACL the network forwards to every private range, and the host to the boxes",
    ["security.acls.default.egress.action"] = "boxes reach the public internet by it",
    ["security.acls.default.ingress.action"] = "whoever can route to a box reaches its ports",
}

-- Keys that the contract does not have and that break it, with the value that does (false: any).
local BREAKING = {
    ["bridge.external_interfaces"] = { false, "the boxes' frames are on that link's network" },
    ["ipv4.firewall"] = { "false", "Incus writes no rules for the network" },
    ["ipv4.dhcp"] = { "false", "boxes get no address" },
    ["ipv4.routing"] = { "false", "boxes reach no internet" },
    ["ipv4.dhcp.gateway"] = { false, "boxes are given another gateway" },
}

-- raw.dnsmasq is a file: the order of its lines says nothing.
local function same_lines(one, two)
    local function sorted(text)
        local lines = {}
        for line in text:gmatch("[^\n]+") do
            lines[#lines + 1] = line:match("^%s*(.-)%s*$")
        end
        table.sort(lines)
        return table.concat(lines, "\n")
    end
    return sorted(one) == sorted(two)
end

local function mend(name, key, value)
    if value:find("\n") then
        return stack.SETUP
    end
    return ("incus network set %s %s=%s (or: %s)"):format(name, key, value, stack.SETUP)
end

local function compare(t, network, wanted)
    for _, key in ipairs(contract.sorted_keys(wanted)) do
        local value = (network.config or {})[key] or ""
        local same = value == wanted[key] or key == "raw.dnsmasq" and same_lines(value, wanted[key])
        if not same then
            stack.dirty(t, ("%s of network %s: %s, not %s"):format(key, network.name, deviation.shown(value),
                deviation.shown(wanted[key])), {
                why = WHY[key] or "the contract says otherwise",
                mend = mend(network.name, key, wanted[key]),
            })
        end
    end
end

local function breaking(t, network, wanted)
    for key, entry in pairs(BREAKING) do
        local value = (network.config or {})[key]
        if value and not wanted[key] and (not entry[1] or value == entry[1]) then
            stack.dirty(t, ("%s of network %s is %s"):format(key, network.name, deviation.shown(value)), {
                why = entry[2],
                mend = ("incus network unset %s %s"):format(network.name, key),
            })
        end
    end
end

return {
    id = "h.network",
    title = "the network is configured as the contract says",
    run = function(t)
        local network = stack.part(t, "network")
        if not network then
            return
        end
        compare(t, network, t.contract.network.config)
        breaking(t, network, t.contract.network.config)
        if #t.observations == 0 then
            t:pass(("network %s is"):format(network.name))
        end
    end,
}
