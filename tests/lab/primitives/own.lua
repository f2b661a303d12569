-- grants: rehearse box.mint
-- Networks, ACLs and profiles of a run's own: made, changed, removed; and everybody else's refused.
local cjson = require "cjson"
local incus = require "incus"
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
refused("only no-resolv", "own.network.create", project, mine, "config", "", "raw.dnsmasq", "dhcp-script=/bin/sh")
refused("a device is a NIC", "own.profile.create", project, mine, "devices", "x", "source", "/etc")
refused("was not made by this run", "instance.device", project, "operators", "eth0", "type", "nic")
refused("only boxdrill's own scripts", "live.allow", project, "boxnet")
refused("is not the network named with --live", "live.set", project, "boxnet", "dns.mode", "", "", "none", "managed")
refused("did not change that key", "live.unset", project, "boxnet", "dns.mode", "", "")
refused("this run made no such network", "instance.device", project, own.name("tst"), "eth0", "type", "nic",
    "network", "boxnet")

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
local _, why, code = incus.put_own("network", project, mine, ("0"):rep(64), { config = network.config })
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
