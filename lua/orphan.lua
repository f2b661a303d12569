--- Links that incusd left behind when it died while it started a box: it forgets a veth pair that it had not plugged
-- in yet. (Measured on Incus 6.0.4: the end that was to be the box's has the box's MAC already.)
local host = require "host"

local orphan = {}

-- The MACs of an instance's NICs. @return set
local function macs_of(instance)
    local out = {}
    for key, value in pairs(instance.config or {}) do
        if key:find("^volatile%..+%.hwaddr$") then
            out[value] = true
        end
    end
    return out
end

--- Removes what is left of a box of this run, before the box is deleted and its MAC forgotten. The box's own ends of
-- living pairs are in the box, and are not seen from here.
-- @param project @param name
-- @param instance as of incus.instance, just read; nil where there is none
function orphan.remove(project, name, instance)
    local macs = instance and macs_of(instance) or {}
    for _, link in ipairs(next(macs) and host.links() or {}) do
        if macs[link.address] and not link.master and link.ifname:find("^veth") then
            engine.call("orphan.delete", project, name, link.ifname, link.address)
        end
    end
end

return orphan
