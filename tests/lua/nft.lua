-- The ruleset as data: what a chain does with a packet, and the contract's demands on it.
-- Run by: boxdrill tests/lua/NAME.lua (in the sandbox; no Incus is needed).
local passed, failed = 0, 0

local function check(what, ok, got)
    if ok then
        passed = passed + 1
    else
        failed = failed + 1
        print(("FAILED: %s%s"):format(what, got == nil and "" or ": " .. tostring(got)))
    end
end

local cjson = require "cjson"
local contract = require "contract"
local firewall = require "firewall"
local nft = require "nft"

local function match(left, op, right)
    return { match = { op = op, left = left, right = right } }
end
local function meta(key, op, right)
    return match({ meta = { key = key } }, op, right)
end
local function payload(protocol, field, right)
    return match({ payload = { protocol = protocol, field = field } }, "==", right)
end
local DROP, ACCEPT = { drop = cjson.null }, { accept = cjson.null }

-- A ruleset as `nft -j list ruleset` prints it, of two chains' rules.
local function ruleset(input, forward)
    local out = {
        { metainfo = { version = "1.0.9" } },
        { table = { family = "inet", name = "box" } },
        { chain = { family = "inet", table = "box", name = "input", hook = "input", type = "filter", prio = 0,
            policy = "accept" } },
        { table = { family = "bridge", name = "box" } },
        { chain = { family = "bridge", table = "box", name = "forward", hook = "forward", type = "filter", prio = 0,
            policy = "accept" } },
    }
    for _, expr in ipairs(input) do
        out[#out + 1] = { rule = { family = "inet", table = "box", chain = "input", handle = #out, expr = expr } }
    end
    for _, expr in ipairs(forward) do
        out[#out + 1] = { rule = { family = "bridge", table = "box", chain = "forward", handle = #out, expr = expr } }
    end
    return assert(nft.decode(cjson.encode { nftables = out }))
end

local INPUT = {
    { meta("iifname", "!=", "boxnet"), ACCEPT },
    { match({ ct = { key = "state" } }, "in", { "established", "related" }), ACCEPT },
    { payload("ip", "daddr", "10.88.0.1"), payload("udp", "dport", 53), ACCEPT },
    { payload("ip", "daddr", "10.88.0.1"), payload("tcp", "dport", 53), ACCEPT },
    { payload("udp", "dport", 67), payload("ip", "daddr", { set = { "10.88.0.1", "255.255.255.255" } }), ACCEPT },
    { DROP },
}
local SUBNET = { prefix = { addr = "10.88.0.0", len = 24 } }
local FORWARD = {
    { payload("ip", "saddr", SUBNET), payload("ip", "daddr", SUBNET), DROP },
    { payload("arp", "saddr ip", SUBNET), payload("arp", "daddr ip", SUBNET), DROP },
}
local data = contract.build(engine.call("contract"), "host/contract.lua", "", "")

local function missing(input, forward)
    return firewall.missing(ruleset(input, forward), data)
end
local function without(rules, i)
    local out = { table.unpack(rules) }
    table.remove(out, i)
    return out
end

check("the rules as they are written", #missing(INPUT, FORWARD) == 0, table.concat(missing(INPUT, FORWARD), "; "))
check("by the bridge's name", #missing(INPUT, {
    { meta("ibrname", "==", "boxnet"), meta("obrname", "==", "boxnet"), DROP },
}) == 0)
check("by the ports' names", #missing(INPUT, {
    { meta("iifname", "==", "veth*"), meta("oifname", "==", "veth*"), DROP },
}) == 0)
check("another site's wording", #missing({
    { meta("iifname", "==", "boxnet"), payload("udp", "dport", { set = { 53, { range = { 67, 68 } } } }), ACCEPT },
    { meta("iifname", "==", "boxnet"), payload("tcp", "dport", 53), ACCEPT },
    { meta("iifname", "==", "boxnet"), { reject = cjson.null } },
}, FORWARD) == 0)
check("no input drop", #missing(without(INPUT, 6), FORWARD) == 2)
check("an accept before the drop", #missing({
    INPUT[1], { meta("iifname", "==", "boxnet"), ACCEPT }, INPUT[6],
}, FORWARD) == 2)
check("DNS not let in", table.concat(missing(without(INPUT, 3), FORWARD)) == "DNS over UDP to the gateway is let in")
check("DHCP not let in", table.concat(missing(without(INPUT, 5), FORWARD)) == "DHCP is let in")
check("ARP passes", table.concat(missing(INPUT, { FORWARD[1] })) == "ARP from box to box is dropped")
check("an empty bridge chain", #missing(INPUT, {}) == 2)
check("another bridge's rules are not ours", #missing(INPUT, { { meta("ibrname", "==", "br0"), DROP } }) == 2)
check("no tables at all", #firewall.missing(assert(nft.decode('{"nftables":[]}')), data) == 4)
check("no ruleset", nft.decode("Operation not permitted") == nil and nft.decode("[]") == nil)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
