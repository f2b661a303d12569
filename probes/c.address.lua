-- Two boxes are two: their addresses, MACs and machine-ids differ. (Where they do not, the sibling probes
-- are SUSPECT: two boxes with one identity talk past each other.)
local isolated = require "isolated"
local task = require "task"

local CLAUSE = "every box has an address, a MAC and a machine-id of its own"
local FACTS = {
    { "address", "IPv4 address", "IPv4 addresses" },
    { "mac", "MAC", "MACs" },
    { "machine_id", "machine-id", "machine-ids" },
}

local function compare(t, mine, theirs)
    for _, fact in ipairs(FACTS) do
        local key, words = fact[1], fact[2]
        local one, two = mine[key], theirs[key]
        if not one or not two or one == "" or two == "" then
            t:suspect(("a box has no %s to compare"):format(words), { clause = CLAUSE })
        else
            t:expect(one ~= two, ("the boxes' %s differ"):format(fact[3]), {
                clause = CLAUSE,
                seen = ("%s and %s"):format(one, two),
            })
        end
    end
    local shared = isolated.shared(mine, theirs)
    t:expect(#shared == 0, "no address is held by both boxes", {
        clause = CLAUSE,
        seen = #shared > 0 and table.concat(shared, ", ") or nil,
    })
end

return {
    id = "c.address",
    title = "two boxes have addresses, MACs and machine-ids of their own",
    needs = { "box.exec" },
    boxes = 2,
    run = function(t, a, b)
        local both = task.map({ a, b }, function(box)
            local me = box:identity()
            return { box = box, me = me, online = me and me.address and isolated.online(t, box, me) }
        end)
        for _, one in ipairs(both) do
            if not one.me then
                return t:error(one.box.label .. " could not be asked who it is")
            elseif not one.online then
                t:suspect(one.box.label .. " does not reach the public internet from an address of its own", {
                    clause = CLAUSE,
                })
            end
        end
        compare(t, both[1].me, both[2].me)
    end,
}
