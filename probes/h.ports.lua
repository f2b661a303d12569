-- Isolation is the port's, set when a NIC starts: a profile says nothing of a box that was running before. An
-- isolated port and one that is not still talk, so one is enough.
local incus = require "incus"
local stack = require "stack"
local system = require "system"

-- Whose port it is, by the host's name of the NIC; nil where nobody's.
local function owner(instances, port)
    for _, instance in ipairs(instances or {}) do
        for key, value in pairs(instance.config or {}) do
            if value == port and key:find("^volatile%..+%.host_name$") then
                return instance
            end
        end
    end
    return nil
end

local function not_isolated(t, instances, port)
    local instance = owner(instances, port)
    local whose = instance and ("%s (project %s)"):format(instance.name, instance.project) or "nobody that Incus knows"
    stack.dirty(t, ("port %s of %s is not isolated; it is %s's"):format(port, t.contract.network.name, whose), {
        why = "it exchanges frames with every other port, isolated ones included",
        mend = instance and ("incus restart %s --project %s, once its NIC has security.port_isolation=true"):format(
            instance.name, instance.project) or ("bridge link set dev %s isolated on"):format(port),
    })
end

return {
    id = "h.ports",
    title = "the kernel isolates every port of the bridge",
    run = function(t)
        local name = t.contract.network.name
        local ports, why = system.ports(name)
        if not ports and stack.no_bridge(t) then
            return
        elseif not ports then
            return stack.unasked(t, "the bridge's ports", why)
        end
        local instances = incus.instances("*")
        for _, one in ipairs(ports) do
            if one.isolated == "0" then
                not_isolated(t, instances, one.port)
            elseif one.isolated == "" then
                stack.unasked(t, ("port %s"):format(one.port), "the kernel did not say whether it is isolated")
            end
        end
        if #ports == 0 then
            t:skip("no box is plugged in")
        elseif #t.observations == 0 then
            t:pass(("all %d are isolated"):format(#ports))
        end
    end,
}
