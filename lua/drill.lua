--- The drill: mints two boxes, asks every question of the selected phases, says what it found, and takes
-- the boxes away again.
local contract = require "contract"
local host = require "host"
local incus = require "incus"
local options = require "options"
local report = require "report"
local session = require "session"
local targets = require "targets"
local task = require "task"

local BOXES = 2
local USAGE, REFUSED = 2, 4
local HELP = [[
usage: boxdrill drill.lua [options]

Audits this host: mints boxes of its own, measures from inside them, and deletes them.

  --phase A,C,D    the phases to run (default: all there are)
  --live NETWORK   rehearse on that network: refused while instances are on it that are not this run's
  --dry-run        say what would be made and every address and port that would get a packet
  --hold SECONDS   wait after the boxes are up, before the first question
  --keep-boxes     leave the boxes standing
]] .. session.OPTIONS_HELP .. [[

Exit status: 0 the contract holds; 1 it does not; 2 usage, consent or privilege missing;
3 nothing failed, but something could not be judged; 4 refused to start; 130 interrupted, and cleaned up.
]]
local KNOWN = {
    phase = "value",
    live = "value",
    hold = "value",
    help = "flag",
    ["dry-run"] = "flag",
    ["keep-boxes"] = "flag",
}

local function usage(message)
    report.refuse(message)
    engine.call("exit", USAGE)
end

-- The letters of --phase, or those of all probes there are; nil, message when one has no probes.
local function selected_phases(text, probes)
    local phases, there = {}, {}
    for _, probe in ipairs(probes) do
        if probe.phase ~= "?" and not there[probe.phase] then
            there[probe.phase] = true
            phases[#phases + 1] = probe.phase
        end
    end
    if text then
        phases = options.words(text:upper())
        for _, phase in ipairs(phases) do
            if not there[phase] then
                return nil, ("--phase %s: there are no probes of that phase"):format(phase)
            end
        end
    end
    table.sort(phases)
    return phases
end

-- The probes that are no rehearsals: they share boxes, and some make instances of their own.
local function others(probes)
    local out = {}
    for _, probe in ipairs(probes) do
        if not probe.rehearses then
            out[#out + 1] = probe
        end
    end
    return out
end

-- What the drill will do to the host, as lines of text.
local function plan(data, probes, boxes, rehearsals)
    local addresses, why = host.addresses()
    if not addresses then
        error("the host's addresses: " .. why, 0)
    end
    local lines = {
        ("This drill runs %d probes. In project %s it makes, and deletes again:"):format(#probes, data.project),
    }
    for _, suffix in ipairs(session.suffixes(boxes)) do
        lines[#lines + 1] = ("  instance bd-%s-%s (%s, profile %s)"):format(
            engine.run_id, suffix, data.image.alias, data.profile.name)
    end
    if session.needs(others(probes), "box.mint") then
        lines[#lines + 1] = ("  instances bd-%s-x-..., never started, for single probes"):format(engine.run_id)
    end
    local own = session.rehearsal_lines(rehearsals)
    table.move(own, 1, #own, #lines + 1, lines)
    lines[#lines + 1] = "Nothing else on the host is changed. These get packets:"
    table.move(targets.lines(data, addresses, rehearsals), 1, 1000, #lines + 1, lines)
    return lines
end

-- Says the plan; in JSON as an object of type "plan".
local function say_plan(lines)
    if report.is_json() then
        engine.call("print", "plain", report.json { type = "plan", lines = lines } .. "\n")
    else
        report.say(table.concat(lines, "\n"))
    end
end

-- Whether the operator agrees. What a JSON report is read by is a program: the question itself says it all.
local function consent(lines)
    local question = "Go on?"
    if report.is_json() then
        question = table.concat(lines, "\n") .. "\n" .. question
    else
        say_plan(lines)
    end
    if engine.call("confirm", question) == "1" then
        return true
    end
    usage("not agreed to: nothing was done (--yes agrees beforehand)")
    return false
end

-- What stands between the minting and the verdicts' summary. Returns the results.
local function measure(probes, found, boxes)
    local made, why = session.mint(boxes)
    if not made then
        return session.none_run(probes, "the boxes could not be minted: " .. why)
    end
    if found.hold then
        report.say(("holding for %s s"):format(found.hold), "dim")
        task.sleep(math.tointeger(tonumber(found.hold) * 1000 // 1))
    end
    local results = session.run(probes, made)
    if found["keep-boxes"] then
        session.keep(made)
    else
        session.delete(made)
    end
    return results
end

-- A rehearsal on a network that instances of others hang on would change what they stand on. Says whose do,
-- and refuses.
local function refuse_live(data, network)
    local found, why = incus.network(data.project, network)
    local names
    if found then
        names, why = incus.attached(network)
    end
    if not names then
        usage(("--live %s: %s"):format(network, why))
    elseif #names > 0 then
        report.refuse(("refused: these instances are on network %s and are not this run's; a change of it reaches "
            .. "every one of them:\n  %s"):format(network, table.concat(names, "\n  ")))
        engine.call("exit", REFUSED)
    else
        usage(("--live %s: nothing hangs on it; only networks of the run's own are changed so far, which are built "
            .. "like the contract's: leave --live out"):format(network))
    end
end

local function drill(found)
    local data = contract.load()
    if found.live then
        return refuse_live(data, found.live)
    end
    local all = session.probes()
    local phases, message = selected_phases(found.phase, all)
    if not phases then
        return usage(message)
    end
    local probes = session.in_phases(all, phases)
    local boxes = #others(probes) > 0 and math.max(session.boxes_needed(probes), BOXES) or 0
    local lines = plan(data, probes, boxes, session.allot(probes))
    if found["dry-run"] then
        return say_plan(lines)
    end
    local server, why = incus.server()
    if not server then
        return usage(why)
    end
    if not consent(lines) then
        return
    end
    engine.call("grant", "box.mint", "box.exec")
    local started = engine.clock()
    local results = measure(probes, found, boxes)
    local status = report.status(results, phases)
    report.summary(results, { status = status, phases = phases, ms = (engine.clock() - started) * 1000 })
    engine.call("exit", status)
end

local function main(...)
    local ok, found, rest = pcall(options.parse, KNOWN, ...)
    if not ok then
        return usage(found)
    elseif found.help then
        return report.say(HELP)
    elseif rest[1] then
        return usage(("drill.lua takes no '%s' (see --help)"):format(rest[1]))
    elseif found.hold and not tonumber(found.hold) then
        return usage("--hold wants a number of seconds")
    end
    engine.call("grant", "probes")
    drill(found)
end

main(...)
