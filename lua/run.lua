--- Probes alone: `boxdrill run ID...` or `boxdrill ./my_probe.lua`. As many boxes as they need.
local options = require "options"
local report = require "report"
local session = require "session"

local USAGE = 2
local HELP = [[
usage: boxdrill run [options] ID...
       boxdrill ./my_probe.lua [options]

Runs the named probes (boxdrill list says which there are) with as many boxes of their own as
they need.

  --keep-boxes     leave the boxes standing
]] .. session.OPTIONS_HELP
local KNOWN = { help = "flag", ["keep-boxes"] = "flag" }

local function usage(message)
    report.say(message, "red")
    engine.call("exit", USAGE)
end

-- The probes of these ids; nil, message when there is none of one of them.
local function chosen(probes, ids)
    local out = {}
    for _, id in ipairs(ids) do
        local found = nil
        for _, probe in ipairs(probes) do
            if probe.id == id then
                found = probe
            end
        end
        if not found then
            return nil, ("no probe '%s' (see: boxdrill list)"):format(id)
        end
        out[#out + 1] = found
    end
    return out
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

local function run(found, ids)
    local probes, why = session.probes()
    if #ids > 0 then
        probes, why = chosen(probes, ids)
    end
    if not probes then
        return usage(why)
    end
    local boxes = session.boxes_needed(probes)
    if boxes > 0 and engine.call("confirm", ("Mint %d boxes for %d probes?"):format(boxes, #probes)) ~= "1" then
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
    local ok, found, ids = pcall(options.parse, KNOWN, ...)
    if not ok then
        return usage(found)
    elseif found.help then
        return report.say(HELP)
    end
    engine.call("grant", "probes")
    run(found, ids)
end

main(...)
