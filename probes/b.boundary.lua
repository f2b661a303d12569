-- Every command that takes a box, aimed at an instance that the CLI did not mint: all refuse, and the instance is
-- still there, running, unchanged, and nowhere is a copy of it.
local cli = require "cli"
local client = require "client"
local incus = require "incus"
local mint = require "mint"

local LABEL = "bd-boundary"

-- In this order: what would take the instance away comes last.
local function questions(name)
    local renamed, copy = mint.name("x-taken"), mint.name("x-copy")
    return {
        { "info", name },
        { "exec", name, "--", "true" },
        { "incus", name, "--", "config", "show" },
        { "incus", name, "--", "config", "device", "add", "{}", "bd-drill", "none" },
        { "snapshot", name, "taken" },
        { "restore", name, LABEL, "--force" },
        { "new", "--name", copy, "--from", name .. "/" .. LABEL },
        { "start", name },
        { "down", name },
        { "rename", name, renamed },
        { "rm", name, "--force" },
    }, renamed, copy
end

-- What must not change of it: its uuid, state, configuration, devices and snapshots, as one text.
local function portrait(t, name)
    local instance, why = incus.instance(t.contract.project, name)
    local snapshots = instance and cli.snapshots(t, name)
    if not snapshots then
        return nil, why
    end
    local parts = { instance.status, "snapshots:" }
    for label in pairs(snapshots) do
        parts[#parts + 1] = label
    end
    for section, map in pairs { config = instance.config, devices = instance.devices } do
        for key, value in pairs(map) do
            if not key:find("^volatile%.") or key == "volatile.uuid" then
                parts[#parts + 1] = ("%s.%s=%s"):format(section, key, type(value) == "table" and "..." or value)
            end
        end
    end
    table.sort(parts)
    return table.concat(parts, " ")
end

local function ask(t, name)
    local words, renamed, copy = questions(name)
    local started, why = incus.start(t.contract.project, name)
    local before = started and client.must(t, "snapshot", name, LABEL) and portrait(t, name)
    if not before then
        return t:error("no instance to aim at: " .. tostring(why))
    end
    for _, line in ipairs(words) do
        local result = cli.run(t, line)
        if result then
            local short = table.concat(line, " ", 1, line[3] == "--" and 4 or 2)
            cli.refused(t, short .. ", aimed at what is no box", result, "no_such_box", { name = name })
        end
    end
    local after = client.exists(t, name) and portrait(t, name) or "gone"
    t:expect(after == before, "the instance", {
        clause = "still there, running, unchanged",
        seen = after == before and "unchanged" or ("before: %s; after: %s"):format(before, after),
        by_hand = "incus config show " .. name,
    })
    for _, other in ipairs { renamed, copy } do
        cli.expect_absent(t, other, "aimed at what is no box")
    end
    cli.delete(t, renamed, copy)
end

return {
    id = "b.boundary",
    title = "every command refuses an instance that is no box",
    needs = { "box.cli", "box.mint", "client" },
    run = function(t)
        cli.with(t, "x-foreign", { untagged = true }, function(name)
            ask(t, name)
        end)
    end,
}
