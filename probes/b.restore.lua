-- Restoring a snapshot: refused without a terminal and without force; with force the box is back at the snapshot.
local box = require "box"
local cli = require "cli"
local task = require "task"

local LABEL, FILE = "bd-restore", "/var/tmp/bd-restore"
local SETTLE_MS, EVERY_MS = 20000, 200

-- What stands in the file; nil, message while the box cannot be asked.
local function read(place)
    local result, why = place:exec { "cat", FILE }
    if not result then
        return nil, why
    elseif result.state ~= "exit" or result.value ~= 0 then
        return nil, result.stderr
    end
    return result.stdout
end

local function write(t, place, text)
    local result, why = place:exec { "sh", "-c", ("echo %s >%s && sync"):format(text, FILE) }
    if not result or result.state ~= "exit" or result.value ~= 0 then
        t:error("the box could not be changed: " .. tostring(result and result.stderr or why))
        return false
    end
    return true
end

local function holds(t, name, wanted, what, clause)
    local said, why
    task.poll(SETTLE_MS, EVERY_MS, function()
        said, why = read(box.new(name))
        return said
    end)
    if not said then
        return t:fail(what, { clause = clause, seen = "the box does not answer: " .. tostring(why) })
    end
    t:expect(said == wanted .. "\n", what, {
        clause = clause,
        seen = ("%s holds %q"):format(FILE, said),
        by_hand = ("incus exec %s -T -n -- cat %s"):format(name, FILE),
    })
end

return {
    id = "b.restore",
    title = "restore asks for force, and then brings the snapshot back",
    needs = { "box.cli", "box.exec", "client" },
    run = function(t)
        local two = cli.two(t)
        local place = two and box.new(two)
        if not place or not write(t, place, "before") or not cli.take_snapshot(t, two, LABEL)
            or not write(t, place, "after") then
            return
        end
        local result = cli.run(t, { "restore", two, LABEL })
        if result then
            cli.refused(t, "restore without force", result, "not_forced")
            holds(t, two, "after", "the box after a refused restore", "nothing is restored")
        end
        result = cli.run(t, { "restore", two, LABEL, "--force" })
        if result then
            cli.expect(t, result.code == 0, "restore --force", result, "exit 0")
            holds(t, two, "before", "the box after the restore", "it is back at the snapshot")
        end
    end,
}
