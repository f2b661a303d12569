-- A mistyped command, a mistyped flag, and `list BOX`: pointed in the right direction, and nothing is done.
local cli = require "cli"
local mint = require "mint"

local USAGE = 2

local function flag(t)
    local done, why = mint.with("x-typo", nil, function(name)
        local result = cli.run(t, { "snapshot", name, "--labl", "x" })
        if result then
            cli.refused(t, "snapshot --labl x", result, "unknown_option", { option = "--labl" }, USAGE)
            local there = cli.snapshots(t, name)
            t:expect(there and next(there) == nil, "no snapshot was taken", {
                clause = "a mistyped flag is not swallowed as a label",
                seen = there and (next(there) or "none") or "not known",
                by_hand = ("incus snapshot list %s"):format(name),
            })
        end
    end)
    if not done then
        t:error(why)
    end
end

return {
    id = "b.typo",
    title = "what is mistyped is refused, with a hint",
    needs = { "box.cli", "box.mint" },
    run = function(t)
        if not cli.open(t) then
            return
        end
        local result = cli.run(t, { "lst" })
        if result then
            cli.refused(t, "lst", result, "did_you_mean", { verb = "list" }, USAGE)
        end
        flag(t)
        result = cli.run(t, { "list", mint.name("x-typo") })
        if result then
            cli.refused(t, "list BOX", result, "points_at_info")
        end
    end,
}
