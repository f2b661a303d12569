-- The moment `new` returns, cloud-init has finished: a mint that hands over earlier hands over half a box.
local box = require "box"
local cli = require "cli"
local cjson = require "cjson"
local task = require "task"

-- Pushing the program fails now and then while Incus snapshots the box for another probe.
local AGAIN_MS, EVERY_MS = 2000, 50
local COMMAND = { "cloud-init", "status", "--format", "json" }

-- cloud-init's word for where it stands; nil, message when it cannot be asked.
local function status_of(place)
    local result, why = place:exec(COMMAND)
    if not result then
        return nil, why
    end
    local ok, said = pcall(cjson.decode, result.stdout)
    if result.state ~= "exit" or not ok or type(said) ~= "table" or type(said.status) ~= "string" then
        return nil, ("cloud-init status: %s %s: %s"):format(result.state, result.value, result.stderr)
    end
    return said.status
end

return {
    id = "b.new.settled",
    title = "when new returns, cloud-init has finished",
    needs = { "box.cli", "box.exec" },
    run = function(t)
        local name = cli.one(t)
        if not name then
            return
        end
        local place = box.new(name)
        local status, why
        task.poll(AGAIN_MS, EVERY_MS, function()
            status, why = status_of(place)
            return status
        end)
        if not status then
            return t:error(why)
        end
        t:expect(status == "done", "cloud-init, the moment new returned", {
            clause = "done (with complaints or without)",
            seen = status,
            by_hand = place:by_hand_text(table.concat(COMMAND, " ")),
        })
    end,
}
