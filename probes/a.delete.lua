-- `delete -f MISSING PRESENT`: stops at the missing name. So names are deleted one at a time (RUNS.md, trap 5).
local client = require "client"
local mint = require "mint"

return {
    id = "a.delete",
    title = "delete stops at the first name that is missing",
    needs = { "client", "box.mint" },
    run = function(t)
        local missing = mint.name("x-missing")
        local done, why = mint.with("x-present", nil, function(name)
            local result = client.ask(t, "delete", missing, name)
            local there = result and client.exists(t, name)
            if result and there ~= nil then
                local details = { seen = client.text(result), by_hand = client.by_hand("delete", missing, name) }
                details.clause = "a missing name is an error"
                t:expect(result.code ~= 0, "delete exits with an error", details)
                details.clause = "it stops there: the name after it is not deleted"
                t:expect(there, "the present instance is still there", details)
            end
        end)
        if not done then
            t:error(why)
        end
    end,
}
