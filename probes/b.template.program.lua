-- Each template that the site lists with a program brings it: it answers --version through the CLI's exec, on
-- the PATH that a command gets there. Logging in is not checked.
local cli = require "cli"
local mint = require "mint"

local function ask(t, i, entry)
    local name = mint.name("x-program" .. i)
    local minted = cli.run(t, { "new", "--name", name, "--template", entry.template }, t.contract.cli.mint)
    if minted and minted.code ~= 0 then
        cli.expect(t, false, "new --template " .. entry.template, minted, "a listed template can be minted")
    elseif minted then
        local result = cli.run(t, { "exec", name, "--", entry.program, "--version" })
        if result then
            cli.expect(t, result.code == 0 and result.text:find("%d") ~= nil,
                ("%s in a box of %s"):format(entry.program, entry.template), result, "exit 0, and a version")
        end
    end
    cli.delete(t, name)
end

return {
    id = "b.template.program",
    title = "a template's program runs through the CLI's exec",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        if not cli.open(t) then
            return
        elseif #t.contract.cli.programs == 0 then
            return t:skip("the site lists no template with a program (cli.programs)")
        end
        for i, entry in ipairs(t.contract.cli.programs) do
            ask(t, i, entry)
        end
    end,
}
