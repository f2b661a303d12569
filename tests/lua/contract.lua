-- The contract: the shipped file holds to its shape, a site's file is merged or refused by name.
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

local contract = require "contract"

local SOURCE = engine.call("contract")

local function build(site)
    return pcall(contract.build, SOURCE, "host/contract.lua", site or "", "/etc/boxdrill/site.lua")
end

local ok, data = build()
check("the shipped contract", ok, data)
check("the gateway and the subnet are derived", data.gateway == "10.88.0.1" and data.subnet == "10.88.0.0/24")
check("words are replaced", data.network.config["security.acls"] == data.acl.name
    and data.acl.egress[1].destination == "10.88.0.1/32"
    and data.profile.devices.eth0.network == data.network.name)
check("the resolver pin", data.network.config["raw.dnsmasq"]
    == "no-resolv\ndhcp-ignore-names\nserver=1.1.1.1\nserver=8.8.8.8", data.network.config["raw.dnsmasq"])

ok, data = build [[return {
    network = { name = "claudenet", address = "10.87.0.1/24", resolvers = { "9.9.9.9" } },
    acl = { name = "claude-isolate" },
    budgets = { attempt = 5000 },
    forbidden = { ["172.16.0.0/12"] = false, ["10.0.0.0/8"] = { addresses = { "10.1.2.3" } } },
    listeners = { { address = "10.1.2.3", port = 80, protocols = { "tcp" } } },
    exclude = { "192.168.0.0/16", "10.1.2.4:22", "[fd00::1]:80", "8.8.8.8", "fd00::1:80/128", "2001:db8::53" },
}]]
check("a site's file", ok, data)
check("renumbered in one place", data.acl.egress[1].destination == "10.87.0.1/32"
    and data.network.config["ipv4.address"] == "10.87.0.1/24"
    and data.profile.devices.eth0.network == "claudenet"
    and data.network.config["security.acls"] == "claude-isolate")
check("maps are merged", data.budgets.attempt == 5000 and data.budgets.dns ~= nil
    and data.network.config["ipv4.nat"] == "true")
check("arrays are replaced", data.network.config["raw.dnsmasq"] == "no-resolv\ndhcp-ignore-names\nserver=9.9.9.9"
    and #data.forbidden["10.0.0.0/8"].addresses == 1 and #data.forbidden["10.0.0.0/8"].tcp > 0)
check("an entry is taken away", data.forbidden["172.16.0.0/12"] == nil)
check("listeners by address and protocol", contract.listener_ports(data, "10.1.2.3", "tcp")[1] == 80
    and #contract.listener_ports(data, "10.1.2.3", "udp") == 0)
check("excluded: a range", contract.excluded(data, "192.168.1.1", 80) and contract.excluded(data, "192.168.1.1"))
check("excluded: one port", contract.excluded(data, "10.1.2.4", 22) and not contract.excluded(data, "10.1.2.4", 23)
    and not contract.excluded(data, "10.1.2.4"))
check("excluded: what is allowed, too", #data.allowed.addresses == 1 and data.allowed.addresses[1].address == "1.1.1.1"
    and #data.allowed.resolvers == 1 and data.allowed.resolvers[1] == "1.1.1.1")
check("excluded: one port, IPv6", contract.excluded(data, "fd00::1", 80) and not contract.excluded(data, "fd00::2", 80))

-- Each site's file, and what the refusal must name besides the file.
for _, case in ipairs {
    { "return { lsteners = {} }", "lsteners: unknown key" },
    { "return { network = { nme = \"x\" } }", "network.nme: unknown key" },
    { "return { network = { config = { [\"a b\"] = \"1\" } } }", "network.config" },
    { "return { network = { config = { [\"ipv4.nat\"] = true } } }", "network.config[\"ipv4.nat\"]" },
    { "return { network = { address = \"10.88.0.1\" } }", "network.address" },
    { "return { network = { address = \"fd00::1/64\" } }", "network.address" },
    { "return { network = { name = \"x; reboot\" } }", "network.name" },
    { "return { listeners = { { address = \"1.2.3.4\", port = 80 } } }", "listeners[1].protocols: missing" },
    { "return { listeners = { { address = \"host\", port = 80, protocols = {} } } }", "listeners[1].address" },
    { "return { listeners = { { address = \"1.2.3.4\", port = 80, protocols = { \"sctp\" } } } }", "protocols[1]" },
    { "return { budgets = { attempt = 0 } }", "budgets.attempt" },
    { "return { budgets = { attempt = \"4000\" } }", "budgets.attempt" },
    { "return { budgets = { attempt = 1.5 } }", "budgets.attempt" },
    { "return { exclude = { \"nowhere\" } }", "exclude[1]" },
    { "return { host = { tcp = { 80, x = 81 } } }", "host.tcp: an array" },
    { "return { host = { tcp = { [1] = 80, [3] = 81 } } }", "host.tcp" },
    { "return { forbidden = { [\"10.0.0.0\"] = {} } }", "forbidden" },
    { "return { forbidden = { [\"11.0.0.0/8\"] = { addresses = {} } } }", "forbidden[\"11.0.0.0/8\"].tcp: missing" },
    { "return { tags = {} }", "tags" },
    { "return { listeners = { { address = \"1.2.3.4\", port = 80, protocols = {} } } }", "protocols: at least one" },
    { "return { listeners = { { address = \"1.2.3.4\", port = 80, protocols = { \"tdp\" } } } }", "protocols[1]" },
    {
        "return { listeners = { { address = \"fe80::1%eth0\", port = 80, protocols = { \"tcp\" } } } }",
        "without a scope",
    },
    {
        "return { listeners = { { address = \"224.0.0.1\", port = 80, protocols = { \"tcp\" } } } }",
        "listeners[1].address",
    },
    { "return { image = { type = \"vm\" } }", "image.type: \"vm\" is none of" },
    { "return { image = { type = false } }", "image.type" },
    { "return { acl = { egress = { { destination = \"10.0.0.0/8\" } } } }", "acl.egress[1].action: missing" },
    { "return { acl = { egress = { { action = \"deny\" } } } }", "acl.egress[1].action" },
    { "return { network = { address = \"10.88.0.0/24\" } }", "network.address" },
    { "return { network = { address = \"10.88.0.255/24\" } }", "network.address" },
    { "return { network = { address = \"10.88.0.1/31\" } }", "network.address: 8 to 30" },
    { "return { network = { address = \"10.88.0.1/7\" } }", "network.address: 8 to 30" },
    { "return { network = { domain = \"a..b\" } }", "network.domain" },
    { "return { allowed = { addresses = {} } }", "allowed.addresses: at least one" },
    { "return { allowed = { names = {} } }", "allowed.names: at least one" },
    { "return { allowed = { resolvers = {} } }", "allowed.resolvers: at least one" },
    {
        "return { allowed = { addresses = { { address = \"127.0.0.1\", port = 80 } } } }",
        "allowed.addresses[1].address",
    },
    { "return { allowed = { addresses = { { address = \"255.255.255.255\", port = 80 } } } }", "allowed.addresses[1]" },
    { "return { allowed = { addresses = { { address = \"10.88.0.1\", port = 53 } } } }", "allowed.addresses[1]" },
    { "return { allowed = { names = { \"" .. ("x"):rep(64) .. ".com\" } } }", "allowed.names[1]" },
    { "return { allowed = { names = { \"" .. ("abcdefg."):rep(32) .. "com\" } } }", "allowed.names[1]" },
    { "return { allowed = { names = { \"-x.com\" } } }", "allowed.names[1]" },
    {
        "return { forbidden = { [\"10.0.0.0/8\"] = { addresses = { \"11.0.0.1\" } } } }",
        "addresses[1]: 11.0.0.1 is not in it",
    },
    {
        "return { forbidden = { [\"224.0.0.0/4\"] = { addresses = { \"224.0.0.1\" }, tcp = {}, udp = {} } } }",
        "addresses[1]",
    },
    { "return { exclude = { \"10.1.2.4:0\" } }", "exclude[1]: a port" },
    { "return { exclude = { \"10.1.2.4:65536\" } }", "exclude[1]: a port" },
    { "return { exclude = { \"10.1.2.4:99999999999999999999\" } }", "exclude[1]: a port" },
    { "return { exclude = { \"fd00::1:80\" } }", "exclude[1]: ambiguous: write fd00::1:80/128, or [fd00::1]:80" },
    { "return { exclude = { \"fe80::1%eth0\" } }", "exclude[1]" },
    { "return { exclude = { 7 } }", "exclude[1]" },
    { "return { exclude = { \"0.0.0.0/0\" } }", "exclude: it leaves nothing of allowed.addresses" },
    { "return { exclude = { \"1.1.1.1:443\", \"8.8.8.8:53\" } }", "exclude: it leaves nothing of allowed.addresses" },
    { "return { exclude = { \"1.1.1.1:53\", \"8.8.8.8:53\" } }", "exclude: it leaves nothing of allowed.resolvers" },
    { "return { exclude = { \"10.0.0.0/8\" } }", "exclude: it covers the boxes' own gateway" },
    { "return { box = { port = 8087 } }", "box: different ports" },
    { "return { budgets = { attempt = 3000 } }", "budgets.attempt" },
    { "return { budgets = { attempt = 60001 } }", "budgets.attempt" },
    { "return { budgets = { control = 999 } }", "budgets.control" },
    { "return { memory = { vm = { least = 4096 } } }", "memory.vm.least: no more than" },
    { "return { budgets = { listen = 9000 } }", "budgets.listen: at least attempt" },
    { "return { budgets = { address = 600001 } }", "budgets.address" },
    { "return { budgets = { routed = 3000 } }", "budgets.routed" },
    { "return { image = { server = \"http://x\" } }", "image.server" },
    { "return 7", "a table expected" },
    { "return {", "unexpected symbol" },
    { "error(\"no\")", "attempt to call a nil value" },
    { "return print", "a table expected" },
} do
    local accepted, why = build(case[1])
    check(case[1], not accepted and tostring(why):find("site.lua", 1, true) and tostring(why):find(case[2], 1, true),
        why)
end
check("the shipped file is checked just so", not pcall(contract.build, "return {}", "host/contract.lua", "", ""))

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
