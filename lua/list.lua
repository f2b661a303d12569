--- The probes there are: `boxdrill list`.
local report = require "report"
local session = require "session"
local start = require "start"

local HELP = [[
usage: boxdrill list [options]

Says which probes there are: id, key in the audit, boxes, grants, title.

  --json           one JSON object a line (docs/json.md)
  --site FILE      the site's changes to the contract
]]

local function print_probe(probe)
    local needs = probe.needs and #probe.needs > 0 and table.concat(probe.needs, " ") or "-"
    report.say(("%-12s %-5s %d boxes  %-30s %s"):format(
        probe.id, probe.audit or "-", probe.boxes, needs, probe.broken or probe.title))
end

local function print_json(probe)
    engine.call("print", "plain", report.json {
        type = "probe",
        id = probe.id,
        title = probe.title,
        audit = probe.audit,
        boxes = probe.boxes,
        needs = probe.needs and #probe.needs > 0 and probe.needs or nil,
        broken = probe.broken,
    } .. "\n")
end

local function main(...)
    if not start.only_options("list", {}, HELP, ...) then
        return
    end
    engine.call("grant", "probes")
    for _, probe in ipairs(session.probes()) do
        if report.is_json() then
            print_json(probe)
        else
            print_probe(probe)
        end
    end
end

main(...)
