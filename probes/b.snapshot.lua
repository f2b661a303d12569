-- A snapshot with a label is taken under that label.
local cli = require "cli"

local LABEL = "bd-label"

local function ask(t, name)
    local result = cli.run(t, { "snapshot", name, LABEL })
    if not result then
        return
    end
    cli.expect(t, result.code == 0 and result.text:find(LABEL, 1, true), "snapshot", result,
        "exit 0, and it says the label: " .. LABEL)
    local there = cli.snapshots(t, name)
    if there then
        t:expect(there[LABEL] == true, "the snapshot is there", {
            clause = ("%s has a snapshot %s"):format(name, LABEL),
            seen = there[LABEL] and "it is there" or "it is not",
            by_hand = ("incus snapshot list %s"):format(name),
        })
    end
end

return {
    id = "b.snapshot",
    title = "a snapshot with a label is taken, and listed",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        cli.with(t, "x-snapped", nil, function(name)
            ask(t, name)
        end)
    end,
}
