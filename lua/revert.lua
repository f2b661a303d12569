--- Removes what a run made and left, newest first: the last thing a run does, whatever ended it. Each step
-- is on a fresh read and verified by one; the broker runs this in a worker of its own.
local mint = require "mint"

-- One thing that was made. Returns true when it was seen to be gone, else nil, message.
local function remove(kind, project, name)
    if kind ~= "instance" then
        return nil, ("%s %s: there is no way to remove such a thing"):format(kind, name)
    end
    return mint.delete(project, name)
end

local function main()
    local made = table.pack(engine.call("made.list"))
    local left = {}
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
