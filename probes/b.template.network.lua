-- A template that names a network is rejected: a template must not choose its own placement. The template is
-- the CLI's own with one line more, and only this run of the CLI sees it.
local cli = require "cli"
local mint = require "mint"

local NAME, KEY = "bd-drill", "BOX_NETWORK"

return {
    id = "b.template.network",
    title = "a template that names a network is rejected",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        local found = cli.open(t)
        if not found then
            return
        elseif not found.tree then
            return t:skip(("where the templates of %s lie is not known"):format(found.path))
        end
        local values, text = cli.template(t.contract.cli.template)
        if not values then
            return t:skip("the CLI's own template cannot be read, to add a line to it: " .. text)
        end
        local name = mint.name("x-network")
        local result = cli.with_template(t, NAME, ("%s\n%s=\"incusbr0\"\n"):format(text, KEY),
            { "new", "--name", name, "--template", NAME })
        if result then
            cli.refused(t, "a template with " .. KEY, result, "unknown_key", { key = KEY })
            cli.expect_absent(t, name, "a template with " .. KEY)
        end
        cli.delete(t, name)
    end,
}
