-- The profile that boxes are minted on.
local contract = require "contract"
local deviation = require "deviation"
local stack = require "stack"

local FILTERS = { "security.mac_filtering", "security.ipv4_filtering", "security.ipv6_filtering" }

local function compare(t, profile)
    local wanted = t.contract.profile.devices
    for _, name in ipairs(contract.sorted_keys(wanted)) do
        local _, lines = deviation.keys("", wanted[name], profile.devices[name] or {})
        for _, line in ipairs(lines) do
            stack.dirty(t, ("device %s of profile %s: %s"):format(name, profile.name, line), {
                why = line:find("port_isolation", 1, true)
                    and "boxes that are started on it reach each other through the bridge"
                    or "boxes are minted with another device than the contract's",
                mend = stack.SETUP,
            })
        end
        for _, key in ipairs(FILTERS) do
            if (profile.devices[name] or {})[key] and not wanted[name][key] then
                stack.dirty(t, ("device %s of profile %s still has %s"):format(name, profile.name, key), {
                    why = "left by a trial: it pins a lease and breaks what has addresses of its own inside a box",
                    mend = ("incus profile device unset %s %s %s"):format(profile.name, name, key),
                })
            end
        end
    end
    for _, name in ipairs(contract.sorted_keys(profile.devices)) do
        if not wanted[name] then
            stack.dirty(t, ("profile %s has a device more: %s, %s"):format(
                profile.name, name, tostring(profile.devices[name].type)), {
                why = "every box gets it, and the contract does not know it",
                mend = ("incus profile device remove %s %s"):format(profile.name, name),
            })
        end
    end
end

local function privileged(t, profile)
    for _, key in ipairs { "security.privileged", "security.nesting" } do
        if (profile.config or {})[key] == "true" then
            stack.dirty(t, ("profile %s has %s=true"):format(profile.name, key), {
                why = "the wall between a box and the host's kernel is thinner",
                mend = ("incus profile unset %s %s"):format(profile.name, key),
            })
        end
    end
end

return {
    id = "h.profile",
    title = "the boxes' profile is the contract's, isolation included",
    run = function(t)
        local profile = stack.part(t, "profile")
        if not profile then
            return
        end
        profile.devices = profile.devices or {}
        compare(t, profile)
        privileged(t, profile)
        if #t.observations == 0 then
            t:pass(("%s is"):format(profile.name))
        end
    end,
}
