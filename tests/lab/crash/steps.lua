-- What lab_crash.sh kills at every step: each kind of thing that the journal knows, made, changed and removed,
-- once. `slow`: with so much time before the rename that the instance is older than its new name.
local client = require "client"
local contract = require "contract"
local incus = require "incus"
local mint = require "mint"
local own = require "own"

local args = table.pack(select(5, engine.call("self")))
local project, name = contract.load().project, own.name("stp")
local CLIENT = { error = function(_, what) error(what, 0) end }

local function must(done, why)
    return done or error(tostring(why), 0)
end

-- Networks, ACLs and profiles, and keys of them and of a box's NIC.
must(own.create("acl", project, name, { egress = { { action = "drop", destination = "10.0.0.0/8",
    state = "enabled" } } }))
must(own.create("network", project, name, { config = { ["ipv4.address"] = "10.209.7.1/24",
    ["ipv6.address"] = "none", ["security.acls"] = name } }))
must(own.create("profile", project, name, { devices = {
    eth0 = { type = "nic", network = name, name = "eth0" },
    root = { type = "disk", path = "/", pool = contract.load().profile.devices.root.pool },
} }))
must(mint.create(mint.name("a"), must(mint.recipe(name, "10.209.7.0/24"))))
must(own.edit("network", project, name, function(body) body.config["dns.mode"] = "none" end))
must(incus.device(project, mint.name("a"), "eth0", { type = "nic", network = name, name = "eth0",
    ["security.port_isolation"] = "true" }))
must(incus.start(project, mint.name("a")))
-- What the client makes, and what it renames.
must(client.must(CLIENT, "copy", mint.name("a"), mint.name("b")))
if args[1] == "slow" then
    engine.call("sleep", 8000)
end
must(client.must(CLIENT, "rename", mint.name("b"), mint.name("c")))
must(mint.delete(project, mint.name("c")))
-- What the box CLI makes.
must(engine.call("box", project, 60000, 65536, "new", "--name", mint.name("x-d"), "--container"))
print("all steps done")
