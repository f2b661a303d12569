-- rm --force: a running box is gone, with its snapshots.
local cli = require "cli"
local client = require "client"
local incus = require "incus"

local LABEL = "bd-rm"

local function ask(t, name)
    local started, why = incus.start(t.contract.project, name)
    if not started then
        return t:error(("%s: %s"):format(name, why))
    elseif not client.must(t, "snapshot", name, LABEL) then
        return
    end
    local result = cli.run(t, { "rm", name, "--force" })
    local gone = result and cli.absent(t, name)
    if gone ~= nil and result then
        cli.expect(t, result.code == 0 and gone, "rm --force", result, "exit 0, and the box is gone")
    end
end

return {
    id = "b.rm",
    title = "rm --force removes a running box",
    needs = { "box.cli", "box.mint", "client" },
    run = function(t)
        cli.with(t, "x-removed", nil, function(name)
            ask(t, name)
        end)
    end,
}
