-- The boundary itself: a virtual machine where the host can run one. Elsewhere a container, and a loud note
-- that the virtual machine's boundary was not validated.
local host = require "host"
local incus = require "incus"

local CLAUSE = "a box is a virtual machine where the host has /dev/kvm"

return {
    id = "c.boundary",
    title = "a box is a virtual machine where the host has KVM",
    boxes = 1,
    run = function(t, box)
        local facts = host.facts()
        local instance, why = incus.instance(box.project, box.name)
        if not instance then
            return t:error(("%s: %s"):format(box.label, why))
        end
        local what = ("%s is a %s"):format(box.label, instance.type)
        if instance.type == "virtual-machine" then
            t:pass(what)
        elseif facts.kvm == "1" then
            t:fail(what .. ", and the host has /dev/kvm", {
                clause = CLAUSE,
                seen = instance.type,
                by_hand = ("incus list --project %s %s --columns nt"):format(box.project, box.name),
            })
        else
            t:note(what .. ": THE VIRTUAL MACHINE BOUNDARY WAS NOT VALIDATED (this host has no /dev/kvm)")
        end
    end,
}
