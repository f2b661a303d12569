-- grants: host.exec
-- nft queries: the real ruleset as data, and what is said when it cannot be had.
local nft = require "nft"
local passed, failed = 0, 0

local function check(text, ok, ...)
    passed, failed = passed + (ok and 1 or 0), failed + (ok and 0 or 1)
    if not ok then
        print("FAILED: " .. text, ...)
    end
end

local function sh(text)
    local state, code, _, _, _, stderr = engine.call("exec", 5000, 1000, 1000, "sh", "-c", text)
    assert(state == "exit" and code == "0", stderr)
end

local ruleset = assert(nft.ruleset())
check("our input chain", nft.chain(ruleset, "inet", "box", "input") ~= nil)
check("Incus's own", nft.chain(ruleset, "inet", "incus", "acl.boxnet") ~= nil)
check("a chain there is none of", nft.chain(ruleset, "inet", "box", "nosuch") == nil)
sh "nft add table inet probe"
sh "nft add chain inet probe c '{ type filter hook input priority 0; }'"
sh "nft add rule inet probe c tcp dport 1 drop"
check("a change is seen", nft.chain(assert(nft.ruleset()), "inet", "probe", "c") ~= nil)
sh "nft delete table inet probe"
check("and its end", nft.chain(assert(nft.ruleset()), "inet", "probe", "c") == nil)
local supported = engine.call("nft.supports", "ibrname")
check("meta ibrname is known or not", supported == "0" or supported == "1", supported)
sh "mv /usr/sbin/nft /usr/sbin/nft.away"
local nothing, _, code = nft.ruleset()
check("no nft: ENOENT", nothing == nil and code == "ENOENT", tostring(code))
sh "printf '#!/bin/sh\\nsleep 1000\\n' >/usr/sbin/nft; chmod 755 /usr/sbin/nft"
local from = engine.clock()
nothing, _, code = nft.ruleset()
check("an nft that never ends: ETIMEDOUT", nothing == nil and code == "ETIMEDOUT", tostring(code))
check("in time", engine.clock() - from < 15)
sh "mv /usr/sbin/nft.away /usr/sbin/nft"

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed > 0 and 1 or 0)
