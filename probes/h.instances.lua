-- Boxes, as they are configured now: a key on the instance wins over its profile.
local contract = require "contract"
local own = require "own"
local stack = require "stack"

local FILTERS = { "security.mac_filtering", "security.ipv4_filtering", "security.ipv6_filtering" }
local THIN = {
    ["security.privileged"] = "root in it is root on the host",
    ["security.nesting"] = "the wall between it and the host's kernel is thinner",
    ["raw.lxc"] = "it can be anything",
    ["raw.qemu"] = "it can be anything",
}

local function config(t, instance)
    for _, key in ipairs(contract.sorted_keys(THIN)) do
        local value = (instance.expanded_config or {})[key] or ""
        if value ~= "" and value ~= "false" then
            stack.dirty(t, ("%s has %s=%s"):format(instance.name, key, value), {
                why = THIN[key],
                mend = ("incus config unset %s %s --project %s (or in its profile)"):format(
                    instance.name, key, instance.project),
            })
        end
    end
end

local function remove(instance, device)
    return ("incus config device remove %s %s --project %s"):format(instance.name, device, instance.project)
end

-- A NIC of the instance's own.
local function own_nic(t, instance, name, device)
    local wanted
    for _, nic in pairs(t.contract.profile.devices) do
        wanted = wanted or nic.type == "nic" and nic or nil
    end
    local same = device["security.port_isolation"] == (wanted or {})["security.port_isolation"]
    local text = same and "its own NIC %s, in place of the profile's" or "its own NIC %s, without port isolation"
    stack.dirty(t, ("%s has %s"):format(instance.name, text:format(name)), {
        why = "what the profile says of isolation does not reach it",
        mend = remove(instance, name),
    })
end

local function nics(t, instance)
    local expanded, count = instance.expanded_devices or {}, 0
    for _, name in ipairs(contract.sorted_keys(expanded)) do
        local device = expanded[name]
        if device.type == "nic" then
            count = count + 1
            if (instance.devices or {})[name] then
                own_nic(t, instance, name, device)
            end
            for _, key in ipairs(FILTERS) do
                if device[key] == "true" and not (t.contract.profile.devices[name] or {})[key] then
                    stack.dirty(t, ("NIC %s of %s has %s"):format(name, instance.name, key), {
                        why = "left by a trial: it breaks what has addresses of its own inside the box",
                        mend = remove(instance, name),
                    })
                end
            end
        end
    end
    if count > 1 then
        stack.dirty(t, ("%s has %d NICs"):format(instance.name, count), {
            why = "what is behind the second one is behind no wall of the contract's",
            mend = ("incus config device list %s --project %s, and remove one"):format(
                instance.name, instance.project),
        })
    end
end

-- A box that is plugged in, and not here.
local function elsewhere(t, instance)
    for _, device in pairs(instance.expanded_devices or {}) do
        if device.type == "nic" and not next(stack.nics(t.contract, instance)) then
            return stack.dirty(t, ("%s is a box, and not on network %s"):format(
                instance.name, t.contract.network.name), {
                why = "no wall of the contract's is around it",
                mend = ("incus config device list %s --project %s, and put it on profile %s"):format(
                    instance.name, instance.project, t.contract.profile.name),
            })
        end
    end
end

local function devices(t, instance)
    for _, name in ipairs(contract.sorted_keys(instance.expanded_devices or {})) do
        local device = instance.expanded_devices[name]
        local root = device.type == "disk" and device.path == "/"
        if device.type ~= "nic" and device.type ~= "none" and not root then
            stack.dirty(t, ("%s has a device of the host's: %s, %s"):format(
                instance.name, name, tostring(device.type)), {
                why = "it leads out of the box",
                mend = remove(instance, name),
            })
        end
    end
end

return {
    id = "h.instances",
    title = "every box is confined as the contract says",
    run = function(t)
        local instances = stack.boxes(t)
        if not instances then
            return
        end
        local names = {}
        for _, instance in ipairs(instances) do
            if not (instance.config or {})[own.TAG] then
                names[#names + 1] = instance.name
                config(t, instance)
                nics(t, instance)
                devices(t, instance)
                elsewhere(t, instance)
                if not instance.box then
                    t:note(("%s (project %s) is on the boxes' network and bears no box's tag"):format(
                        instance.name, instance.project))
                end
            end
        end
        if t:verdict() ~= "FAIL" then
            t:pass(#names > 0 and ("%d are there, and left alone: %s"):format(#names, table.concat(names, " "))
                or "there is none")
        end
    end,
}
