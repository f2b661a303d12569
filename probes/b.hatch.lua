-- The escape hatch: passes through with the instance filled in, and warns when a command can break isolation.
local cli = require "cli"

return {
    id = "b.hatch",
    title = "the escape hatch fills in the box, and warns",
    needs = { "box.cli" },
    run = function(t)
        local one = cli.one(t)
        if not one then
            return
        end
        local result = cli.run(t, { "incus", one, "--", "config", "show" })
        if result then
            local pattern = cli.pattern("hatch", { name = one })
            local shown = result.text:find("\n?architecture: ") and result.text:find("\nconfig:\n")
            cli.expect(t, result.code == 0 and result.text:find(pattern) and shown, "incus BOX -- config show",
                result, ("exit 0, it says %q, and shows the configuration"):format(pattern))
            cli.expect(t, not result.text:find(cli.pattern "hatch_warning"), "a command that only reads", result,
                "no warning")
        end
        result = cli.run(t, { "incus", one, "--", "config", "device", "add", "{}", "bd-drill", "none" })
        if result then
            local pattern = cli.pattern("hatch_warning", { name = one })
            cli.expect(t, result.code == 0 and result.text:find(pattern), "incus BOX -- config device add {} ...",
                result, ("exit 0, and it warns: %q"):format(pattern))
        end
    end,
}
