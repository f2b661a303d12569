-- rm without a terminal and without force: refused, exit 2, the box still there.
local cli = require "cli"
local client = require "client"

local USAGE = 2

return {
    id = "b.rm.guard",
    title = "rm without force is refused, and the box is still there",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        cli.with(t, "x-guarded", nil, function(name)
            local result = cli.run(t, { "rm", name })
            if not result then
                return
            end
            cli.refused(t, "rm without force", result, "not_forced", nil, USAGE)
            local there = client.exists(t, name)
            if there ~= nil then
                t:expect(there, "the box is still there", {
                    clause = "what is refused is not done",
                    seen = there and "it is there" or "it is gone",
                    by_hand = "incus list " .. name,
                })
            end
        end)
    end,
}
