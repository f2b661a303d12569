-- A clone with resource flags is refused: it carries its source's.
local cli = require "cli"
local mint = require "mint"

local LABEL, USAGE = "bd-resources", 2

local function ask(t, source)
    local name = mint.name("x-wider")
    local result = cli.take_snapshot(t, source, LABEL)
        and cli.run(t, { "new", "--name", name, "--from", source .. "/" .. LABEL, "--cpu", "2" })
    if result then
        cli.refused(t, "new --from ... --cpu 2", result, "clone_resources", nil, USAGE)
        cli.expect_absent(t, name, "a clone with --cpu")
        cli.delete(t, name)
    end
end

return {
    id = "b.clone.resources",
    title = "a clone with resource flags is refused",
    needs = { "box.cli", "box.mint", "client" },
    run = function(t)
        cli.with(t, "x-narrow", nil, function(source)
            ask(t, source)
        end)
    end,
}
