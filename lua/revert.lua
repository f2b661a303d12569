--- Removes what a run made and left, newest first: the last thing a run does, whatever ended it. Each step
-- is on a fresh read and verified by one; the broker runs this in a worker of its own.
local incus = require "incus"
local mint = require "mint"
local own = require "own"
local task = require "task"

local SETTLE_MS, EVERY_MS = 120000, 100
-- What goes with its box: a forced stop ends it, so nobody waits for it.
local EXEC = "Executing command"

-- One thing that was made. Returns true when it was seen to be gone, else nil, message.
local function remove(kind, project, name)
    if kind == "instance" then
        return mint.delete(project, name)
    elseif own.KINDS[kind] then
        return own.remove(kind, project, name)
    end
    return nil, ("%s %s: there is no way to remove such a thing"):format(kind, name)
end

-- Whether an operation works on an instance of this run. A client that was killed does not take its
-- operation with it: a copy goes on in incusd and comes to be after it was looked for.
local function is_ours(operation)
    if operation.description == EXEC or type(operation.resources) ~= "table" then
        return false
    end
    for _, urls in pairs(operation.resources) do
        for _, url in ipairs(urls) do
            if url:find("/bd-" .. engine.run_id .. "-", 1, true) then
                return true
            end
        end
    end
    return false
end

-- Whether nothing of this run is under way in incusd any more. What cannot be read is no proof.
local function settled(project)
    local states = incus.operations(project)
    for _, operations in pairs(states or {}) do
        for _, operation in ipairs(operations) do
            if is_ours(operation) and operation.status_code < 200 then
                return false
            end
        end
    end
    return states ~= nil
end

local function main()
    local made = table.pack(engine.call("made.list"))
    local left = {}
    if made.n >= 3 then
        task.poll(SETTLE_MS, EVERY_MS, function()
            return settled(made[2])
        end)
    end
    for i = 1, made.n - 2, 3 do
        local kind, project, name = made[i], made[i + 1], made[i + 2]
        local gone, why = remove(kind, project, name)
        if not gone then
            left[#left + 1] = why
        end
    end
    if #left > 0 then
        error("not removed:\n  " .. table.concat(left, "\n  "), 0)
    end
end

main()
