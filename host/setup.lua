--- Converges this host to the contract: ACL, network, profile, firewall. What is already so is left alone,
-- and every change is said before it is made. With boxes attached that are not this run's it refuses, before it
-- touches anything: a changed network is pushed onto every live NIC.
local contract = require "contract"
local deviation = require "deviation"
local firewall = require "firewall"
local incus = require "incus"
local nft = require "nft"
local report = require "report"
local start = require "start"

local USAGE, UNSURE, REFUSED = 2, 3, 4
local HELP = [[
usage: boxdrill setup.lua [options]

Converges this host to the contract: the boxes' network with its resolver pin, the network ACL,
the profile, and the host's firewall rules. The storage pool must exist.

  --dry-run        say what would be changed, change nothing
  --force          change it with instances attached, too
  --yes            ask nothing
  --site FILE      the site's changes to the contract

Exit status: 0 the host is as the contract says; 2 usage, consent or privilege missing; 3 a change
did not take; 4 refused: instances are attached (they are listed).
]]
local KNOWN = { force = "flag", ["dry-run"] = "flag" }

-- What cannot be known ends the script from wherever it is asked: thrown as { why }, caught in main.
local function give_up(what, why)
    error({ why = ("%s: %s"):format(what, why) }, 0)
end

-- Reads a thing that may be missing: false when it is.
local function read(what, found, etag_or_why, code)
    if found then
        return found, etag_or_why
    elseif incus.missing(code) then
        return false
    end
    return give_up(what, etag_or_why)
end

-- Each planned change: a title, lines that say what becomes what, and the function that makes it.

local function plan_network(data)
    local wanted = data.network
    local found, etag = read("network " .. wanted.name, incus.network(data.project, wanted.name))
    if not found then
        return {
            title = ("network %s: create"):format(wanted.name),
            lines = select(2, deviation.keys("", wanted.config, {})),
            apply = function()
                return incus.create_network(data.project, wanted.name, "", wanted)
            end,
        }
    end
    local config, lines = deviation.keys("", wanted.config, found.config or {})
    return {
        title = ("network %s: change"):format(wanted.name),
        lines = lines,
        apply = function()
            return incus.patch_network(data.project, wanted.name, etag,
                { description = found.description, config = config })
        end,
    }
end

-- A line for each rule that is too many and each that is missing.
local function compare_rules(direction, wanted, actual)
    local lines, surplus = deviation.rules(wanted, actual)
    for i, text in ipairs(lines) do
        lines[i] = ("%s: add %s"):format(direction, text)
    end
    for _, text in ipairs(surplus) do
        lines[#lines + 1] = ("%s: remove %s"):format(direction, text)
    end
    return lines
end

local function plan_acl(data)
    local wanted = {
        description = data.acl.description,
        egress = deviation.with_state(data.acl.egress),
        ingress = deviation.with_state(data.acl.ingress),
    }
    local name = data.acl.name
    local found, etag = read("ACL " .. name, incus.acl(data.project, name))
    local lines = compare_rules("egress", wanted.egress, found and found.egress or {})
    local ingress = compare_rules("ingress", wanted.ingress, found and found.ingress or {})
    table.move(ingress, 1, #ingress, #lines + 1, lines)
    if not found then
        return {
            title = ("ACL %s: create"):format(name),
            lines = lines,
            create = true,
            apply = function()
                return incus.create_acl(data.project, name, "", wanted)
            end,
        }
    end
    wanted.description = found.description
    return {
        title = ("ACL %s: change"):format(name),
        lines = lines,
        apply = function()
            return incus.put_acl(data.project, name, etag, wanted)
        end,
    }
end

-- A device is written whole: its other keys stay.
local function merged(actual, wanted)
    local out = {}
    for _, map in ipairs { actual, wanted } do
        for key, value in pairs(map) do
            out[key] = value
        end
    end
    return out
end

local function plan_profile(data)
    local wanted = data.profile
    local found, etag = read("profile " .. wanted.name, incus.profile(data.project, wanted.name))
    local devices, lines = {}, {}
    for _, name in ipairs(contract.sorted_keys(wanted.devices)) do
        local actual = found and found.devices[name] or {}
        local _, more = deviation.keys(name .. " ", wanted.devices[name], actual)
        if #more > 0 then
            devices[name] = merged(actual, wanted.devices[name])
        end
        table.move(more, 1, #more, #lines + 1, lines)
    end
    if not found then
        return {
            title = ("profile %s: create"):format(wanted.name),
            lines = lines,
            create = true,
            apply = function()
                return incus.create_profile(data.project, wanted.name, "", wanted)
            end,
        }
    end
    return {
        title = ("profile %s: change"):format(wanted.name),
        lines = lines,
        apply = function()
            return incus.patch_profile(data.project, wanted.name, etag,
                { description = found.description, devices = devices })
        end,
    }
end

local function apply_firewall(data)
    local ibrname = engine.call("nft.supports", "ibrname") or "0"
    local state, value, _, _, _, stderr = engine.call("firewall.apply", data.firewall.table, data.network.name,
        data.gateway, data.subnet, ibrname)
    if not state then
        return nil, value
    elseif state ~= "exit" or value ~= "0" then
        return nil, ("nft: %s %s: %s"):format(state, value, stderr)
    end
    return true
end

local function plan_firewall(data)
    local ruleset, why = nft.ruleset()
    if not ruleset then
        give_up("the firewall's rules", why)
    end
    local lines = firewall.missing(ruleset, data)
    for i, line in ipairs(lines) do
        lines[i] = "not so now: " .. line
    end
    return {
        title = ("firewall tables inet %s and bridge %s: write"):format(data.firewall.table, data.firewall.table),
        lines = lines,
        apply = function()
            return apply_firewall(data)
        end,
    }
end

-- What is to be changed, in the order in which it can be.
local function plan(data)
    local out = {}
    for _, change in ipairs { plan_acl(data), plan_network(data), plan_profile(data), plan_firewall(data) } do
        if change.create or #change.lines > 0 then
            out[#out + 1] = change
        end
    end
    return out
end

local function say_plan(changes)
    for _, change in ipairs(changes) do
        report.say(change.title, "bold")
        for _, line in ipairs(change.lines) do
            report.say("  " .. line)
        end
    end
end

-- Makes the changes. Returns whether all were made.
local function apply(changes)
    for _, change in ipairs(changes) do
        local done, why = change.apply()
        if not done then
            start.stop(UNSURE, ("%s: %s"):format(change.title, why))
            return false
        end
        report.say(change.title .. ": done", "green")
    end
    return true
end

-- Reads everything again: a change that did not take is no change.
local function verify(data)
    local left = plan(data)
    if #left > 0 then
        report.say("this is still not as the contract says:", "red")
        say_plan(left)
        return engine.call("exit", UNSURE)
    end
    report.say("The host is as the contract says.", "green")
end

local function refuse(names)
    start.stop(REFUSED, "refused: these instances are on the network, and a change reaches every live NIC of it "
        .. "(--force changes it all the same):\n  " .. table.concat(names, "\n  "))
end

local function converge(found)
    local data = contract.load()
    local changes = plan(data)
    if #changes == 0 then
        return report.say("The host is as the contract says: nothing to change.", "green")
    end
    say_plan(changes)
    if found["dry-run"] then
        return
    end
    local names, why = incus.attached(data.network.name)
    if not names then
        error(why, 0)
    elseif #names > 0 and not found.force then
        return refuse(names)
    elseif engine.call("confirm", "Make these changes?") ~= "1" then
        return start.stop(USAGE, "not agreed to: nothing was changed (--yes agrees beforehand)")
    end
    engine.call("grant", "setup")
    if apply(changes) then
        verify(data)
    end
end

local function main(...)
    local found = start.only_options("setup.lua", KNOWN, HELP, ...)
    if not found then
        return
    elseif report.options().root ~= "1" then
        return start.refuse("setup.lua reads and changes this host's firewall: run it as root")
    end
    local ok, why = pcall(converge, found)
    if not ok and type(why) == "table" then
        return start.stop(UNSURE, why.why)
    elseif not ok then
        error(why, 0)
    end
end

main(...)
