-- Renaming a running box: refused, and it says how to get there.
local cli = require "cli"
local client = require "client"
local mint = require "mint"

return {
    id = "b.rename.running",
    title = "renaming a running box is refused, with the way to do it",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        local one = cli.one(t)
        if not one then
            return
        end
        local new = mint.name("x-moved")
        local result = cli.run(t, { "rename", one, new })
        if result then
            cli.refused(t, "rename of a running box", result, "running", { name = one })
            cli.expect_absent(t, new, "rename of a running box")
            t:expect(client.exists(t, one) == true, "it keeps its name", {
                clause = "nothing is renamed", seen = "asked of Incus", by_hand = "incus list " .. one,
            })
        end
        cli.delete(t, new)
    end,
}
