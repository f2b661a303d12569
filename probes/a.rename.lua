-- Renaming a running instance: refused, and nothing renamed.
local client = require "client"
local mint = require "mint"

local function ask(t, box, new)
    local result = client.ask(t, "rename", box.name, new)
    if not result then
        return
    end
    local details = { seen = client.text(result), by_hand = client.by_hand("rename", box.name, new) }
    details.clause = "renaming a running instance is refused"
    t:expect(result.code ~= 0, "rename exits with an error", details)
    local old_there, new_there = client.exists(t, box.name), client.exists(t, new)
    if old_there ~= nil and new_there ~= nil then
        details.clause = "nothing is renamed"
        t:expect(old_there and not new_there, ("%s keeps its name"):format(box.name), details)
    end
end

return {
    id = "a.rename",
    title = "renaming a running instance is refused",
    needs = { "client", "box.mint" },
    boxes = 1,
    run = function(t, box)
        if not client.running(t, box) then
            return
        end
        local new = mint.name("x-renamed")
        ask(t, box, new)
        -- Nothing is there now, or what should not have come to be: gone either way.
        local gone, why = mint.delete(box.project, new)
        if not gone then
            t:error(why)
        end
    end,
}
