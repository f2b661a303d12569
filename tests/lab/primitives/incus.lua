-- grants: setup box.mint
-- Typed requests of the broker to a real Incus: what works, Incus's own words where it does not, and
-- what is never sent at all.
local cjson = require "cjson"
local passed, failed = 0, 0

local function check(text, ok, ...)
    passed, failed = passed + (ok and 1 or 0), failed + (ok and 0 or 1)
    if not ok then
        print("FAILED: " .. text, ...)
    end
end

-- status, decoded body
local function ask(...)
    local status, etag, body = engine.call(...)
    return math.tointeger(tonumber(status)), status and cjson.decode(body), etag, body
end

local function second(_, value)
    return value
end

local function refused(code, ...)
    local ok, message = pcall(engine.call, ...)
    local arguments = table.concat({ ... }, " ")
    check("refused: " .. arguments, not ok and message:find(code, 1, true) ~= nil, message)
end

local project, mine = "default", "bd-" .. engine.run_id .. "-t"
local status, reply = ask("server.get")
check("server.get", status == 200 and reply.metadata.environment.server == "incus")
status, reply = ask("instance.list", project)
check("instance.list names the operator's box", status == 200 and reply.metadata[1].name == "operators")
status, reply = ask("instance.list", "*")
check("instance.list of all projects", status == 200 and #reply.metadata == 1)
status, reply = ask("instance.get", project, "missing")
check("a missing instance, in Incus's words", status == 404 and reply.error:find("not found", 1, true) ~= nil)
status, reply = ask("network.get", project, "boxnet")
check("network.get", status == 200 and reply.metadata.config["ipv4.nat"] == "true")
status, reply = ask("network.state", project, "boxnet")
check("network.state", status == 200 and reply.metadata.state == "up")
check("acl.get", ask("acl.get", project, "box-isolate") == 200)
check("profile.get", ask("profile.get", project, "box-net") == 200)
check("operation.list", ask("operation.list", project) == 200)

-- An instance of ours, from creation to its end.
local function create(name, ...)
    return ask("instance.create", project, name, "container", "", "debian/13/cloud", ...)
end
local profile = { "profiles", "", "", "box-net" }
status, reply = create(mine, table.unpack(profile))
check("instance.create", status == 200 and reply.metadata.status == "Success", reply.error)
reply = second(ask("instance.get", project, mine))
check("it carries the run's tag", reply.metadata.config["user.boxdrill"] == engine.run_id)
reply = second(create(mine, table.unpack(profile)))
check("the same name again, in Incus's words",
    reply.error:find("exist", 1, true) or reply.error:find("UNIQUE", 1, true), cjson.encode(reply))
check("instance.start", ask("instance.start", project, mine) == 200)
reply = second(ask("instance.state", project, mine))
check("it runs", reply.metadata.status == "Running")
check("instance.stop", ask("instance.stop", project, mine) == 200)
reply = second(ask("instance.state", project, mine))
check("it is stopped", reply.metadata.status == "Stopped")
check("instance.delete of a stopped one", ask("instance.delete", project, mine) == 200)
check("it is gone", ask("instance.get", project, mine) == 404)
reply = second(create("bd-" .. engine.run_id .. "-n", "profiles", "", "", "nosuch"))
check("a profile that is not there, in Incus's words", reply.error:find("not found") ~= nil
    or reply.error:find("nosuch") ~= nil, reply.error)
reply = second(ask("instance.create", project, "bd-" .. engine.run_id .. "-i", "container", "", "no/such/image"))
check("an image that is not there, in Incus's words", reply.error ~= "", cjson.encode(reply))

-- The ETag guards a write.
local _, etag
_, reply, etag = ask("acl.get", project, "box-isolate")
local acl = reply.metadata
local rules = { "top", "", "description", acl.description }
for i, rule in ipairs(acl.egress) do
    for key, value in pairs(rule) do
        for _, word in ipairs { "egress", tostring(i), key, value } do
            rules[#rules + 1] = word
        end
    end
end
status, reply = ask("acl.put", project, "box-isolate", "0123456789", table.unpack(rules))
check("a stale ETag is 412", status == 412, reply.error)
check("the right one writes", ask("acl.put", project, "box-isolate", etag, table.unpack(rules)) == 200)
reply = second(ask("acl.get", project, "box-isolate"))
check("and nothing was lost", #reply.metadata.egress == #acl.egress)

-- What no script can ask for, whatever its grants.
refused("left alone", "instance.delete", project, "operators")
refused("left alone", "instance.stop", project, "operators")
refused("must begin with", "instance.create", project, "other", "container", "", "x")
for _, quad in ipairs {
    { "config", "", "security.privileged", "true" }, { "config", "", "security.nesting", "true" },
    { "config", "", "raw.lxc", "x" }, { "config", "", "raw.idmap", "x" },
    { "config", "", "linux.kernel_modules", "x" },
    { "config", "", "cloud-init.user-data", "x" }, { "devices", "d", "source", "/" },
} do
    refused("instance.create", "instance.create", project, mine, "container", "", "x", table.unpack(quad))
end
refused("root disk", "profile.patch", project, "p", "", "devices", "d", "type", "disk",
    "devices", "d", "path", "/etc")
refused("root disk", "profile.patch", project, "p", "", "devices", "d", "type", "unix-char")
refused("root disk", "profile.patch", project, "p", "", "devices", "d", "network", "boxnet") -- no type
for _, key in ipairs { "nictype", "parent", "host_name" } do
    refused("key of a NIC", "profile.patch", project, "p", "", "devices", "d", "type", "nic",
        "devices", "d", key, "eth0")
end
refused("does not write", "instance.create", project, mine, "container", "", "x", "top", "", "name", "other")
refused("not an ETag", "acl.put", project, "box-isolate", "x\r\nDELETE /1.0/instances/operators HTTP/1.1", "top", "",
    "description", "d")
refused("does not write", "network.patch", project, "boxnet", "", "config", "", "bridge.external_interfaces", "eth0")
for _, name in ipairs { "filter", "incus", "nat" } do
    refused("must begin with 'box'", "firewall.apply", name, "boxnet", "10.88.0.1", "10.88.0.0/24", "0")
end
for _, line in ipairs { "dhcp-script=/bin/sh", "conf-file=/etc/shadow", "server=/x/1.1.1.1 dhcp-script", "server=" } do
    refused("raw.dnsmasq", "network.patch", project, "boxnet", "", "config", "", "raw.dnsmasq", "no-resolv\n" .. line)
end
refused("not a name", "instance.get", project, "../../1.0")
refused("not a name", "instance.get", project, "a?b=c")
refused("not a name", "instance.get", "a&b", "c")
refused("not a name", "network.get", project, "x/state")
refused("usage", "acl.put", project, "box-isolate", "", "egress", "1", "action")

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed > 0 and 1 or 0)
