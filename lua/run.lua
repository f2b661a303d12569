--- Probes alone: `boxdrill run ID...` or `boxdrill run ./FILE...`. As many boxes as they need.
local incus = require "incus"
local leftovers = require "leftovers"
local report = require "report"
local session = require "session"
local start = require "start"

local HELP = [[
usage: boxdrill run [options] ID|./FILE...

Runs the named probes (boxdrill list says which there are), or those in files of your own, with
as many boxes of their own as they need.

  --keep-boxes     leave the boxes standing
]] .. session.OPTIONS_HELP
local KNOWN = { ["keep-boxes"] = "flag", ["no-witness"] = "flag" }

local function measure(probes, keep)
    local results, rest = session.run_early(probes)
    local boxes, why = session.mint(session.boxes_needed(rest))
    if not boxes then
        return session.none_run(rest, "the boxes could not be minted: " .. why, results)
    end
    session.run(rest, boxes, results)
    if keep then
        session.keep(boxes)
    else
        session.delete(boxes)
    end
    return results
end

-- What is to be agreed to; nil where nothing is made.
local function consent(probes)
    local boxes, drills = session.boxes_needed(probes), session.needs(probes, "box.cli")
    local rehearsals = session.allot(probes)
    if boxes == 0 and not drills and #rehearsals == 0 then
        return nil
    end
    local lines = session.rehearsal_lines(rehearsals)
    table.insert(lines, 1, ("Mint %d boxes%s for %d probes%s"):format(
        boxes, drills and ", and have the box CLI mint its own," or "", #probes, #lines > 0 and ", and make" or ""))
    return table.concat(lines, "\n") .. "?"
end

local function run(found, files)
    local probes = session.probes(files)
    for _, probe in ipairs(probes) do
        if probe.missing then
            return start.refuse(("%s (boxdrill list says which probes there are)"):format(probe.broken))
        end
    end
    local question = consent(probes)
    if question and engine.call("confirm", question) ~= "1" then
        return start.refuse("not agreed to: nothing was done (--yes agrees beforehand)")
    end
    engine.call("grant", "box.mint", "box.exec")
    if question and not leftovers.may_start() then
        return
    end
    session.obey(found)
    local started = engine.clock()
    local results = measure(probes, found["keep-boxes"])
    local phases = session.phases(probes)
    local status = report.status(results, phases)
    session.finish(results, incus.server(), {
        status = status,
        phases = phases,
        ms = (engine.clock() - started) * 1000,
        audit = false,
    })
end

local function main(...)
    local found, files = start.options("run", KNOWN, HELP, ...)
    if not found then
        return
    elseif #files == 0 then
        return start.refuse("run wants the ids of probes (boxdrill list says which there are)")
    end
    engine.call("progress")
    engine.call("grant", "probes")
    run(found, files)
end

main(...)
