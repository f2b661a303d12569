-- The escape hatch: passes through with the instance filled in, and warns when a command can break isolation. Asked
-- of a box of its own: it is changed, and Incus refuses to change one that somebody takes a snapshot of.
local cli = require "cli"

local function ask(t, name)
    local result = cli.run(t, { "incus", name, "--", "config", "show" })
    if result then
        local pattern = cli.pattern("hatch", { name = name })
        local shown = result.text:find("\n?architecture: ") and result.text:find("\nconfig:\n")
        cli.expect(t, result.code == 0 and result.text:find(pattern) and shown, "incus BOX -- config show",
            result, ("exit 0, it says %q, and shows the configuration"):format(pattern))
        cli.expect(t, not result.text:find(cli.pattern "hatch_warning"), "a command that only reads", result,
            "no warning")
    end
    result = cli.run(t, { "incus", name, "--", "config", "device", "add", "{}", "bd-drill", "none" })
    if result then
        local pattern = cli.pattern("hatch_warning", { name = name })
        cli.expect(t, result.code == 0 and result.text:find(pattern), "incus BOX -- config device add {} ...",
            result, ("exit 0, and it warns: %q"):format(pattern))
    end
end

return {
    id = "b.hatch",
    title = "the escape hatch fills in the box, and warns",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        cli.with(t, "x-hatched", nil, function(name)
            ask(t, name)
        end)
    end,
}
