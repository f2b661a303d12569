-- `templates` lists them; one that does not exist is refused by name.
local cli = require "cli"
local mint = require "mint"

local UNKNOWN = "bd-no-such-template"

return {
    id = "b.templates",
    title = "templates are listed, an unknown one is refused by name",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        if not cli.open(t) then
            return
        end
        local result = cli.run(t, { "templates" })
        if result then
            local named = result.text:find(t.contract.cli.template, 1, true)
            cli.expect(t, result.code == 0 and result.text:find(cli.pattern "templates") and named, "templates",
                result, ("exit 0, a heading, and %s among them"):format(t.contract.cli.template))
        end
        local name = mint.name("x-unknown")
        result = cli.run(t, { "new", "--name", name, "--template", UNKNOWN })
        if result then
            cli.refused(t, "a template that does not exist", result, "no_template", { template = UNKNOWN })
            cli.expect_absent(t, name, "an unknown template")
        end
        cli.delete(t, name)
    end,
}
