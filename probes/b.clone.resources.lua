-- A clone with resource flags is refused: it carries its source's.
local cli = require "cli"
local client = require "client"
local mint = require "mint"

local LABEL, USAGE = "bd-resources", 2

return {
    id = "b.clone.resources",
    title = "a clone with resource flags is refused",
    needs = { "box.cli", "box.mint", "client" },
    run = function(t)
        local one = cli.one(t)
        if not one or not client.must(t, "snapshot", one, LABEL) then
            return
        end
        local name = mint.name("x-wider")
        local result = cli.run(t, { "new", "--name", name, "--from", one .. "/" .. LABEL, "--cpu", "2" })
        if result then
            cli.refused(t, "new --from ... --cpu 2", result, "clone_resources", nil, USAGE)
            cli.expect_absent(t, name, "a clone with --cpu")
        end
        cli.delete(t, name)
    end,
}
