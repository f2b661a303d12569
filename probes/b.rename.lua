-- Renaming a stopped box: done, `list` shows it under its new name, and its snapshots followed.
local cli = require "cli"
local client = require "client"
local mint = require "mint"

local LABEL = "bd-rename"

local function ask(t, old, new)
    local result = cli.run(t, { "rename", old, new })
    if not result then
        return
    end
    local pattern = cli.pattern("renamed", { name = old, new = new })
    cli.expect(t, result.code == 0 and result.text:find(pattern), "rename of a stopped box", result,
        ("exit 0, and it says %q"):format(pattern))
    local listed = cli.run(t, { "list" })
    if listed then
        local header = listed.text:find(cli.pattern "list_header")
        local shown = ("\n" .. listed.text):find("\n" .. cli.literal(new) .. "%s")
        local gone = not listed.text:find(old, 1, true)
        cli.expect(t, listed.code == 0 and header and shown and gone, "list", listed,
            ("a heading, a row for %s and none for %s"):format(new, old))
    end
    local there = cli.absent(t, new) == false and cli.snapshots(t, new)
    if there then
        t:expect(there[LABEL] == true, "its snapshots followed", {
            clause = ("%s has the snapshot %s"):format(new, LABEL),
            seen = there[LABEL] and "it is there" or "it is not",
            by_hand = ("incus snapshot list %s"):format(new),
        })
    end
end

return {
    id = "b.rename",
    title = "a stopped box is renamed, with its snapshots",
    needs = { "box.cli", "box.mint", "client" },
    run = function(t)
        if not cli.open(t) then
            return
        end
        local new = mint.name("x-newname")
        local done, why = mint.with("x-oldname", nil, function(old)
            if client.must(t, "snapshot", old, LABEL) then
                ask(t, old, new)
            end
        end)
        if not done then
            t:error(why)
        end
        cli.delete(t, new)
    end,
}
