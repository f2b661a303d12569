-- `snapshot list --format csv`: the first field is the label.
local client = require "client"
local mint = require "mint"

local LABEL = "drilled"

return {
    id = "a.snapshot",
    title = "the first field of a snapshot list is the label",
    needs = { "client", "box.mint" },
    run = function(t)
        local done, why = mint.with("x-snapshot", nil, function(name)
            local result = client.must(t, "snapshot", name, LABEL) and client.must(t, "snapshot-list", name)
            if result then
                t:expect(result.stdout:match("^([^,\n]*),[^\n]*\n$") == LABEL, "snapshot list --format csv", {
                    clause = ("one line, its first field %s"):format(LABEL),
                    seen = client.text(result),
                    by_hand = client.by_hand("snapshot-list", name),
                })
            end
        end)
        if not done then
            t:error(why)
        end
    end,
}
