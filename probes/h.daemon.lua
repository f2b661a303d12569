-- A stopped incusd keeps its socket open and answers nobody; one that is gone leaves the socket, or not.
local incus = require "incus"
local stack = require "stack"
local system = require "system"

local WHY = "no box can be made, entered, stopped or seen"
local START = "systemctl start incus.socket incus.service"
local RESTART = "systemctl restart incus.service (boxes keep running)"

-- The daemon's process, where it is stopped.
local function stopped()
    for _, process in ipairs(system.processes() or {}) do
        if process.name == "incusd" and process.namespace ~= "other" and process.state:find("[Tt]") then
            return process.pid
        end
    end
    return nil
end

local function silent(t)
    local pid = stopped()
    if pid then
        return stack.dirty(t, ("incusd (process %s) is stopped: it answers nobody"):format(pid), {
            why = WHY,
            mend = ("kill -CONT %s"):format(pid),
        })
    end
    stack.dirty(t, "incusd did not answer within 10 s", {
        why = WHY,
        mend = "journalctl -u incus -n 50 (it may still be starting); then " .. RESTART,
    })
end

local function missing(t, socket)
    if system.programs().incusd == "" then
        return stack.fresh(t, "Incus is not installed (apt-get install incus)")
    end
    stack.dirty(t, ("incusd is not running: there is no %s"):format(socket.path), { why = WHY, mend = START })
end

return {
    id = "h.daemon",
    title = "incusd answers within 10 s",
    run = function(t)
        local server, why, code = incus.server()
        local socket = system.socket()
        if server then
            t:pass(("Incus %s answers"):format(tostring((server.environment or {}).server_version)))
            if system.programs().incus == "" then
                stack.dirty(t, "the incus client is not installed", {
                    why = "a box CLI calls it for everything",
                    mend = "apt-get install incus-client",
                })
            end
        elseif socket.trouble == "EACCES" then
            stack.unasked(t, "incusd", ("%s belongs to group %s: be root, or a member of it"):format(
                socket.path, socket.group))
        elseif code == "ETIMEDOUT" then
            silent(t)
        elseif code == "ENOENT" then
            missing(t, socket)
        elseif code == "ECONNREFUSED" then
            stack.dirty(t, ("nobody listens on %s"):format(socket.path), {
                why = WHY,
                mend = "systemctl restart incus.socket incus.service (boxes keep running)",
            })
        else
            stack.dirty(t, ("incusd does not answer: %s"):format(why), { why = WHY, mend = RESTART })
        end
    end,
}
