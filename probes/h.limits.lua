-- Past about fifteen systemd guests the stock limit of 128 is used up: networkd fails in the newest boxes, which
-- never get an address, and Incus shows nothing of it. One user's instances count across all its boxes, so the
-- kernel is asked how many more there can be.
local report = require "report"
local stack = require "stack"
local system = require "system"

local ENOUGH = 24 -- a box takes about eight

return {
    id = "h.limits",
    title = "inotify instances are not near their end",
    run = function(t)
        if report.options().root ~= "1" then
            return stack.unasked(t, "what root has left of inotify instances", "only root can ask")
        end
        local limit, left, code = system.inotify()
        if not limit or not left then
            return stack.unasked(t, "inotify instances", left or code)
        elseif left < ENOUGH then
            return stack.dirty(t, ("%d inotify instances are left (fs.inotify.max_user_instances is %d)"):format(
                left, limit), {
                why = "the next boxes get no address, and nothing says why",
                mend = "sysctl -w fs.inotify.max_user_instances=1024, and keep it in /etc/sysctl.d",
            })
        end
        t:pass(("at least %d are left"):format(left))
    end,
}
