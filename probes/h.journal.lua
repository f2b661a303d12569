-- What an earlier run left, by its own word; what a run at work has made is not left.
local stack = require "stack"
local system = require "system"

local LOCK, MEND = "/lock$", "boxdrill doctor.lua --fix (or: boxdrill journal revert)"
local WHY = "no drill starts on it, and it is still on the host"

-- The process that holds the host's lock; 0 nobody; -1 not ours to see.
local function holder()
    for _, lock in ipairs(system.locks()) do
        if lock.file:find("boxdrill" .. LOCK) then
            return lock.pid
        end
    end
    return -1
end

local function each_open(texts, f)
    local open = 0
    for i = 3, texts.n - 5, 6 do
        if texts[i] == "open" then
            open = open + 1
            f(texts[i + 1], texts[i + 2], texts[i + 3], texts[i + 4])
        end
    end
    return open
end

local function judge(t, texts)
    local open = each_open(texts, function(run, kind, project, name)
        stack.dirty(t, ("run %s left %s %s (project %s)"):format(run, kind, name, project), {
            why = WHY,
            mend = MEND,
            fix = true,
        })
    end)
    local state = texts[2]:match("%S+")
    if state == "damaged" or state == "version" then
        stack.dirty(t, ("%s cannot be read whole (%s)"):format(texts[1], state), {
            why = WHY,
            mend = ("boxdrill journal; look for what is named bd-..., then: rm %s"):format(texts[1]),
        })
    elseif state == "cut" and open == 0 then
        stack.dirty(t, ("%s was cut off in its last line, by a crash"):format(texts[1]), {
            why = "no drill starts on it",
            mend = MEND,
            fix = true,
        })
    elseif open == 0 then
        t:pass("nothing is left to revert")
    end
end

return {
    id = "h.journal",
    title = "no run is in progress, and none left anything",
    run = function(t)
        local texts = table.pack(engine.call("journal.show"))
        local pid = holder()
        if not texts[1] then
            stack.unasked(t, "the journal", texts[3] == "EACCES" and "only root may read it" or texts[2])
        elseif pid > 0 then
            stack.unasked(t, "what was left",
                ("a run is in progress: process %d (boxdrill doctor.lua --stall shows it)"):format(pid))
        elseif pid < 0 then
            stack.unasked(t, "whether a run is in progress", "only root may look at its lock")
        else
            judge(t, texts)
        end
    end,
}
