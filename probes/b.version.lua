-- `--version` names the version that the installed tree says it is.
local cli = require "cli"

return {
    id = "b.version",
    title = "--version names the version of the installed tree",
    needs = { "box.cli" },
    run = function(t)
        local found = cli.open(t)
        local result = found and cli.run(t, { "--version" })
        if not result then
            return
        end
        local text = found.tree and cli.file "VERSION"
        local version = text and text:match("%S+")
        if not version then
            t:expect(result.code == 0, "--version exits with 0",
                { clause = "exit 0", seen = cli.seen(result), by_hand = result.by_hand })
            return t:note("the tree of the CLI has no file VERSION to compare with", { seen = cli.seen(result) })
        end
        cli.expect(t, result.code == 0 and result.text:find(version, 1, true), "--version", result,
            ("exit 0, and it says %s, as %s/VERSION does"):format(version, found.tree))
    end,
}
