-- What lab_signals.sh ends in every way: a network, an ACL and an instance of its own, then what its argument says.
local contract = require "contract"
local mint = require "mint"
local own = require "own"

local how = select(5, engine.call("self"))
local project, name = contract.load().project, own.name("end")
assert(own.create("acl", project, name, {}))
assert(own.create("network", project, name, { config = { ["ipv4.address"] = "10.209.9.1/24",
    ["ipv6.address"] = "none", ["security.acls"] = name } }))
assert(mint.create(mint.name("a"), assert(mint.recipe())))
print("made")
if how == "error" then
    error("on purpose")
end
for i = 1, 1000 do
    print("waiting", i)
    engine.call("sleep", 100)
end
