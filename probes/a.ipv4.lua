-- The IPv4 column of a box with two addresses: recorded raw. It is quoted and spans lines, so a reader that
-- splits at commas or at line breaks misreads it.
local client = require "client"
local incus = require "incus"
local task = require "task"

-- A documentation address (RFC 5737), on the box's own link for as long as the question takes.
local SECOND = "198.51.100.7"
local SETTLE_MS, EVERY_MS = 5000, 200

local function change(t, box, verb, link)
    local result, why = box:exec { "ip", "address", verb, SECOND .. "/32", "dev", link }
    if not result or result.state ~= "exit" or result.value ~= 0 then
        t:error(("%s: ip address %s: %s"):format(box.label, verb, result and result.stderr or why))
        return false
    end
    return true
end

-- Whether Incus itself sees the second address.
local function seen_by_incus(box)
    local state = incus.state(box.project, box.name)
    for _, link in pairs(state and state.network or {}) do
        for _, entry in ipairs(link.addresses or {}) do
            if entry.address == SECOND then
                return true
            end
        end
    end
    return false
end

local function ask(t, box, first)
    if not task.poll(SETTLE_MS, EVERY_MS, function()
        return seen_by_incus(box)
    end) then
        return t:suspect("Incus does not see the second address of " .. box.label)
    end
    local result = client.must(t, "list-columns", box.name, "4")
    if not result then
        return
    end
    local details = { seen = client.text(result), by_hand = client.by_hand("list-columns", box.name, "4") }
    details.clause = "both addresses are in the column"
    local both = result.stdout:find(first, 1, true) and result.stdout:find(SECOND, 1, true)
    t:expect(both ~= nil, "list --columns 4 of a box with two addresses", details)
    local spans = result.stdout:find('^".*\n.*"\n$') ~= nil
    t:note(spans and "the column is quoted and spans lines" or "the column is not quoted over lines any more", details)
end

return {
    id = "a.ipv4",
    title = "the IPv4 column of a box with two addresses, as it is",
    needs = { "client", "box.exec" },
    boxes = 2,
    run = function(t, _, box)
        local me, why = box:identity()
        if not me then
            return t:error(box.label .. " could not be asked who it is: " .. why)
        elseif not me.address then
            return t:suspect(box.label .. " has no address: there cannot be two")
        elseif change(t, box, "add", me.link) then
            ask(t, box, me.address)
            change(t, box, "del", me.link)
        end
    end,
}
