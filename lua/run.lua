--- Probes alone: `boxdrill run ID...` or `boxdrill run ./FILE...`. As many boxes as they need.
local options = require "options"
local report = require "report"
local session = require "session"

local USAGE = 2
local HELP = [[
usage: boxdrill run [options] ID|./FILE...

Runs the named probes (boxdrill list says which there are), or those in files of your own, with
as many boxes of their own as they need.

  --keep-boxes     leave the boxes standing
]] .. session.OPTIONS_HELP
local KNOWN = { help = "flag", ["keep-boxes"] = "flag" }

local function usage(message)
    report.refuse(message)
    engine.call("exit", USAGE)
end

local function phases_of(probes)
    local out, seen = {}, {}
    for _, probe in ipairs(probes) do
        if not seen[probe.phase] then
            seen[probe.phase] = true
            out[#out + 1] = probe.phase
        end
    end
    return out
end

local function measure(probes, keep)
    local boxes, why = session.mint(session.boxes_needed(probes))
    if not boxes then
        return session.none_run(probes, "the boxes could not be minted: " .. why)
    end
    local results = session.run(probes, boxes)
    if keep then
        session.keep(boxes)
    else
        session.delete(boxes)
    end
    return results
end

-- What is to be agreed to; nil where nothing is made.
local function consent(probes)
    local boxes = session.boxes_needed(probes)
    local rehearsals = session.allot(probes)
    if boxes == 0 and #rehearsals == 0 then
        return nil
    end
    local lines = session.rehearsal_lines(rehearsals)
    table.insert(lines, 1, ("Mint %d boxes for %d probes%s"):format(boxes, #probes, #lines > 0 and ", and make" or ""))
    return table.concat(lines, "\n") .. "?"
end

local function run(found, files)
    local probes = session.probes(files)
    for _, probe in ipairs(probes) do
        if probe.missing then
            return usage(("%s (boxdrill list says which probes there are)"):format(probe.broken))
        end
    end
    local question = consent(probes)
    if question and engine.call("confirm", question) ~= "1" then
        return usage("not agreed to: nothing was done (--yes agrees beforehand)")
    end
    engine.call("grant", "box.mint", "box.exec")
    local started = engine.clock()
    local results = measure(probes, found["keep-boxes"])
    local phases = phases_of(probes)
    local status = report.status(results, phases)
    report.summary(results, {
        status = status,
        phases = phases,
        ms = (engine.clock() - started) * 1000,
        audit = false,
    })
    engine.call("exit", status)
end

local function main(...)
    local ok, found, files = pcall(options.parse, KNOWN, ...)
    if not ok then
        return usage(found)
    elseif found.help then
        return report.say(HELP)
    elseif #files == 0 then
        return usage("run wants the ids of probes (boxdrill list says which there are)")
    end
    engine.call("grant", "probes")
    run(found, files)
end

main(...)
