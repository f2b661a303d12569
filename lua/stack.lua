--- The contract's stack on this host, for the doctor's checks: what is dirty, what is not set up yet, what
-- could not be asked.
local contract = require "contract"
local incus = require "incus"
local nft = require "nft"
local report = require "report"
local system = require "system"
local task = require "task"

local stack = {}

--- The command that converges a host to the contract.
stack.SETUP = "boxdrill setup.lua"

--- Something is not as the contract says. Throws when the finding is not complete.
-- @param t a check's @param what what is wrong, text
-- @param finding { why: why that matters, mend: the command that mends it, seen, fix: whether --fix mends it }
function stack.dirty(t, what, finding)
    if type(finding.why) ~= "string" or type(finding.mend) ~= "string" then
        error("stack.dirty: a finding says why it matters and what mends it", 2)
    end
    finding.fix = finding.fix == true
    t:fail(what, finding)
end

--- Something could not be asked. @param what what @param why the reason
function stack.unasked(t, what, why)
    t:suspect(("could not be asked: %s"):format(what), { reason = tostring(why) })
end

--- Something is not set up yet, and so is nothing of the stack.
function stack.fresh(t, what)
    t:skip(what, { fresh = true })
end

-- Why the daemon does not answer, in words of use.
local function why_not(why, code)
    local socket = system.socket()
    if socket.trouble == "EACCES" then
        return ("%s belongs to group %s: be root, or a member of it"):format(socket.path, socket.group)
    elseif code == 403 then
        return ("not yours to see: %s"):format(why)
    end
    return why
end

--- What a read came to, where missing is no answer either.
-- @param t a check's @param what what was asked @param value, why, code as read
-- @return value; nil, and it is recorded, when it could not be asked
function stack.read(t, what, value, why, code)
    if value then
        return value
    elseif code == "ENOENT" and system.programs().incusd == "" then
        stack.fresh(t, "Incus is not installed")
    else
        stack.unasked(t, what, why_not(why, code))
    end
    return nil
end

local READERS = { network = incus.network, acl = incus.acl, profile = incus.profile }

-- The network, the ACL and the profile: each as read, or false where it is missing; nil, message, code.
local function parts(data)
    local out, failure = {}, nil
    task.map(contract.sorted_keys(READERS), function(kind)
        local found, why, code = READERS[kind](data.project, data[kind].name)
        if not found and not incus.missing(code) then
            failure = { why, code }
        end
        out[kind] = found or false
    end)
    if failure then
        return nil, failure[1], failure[2]
    end
    return out
end

--- One part of the stack. Where it is missing it is dirty, unless all of them are.
-- @param t a check's @param kind "network", "acl" or "profile"
-- @return its metadata; nil, and it is recorded, when there is nothing to look at
function stack.part(t, kind)
    local data = t.contract
    local found = stack.read(t, ("the %s %s"):format(kind, data[kind].name), parts(data))
    if not found or found[kind] then
        return found and found[kind] or nil
    end
    local what = ("%s %s is not there"):format(kind, data[kind].name)
    if not found.network and not found.acl and not found.profile then
        stack.fresh(t, what)
    else
        stack.dirty(t, what, { why = "the stack is half set up", mend = stack.SETUP })
    end
    return nil
end

--- Whether nothing of the stack is set up: what a check misses then is no fault of the host's.
-- @return true, false, or nil where that could not be asked
function stack.is_fresh(data)
    local found, _, code = parts(data)
    if not found then
        return code == "ENOENT" and system.programs().incusd == "" or nil
    end
    return not found.network and not found.acl and not found.profile
end

--- Whether the kernel has no such bridge, and so nothing to protect or to serve; then it is recorded. That it is
-- missing where it should be is h.bridge's to say.
function stack.no_bridge(t)
    local name = t.contract.network.name
    local ports, _, code = system.ports(name)
    if ports or code ~= "ENOENT" then
        return false
    elseif stack.is_fresh(t.contract) then
        stack.fresh(t, ("there is no bridge %s"):format(name))
    else
        t:skip(("there is no bridge %s (see h.bridge)"):format(name))
    end
    return true
end

--- The kernel's ruleset. @return as of nft.ruleset; nil, and it is recorded, when it could not be read
function stack.ruleset(t)
    local ruleset, why, code = nft.ruleset()
    if ruleset then
        return ruleset
    elseif report.options().root ~= "1" then
        why = "only root may read them"
    elseif code == "ENOENT" then
        why = "nft is not installed (apt-get install nftables)"
    end
    stack.unasked(t, "the kernel's firewall rules", why)
    return nil
end

--- Records the demands on the kernel's rules that are not met, as one finding; none where there is no bridge.
-- @param t a check's @param demands as of firewall.own @param finding as of stack.dirty
-- @return whether all are met
function stack.demands(t, demands, finding)
    local unmet, all = {}, true
    for _, demand in ipairs(demands) do
        all = all and demand.state == "met"
        if demand.state == "unmet" then
            unmet[#unmet + 1] = demand.what .. (demand.chain and (" (chain %s)"):format(demand.chain) or "")
        elseif demand.state == "untold" then
            stack.unasked(t, demand.what, ("chain %s has a rule that is not read here"):format(demand.chain))
        end
    end
    if #unmet > 0 and not stack.no_bridge(t) then
        stack.dirty(t, ("not so: %s%s"):format(unmet[1], #unmet > 1 and (", and %d more"):format(#unmet - 1) or ""), {
            why = finding.why,
            mend = finding.mend,
            seen = #unmet > 1 and "not so: " .. table.concat(unmet, "; ") or nil,
        })
    end
    return all
end

-- Instances that are boxes of the contract, by their tag.
local function is_box(data, instance)
    for _, tag in ipairs(data.tags) do
        if (instance.config or {})[tag.key] == tag.value then
            return true
        end
    end
    return false
end

--- The NICs of an instance on the contract's network. @return map of device name to device
function stack.nics(data, instance)
    local out = {}
    for name, device in pairs(instance.expanded_devices or {}) do
        if device.type == "nic" and (device.network == data.network.name or device.parent == data.network.name) then
            out[name] = device
        end
    end
    return out
end

--- The boxes of all projects, and whatever else is on their network.
-- @param t a check's
-- @return array of instances, each with `box`, whether it bears a box's tag; nil, and it is recorded
function stack.boxes(t)
    local all = stack.read(t, "the instances", incus.instances("*"))
    if not all then
        return nil
    end
    local out = {}
    for _, instance in ipairs(all) do
        instance.box = is_box(t.contract, instance)
        if instance.box or next(stack.nics(t.contract, instance)) then
            out[#out + 1] = instance
        end
    end
    return out
end

return stack
