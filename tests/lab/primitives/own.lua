-- grants: rehearse box.mint
-- Networks, ACLs and profiles of a run's own: made, changed, removed; and everybody else's refused.
local cjson = require "cjson"
local incus = require "incus"
local mint = require "mint"
local own = require "own"
local passed, failed = 0, 0

local function check(text, ok, ...)
    passed, failed = passed + (ok and 1 or 0), failed + (ok and 0 or 1)
    if not ok then
        print("FAILED: " .. text, ...)
    end
end

-- Misuse is thrown, a world that fails comes as nil, message: in both cases these words are in it.
local function refused(words, ...)
    local _, message, why = pcall(engine.call, ...)
    message = message or why
    check("refused: " .. table.concat({ ... }, " "), message:find(words, 1, true), message)
end

local project, mine = "default", own.name("tst")
local NIC = { eth0 = { type = "nic", network = mine, name = "eth0" } }

-- Names of others, keys that reach beyond the bridge, lines that run programs: never sent.
for _, kind in ipairs { "network", "acl", "profile" } do
    refused("the name must begin with", ("own.%s.create"):format(kind), project, "theirs")
    refused("the name must begin with", ("own.%s.create"):format(kind), project, "bd-00000000-tst")
    local theirs = ({ network = "boxnet", acl = "box-isolate", profile = "box-net" })[kind]
    refused("was not made by this run", ("own.%s.put"):format(kind), project, theirs, "")
    refused("was not made by this run", ("own.%s.delete"):format(kind), project, theirs)
end
refused("the name must begin with", "own.network.create", project, mine .. "-far-too-long")
for _, key in ipairs { "ipv4.routes", "ipv4.gateway", "bridge.external_interfaces", "tunnel.x.protocol", "bgp.x" } do
    refused("does not write that key", "own.network.create", project, mine, "config", "", key, "1")
end
for _, key in ipairs { "ipv4.nat.address", "ipv4.routing", "bridge.hwaddr", "dns.zone.forward", "parent" } do
    refused("not", "own.network.create", project, mine, "config", "", key, "1")
end
-- dnsmasq runs as root: a line that runs a program, writes a file or reads another configuration is one of root's.
for _, line in ipairs { "dhcp-script=/bin/sh", "log-facility=/etc/x", "conf-file=/tmp/x", "dhcp-leasefile=/etc/x",
    "no-resolv\nconf-dir=/tmp", "server=1.1.1.1\rlog-facility=/x", " no-resolv", "server=/x/1.1.1.1@eth0",
    "server=" } do
    refused("only no-resolv", "own.network.create", project, mine, "config", "", "raw.dnsmasq", line)
end
-- A subnet that the host is in, a public one, one that is none; other people's ACLs and networks.
for _, address in ipairs { "10.88.0.1/24", "10.88.0.129/25", "203.0.113.5/24", "8.8.8.1/24", "10.0.0.1/8", "auto", "x",
    "", "10.209.7.1/24 ", "10.209.7.1", "10.209.7.1/024x" } do
    refused("ipv4.address: ", "own.network.create", project, mine, "config", "", "ipv4.address", address)
end
refused("only none, auto", "own.network.create", project, mine, "config", "", "ipv6.address", "2001:db8::1/64")
refused("only ACLs that this run made", "own.network.create", project, mine, "config", "", "security.acls",
    "box-isolate")
refused("only ACLs that this run made", "own.network.create", project, mine, "config", "", "security.acls",
    mine .. ",box-isolate")
local DEVICE = { "own.profile.create", project, mine, "devices", "eth0", "type", "nic", "devices", "eth0" }
local function with(...)
    local words = table.move(DEVICE, 1, #DEVICE, 1, {})
    return table.unpack(table.move({ ... }, 1, select("#", ...), #words + 1, words))
end
refused("this run made no such network", with("network", "boxnet"))
for _, key in ipairs { "ipv4.routes", "ipv4.address", "ipv4.routes.external", "ipv6.routes", "security.acls" } do
    refused("does not write that key", with(key, "10.0.0.0/8"))
end
for _, key in ipairs { "parent", "nictype", "hwaddr", "host_name", "vlan" } do
    refused("does not write that key", with(key, "eth0"))
end
-- A key twice, a word of another line, the broker's own tag, no root disk.
refused("there twice", with("type", "usb"))
refused("there twice", "own.profile.create", project, mine, "devices", "x", "type", "disk", "devices", "x", "type",
    "gpu")
refused("control character", "own.network.create", project, mine, "config", "", "user.x\ny", "1")
refused("control character", "own.network.create", project, mine, "config", "", "user.x", "1\n2")
refused("control character", "own.network.create", project, mine, "config", "", "dns.domain", "x\nconf-file=/x")
refused("the broker's own", "own.network.create", project, mine, "config", "", "user.boxdrill", "00000000")
refused("a device is a NIC", "own.profile.create", project, mine, "devices", "x", "source", "/etc")
refused("does not write that key", "own.profile.create", project, mine, "devices", "x", "type", "disk", "devices", "x",
    "source", "/etc")
refused("the only disk", "own.profile.create", project, mine, "devices", "x", "type", "disk", "devices", "x", "path",
    "/e")
refused("does not write that key", "own.profile.create", project, mine, "config", "", "security.privileged", "true")
refused("does not write that key", "own.profile.create", project, mine, "config", "", "raw.lxc", "x")
refused("was not made by this run", "instance.device", project, "operators", "eth0", "type", "nic")
refused("only boxdrill's own scripts", "live.allow", project, "boxnet")
refused("is not the network named with --live", "live.set", project, "boxnet", "dns.mode", "", "", "none", "managed")
refused("did not change that key", "live.unset", project, "boxnet", "dns.mode", "", "")

-- A whole life.
check("an ACL", own.create("acl", project, mine, { egress = { { action = "drop", destination = "10.0.0.0/8",
    state = "enabled" } } }))
check("a network", own.create("network", project, mine, { config = { ["ipv4.address"] = "10.209.7.1/24",
    ["ipv6.address"] = "none", ["security.acls"] = mine } }))
check("a profile", own.create("profile", project, mine, { devices = NIC }))
local network = incus.network(project, mine)
check("it carries the run's tag", network and network.config["user.boxdrill"] == engine.run_id)
refused("has made", "own.network.create", project, mine)
local before = own.edit("network", project, mine, function(body)
    body.config["dns.mode"] = "none"
end)
network = incus.network(project, mine)
check("a key is set", before and network.config["dns.mode"] == "none", cjson.encode(network))
check("the others are kept", network.config["security.acls"] == mine and network.config["ipv4.address"]
    == "10.209.7.1/24")
check("the tag too", network.config["user.boxdrill"] == engine.run_id)
refused("without the ETag", "own.network.put", project, mine, "", "config", "", "dns.mode", "none")
check("an instance", mint.create(mint.name("box"), assert(mint.recipe())))
refused("this run made no such network", "instance.device", project, mint.name("box"), "eth0", "type", "nic",
    "network", "boxnet")
check("its NIC on a network of the run", incus.device(project, mint.name("box"), "eth0", NIC.eth0))
check("removed", mint.delete(project, mint.name("box")))
local _, why, code = incus.put_own("network", project, mine, ("0"):rep(64), { config = { ["dns.mode"] = "none" } })
check("an ETag of yesterday is refused", code == 412, why)
_, why, code = own.edit("acl", project, mine, function(body)
    table.insert(body.egress, { action = "drop", destination = "@internal", state = "enabled" })
end)
check("Incus's own words", code and code >= 400 and why:find("@internal", 1, true), why)
check("nothing of it is left", #incus.acl(project, mine).egress == 1)
_, why = own.remove("acl", project, mine)
check("what is in use is not removed, and that is said", why and why:find("still there", 1, true), why)
for _, kind in ipairs { "profile", "network" } do
    check(kind .. " removed", own.remove(kind, project, mine))
    check(kind .. " gone", select(3, own.KINDS[kind](project, mine)) == 404)
end
-- The ACL, and another network, are left to the run's own revert.
check("a network that is left", own.create("network", project, own.name("lft"), { config = { ["ipv4.address"] =
    "10.209.8.1/24", ["ipv6.address"] = "none", ["security.acls"] = mine } }))

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and 0 or 1)
