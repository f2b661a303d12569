-- A clone from `box/snapshot`, of a renamed box: alive, and with an identity of its own: another machine-id, MAC
-- and address than its source, both running.
local box = require "box"
local cli = require "cli"
local mint = require "mint"
local task = require "task"

local LABEL, SETTLE_MS, EVERY_MS = "bd-clone", 20000, 250

-- A step on the way to the question: what fails there makes no answer to it.
local function step(t, words)
    local result = cli.run(t, words)
    if result and result.code ~= 0 then
        t:suspect(("box %s failed, on the way to the clone"):format(words[1]), { seen = cli.seen(result) })
        return false
    end
    return result ~= nil
end

-- Who a box is, once it has an address; without one in time, where it answers at all. nil, message: it does not.
local function identity(name)
    local last, why
    task.poll(SETTLE_MS, EVERY_MS, function()
        local found, message = box.new(name):identity()
        last, why = found or last, message
        return last and last.address
    end, name .. " to get an address")
    return last, why
end

-- Whether a box answers and has an address; SUSPECT when not, as it is only on the way to the question.
local function stands(t, name)
    local found, why = identity(name)
    if not found or not found.address then
        t:suspect(name .. ", on the way to the clone, has no address", { seen = found and "it answers" or why })
        return false
    end
    return true
end

local function distinct(t, what, a, b)
    t:expect(a ~= b, ("the clone's %s"):format(what), {
        clause = "another than its source's",
        seen = ("source %s, clone %s"):format(a, b),
        by_hand = "incus exec NAME -T -n -- sh -c 'cat /etc/machine-id; ip address' in both",
    })
end

local function compare(t, source, clone)
    local a = identity(source)
    local b, why = identity(clone)
    if not b then
        return t:fail("the clone is alive", { clause = "it runs and answers", seen = why })
    elseif not a or not a.address then
        return t:suspect(source .. ", the source, has no address to compare with")
    elseif not b.address then
        return t:fail("the clone's address", { clause = "an address of its own", seen = "none" })
    end
    distinct(t, "machine-id", a.machine_id, b.machine_id)
    distinct(t, "MAC", a.mac, b.mac)
    distinct(t, "address", a.address, b.address)
end

return {
    id = "b.clone",
    title = "a clone of a renamed box is alive, and is not its source",
    needs = { "box.cli", "box.exec", "box.mint", "client" },
    run = function(t)
        local one = cli.one(t)
        if not one or not cli.take_snapshot(t, one, LABEL) then
            return
        end
        if not stands(t, one) then
            return
        end
        local first, source, clone = mint.name("x-first"), mint.name("x-source"), mint.name("x-clone")
        if step(t, { "new", "--name", first, "--from", one .. "/" .. LABEL }) and stands(t, first)
            and cli.take_snapshot(t, first, LABEL)
            and step(t, { "down", first }) and step(t, { "rename", first, source }) then
            local result = cli.run(t, { "new", "--name", clone, "--from", source .. "/" .. LABEL })
            if result then
                local pattern = cli.pattern("cloned", { name = source, label = LABEL })
                local done = cli.expect(t, result.code == 0 and result.text:find(pattern), "new --from", result,
                    ("exit 0, and it says %q"):format(pattern))
                if done and step(t, { "start", source }) then
                    compare(t, source, clone)
                end
            end
        end
        cli.delete(t, clone, source, first)
    end,
}
