-- Reading a key that was never set: empty, exit 0. So a fallback on failure never fires.
local client = require "client"

local KEY = "user.boxdrill.never-set"

return {
    id = "a.unset",
    title = "a key that was never set reads as empty, exit 0",
    audit = "B4",
    needs = { "client" },
    boxes = 1,
    run = function(t, box)
        local result = client.ask(t, "get", box.name, KEY)
        if result then
            t:expect(result.code == 0 and result.stdout:find("^\n?$") ~= nil, "config get of a key never set", {
                clause = "empty, exit 0",
                seen = client.text(result),
                by_hand = client.by_hand("get", box.name, KEY),
            })
        end
    end,
}
