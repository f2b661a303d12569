-- IPv6: the network has none, and no box has a global address.
local incus = require "incus"

local KEY = "ipv6.address"
local CLAUSE = "the boxes' network has no IPv6"

local function network(t)
    local data = t.contract
    local found, why = incus.network(data.project, data.network.name)
    if not found then
        return t:error(("network %s: %s"):format(data.network.name, why))
    end
    local value = found.config and found.config[KEY] or "not set"
    t:expect(value == "none", ("network %s: %s is %s"):format(data.network.name, KEY, value), {
        clause = CLAUSE,
        seen = value,
        by_hand = ("incus network get --project %s %s %s"):format(data.project, data.network.name, KEY),
    })
end

local function addresses(t, box)
    local info, why = box:info()
    if not info then
        return t:error(box.label .. " could not be asked for its addresses: " .. why)
    end
    local found = {}
    for _, entry in ipairs(info.addresses) do
        if entry.family == 6 and entry.scope == "global" then
            found[#found + 1] = entry.address
        end
    end
    t:expect(#found == 0, box.label .. " has no global IPv6 address", {
        clause = CLAUSE,
        seen = table.concat(found, " "),
        by_hand = box:by_hand_text("ip -6 address show scope global"),
    })
end

return {
    id = "c.ipv6",
    title = "neither the network nor a box has IPv6",
    audit = "A6",
    needs = { "box.exec" },
    boxes = 1,
    run = function(t, box)
        if t.contract.network.config[KEY] ~= "none" then
            return t:skip("the site's contract gives the network IPv6")
        end
        network(t)
        addresses(t, box)
    end,
}
