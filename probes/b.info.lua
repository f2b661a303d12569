-- `info`: state, type and address of a box; its snapshots, and the line that clones one.
local cli = require "cli"
local incus = require "incus"
local inet = require "inet"
local task = require "task"

local LABEL, SETTLE_MS, EVERY_MS = "bd-info", 20000, 200

local function address_of(t, name)
    local state = incus.state(t.contract.project, name)
    for _, link in pairs(state and type(state.network) == "table" and state.network or {}) do
        for _, entry in ipairs(link.addresses or {}) do
            if entry.family == "inet" and inet.within(entry.address, t.contract.subnet) then
                return entry.address
            end
        end
    end
    return nil
end

local function row(t, result, key, value)
    cli.expect(t, result.text:find(cli.pattern("info_row", { key = key, value = value })), "info: " .. key, result,
        ("a row %s %s"):format(key, value))
end

return {
    id = "b.info",
    title = "info shows state, type, address, and how to clone a snapshot",
    needs = { "box.cli", "client" },
    run = function(t)
        local name = cli.one(t)
        if not name or not cli.take_snapshot(t, name, LABEL) then
            return
        end
        local address = task.poll(SETTLE_MS, EVERY_MS, function()
            return address_of(t, name)
        end)
        local instance = incus.instance(t.contract.project, name)
        local result = cli.run(t, { "info", name })
        if not result or not instance then
            return
        end
        row(t, result, "NAME", name)
        row(t, result, "STATE", "RUNNING")
        row(t, result, "TYPE", instance.type == "container" and "CT" or "VM")
        if address then
            row(t, result, "IPV4", address)
        else
            t:suspect("the box has no address to be shown")
        end
        cli.expect(t, result.code == 0 and result.text:find(LABEL, 1, true), "info: the snapshot", result,
            "the snapshot is listed: " .. LABEL)
        cli.expect(t, result.text:find(cli.pattern("info_clone", { name = name })), "info: how to clone", result,
            ("it says %q"):format(cli.pattern("info_clone", { name = name })))
    end,
}
