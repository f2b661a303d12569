--- The drill: mints two boxes, asks every question of the selected phases, says what it found, and takes
-- the boxes away again.
local cli = require "cli"
local contract = require "contract"
local host = require "host"
local incus = require "incus"
local leftovers = require "leftovers"
local live = require "live"
local mint = require "mint"
local report = require "report"
local session = require "session"
local start = require "start"
local targets = require "targets"
local task = require "task"

local BOXES = 2
local UNSURE, REFUSED = 3, 4
local MAX_HOLD = 600
local HELP = [[
usage: boxdrill drill.lua [options]

Audits this host: mints boxes of its own, measures from inside them, and deletes them.

  --only LIST      only these probes: ids and phase letters, with commas between (boxdrill list shows them)
  --skip LIST      all but these
  --live NETWORK   only the rehearsals, and on that network itself: refused while instances are on it that are
                   not this run's
  --dry-run        say what would be made and every address and port that would get a packet
  --hold SECONDS   wait after the boxes are up, before the first question (600 at most)
  --keep-boxes     leave the boxes standing
]] .. session.OPTIONS_HELP .. [[

Exit status: 0 the contract holds; 1 it does not; 2 usage, consent or privilege missing;
3 nothing failed, but something could not be judged; 4 refused to start; 130 interrupted, and cleaned up.
]]
local KNOWN = {
    only = "value",
    skip = "value",
    live = "value",
    hold = "value",
    ["dry-run"] = "flag",
    ["keep-boxes"] = "flag",
    ["no-witness"] = "flag",
}

-- What phase B does, as lines of text.
local function plan_cli(probes)
    if not session.needs(probes, "box.cli") then
        return {}
    end
    local found, why = cli.find()
    if not found then
        return { "  phase B is skipped: " .. why }
    end
    return {
        ("  boxes bd-%s-x-..., minted, cloned, renamed and removed by the box CLI under drill:"):format(engine.run_id),
        ("    %s"):format(found.path),
        "    and instances of that name that are no boxes, to see that it leaves them alone",
    }
end

-- The probes that are no rehearsals (they share boxes, and some make instances of their own), and those that are.
local function split(probes)
    local others, rehearsals = {}, {}
    for _, probe in ipairs(probes) do
        table.insert(probe.rehearses and rehearsals or others, probe)
    end
    return others, rehearsals
end

-- What the drill will do to the host, as lines of text; nil, message when that cannot be told.
local function plan(data, probes, boxes, rehearsals)
    local addresses, why = host.addresses()
    if not addresses then
        return nil, "the host's addresses: " .. why
    end
    local lines = {
        ("This drill runs %d probes. In project %s it makes, and deletes again:"):format(#probes, data.project),
    }
    for _, suffix in ipairs(session.suffixes(boxes)) do
        lines[#lines + 1] = ("  instance bd-%s-%s (%s, profile %s)"):format(
            engine.run_id, suffix, data.image.alias, data.profile.name)
    end
    if session.needs(split(probes), "client") then
        lines[#lines + 1] = ("  instances bd-%s-x-..., short-lived, for single probes"):format(engine.run_id)
    end
    table.move(plan_cli(probes), 1, 10, #lines + 1, lines)
    local room = mint.room()
    if room.each then
        lines[#lines + 1] = ("  SMALL HOST: %d MiB are free, so each box gets %d MiB of memory, not %d"):format(
            room.free, room.each, room.wanted)
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
    start.refuse("not agreed to: nothing was done (--yes agrees beforehand)")
    return false
end

-- What stands between the minting and the verdicts' summary. Returns the results.
local function measure(probes, found, boxes)
    local results, rest = session.run_early(probes)
    local made, why = session.mint(boxes)
    if not made then
        return session.none_run(rest, "the boxes could not be minted: " .. why, results)
    end
    if found.hold then
        report.say(("holding for %s s"):format(found.hold), "dim")
        task.sleep(math.floor(tonumber(found.hold) * 1000))
    end
    session.run(rest, made, results)
    if found["keep-boxes"] then
        session.keep(made)
    else
        session.delete(made)
    end
    return results
end

-- The CLI that phase B drills, as a line; nil, and the reason, when there is none; nothing without phase B.
local function cli_under_drill(probes)
    if not session.needs(probes, "box.cli") then
        return nil
    end
    local found, why = cli.find()
    if not found then
        return nil, why
    end
    return ("%s (%s)"):format(found.path, cli.version() or "says no version")
end

-- A host without a box CLI is not one whose CLI could not be judged: unless --only says what to run, the
-- status does not wait for a PASS of it (the report says that it was skipped).
local function all_but(phases, letter)
    local out = {}
    for _, phase in ipairs(phases) do
        if phase ~= letter then
            out[#out + 1] = phase
        end
    end
    return out
end

-- Whether the rehearsals may change that network: the contract's, with nobody's instances on it. Says whose there
-- are, and refuses, if not.
local function may_live(data, network)
    if network ~= data.network.name then
        start.refuse(("--live %s: the network under drill is %s (a site's file names another: --site)"):format(
            network, data.network.name))
        return false
    end
    local found, why = incus.network(data.project, network)
    local names
    if found then
        names, why = live.strangers(network)
    end
    if not names then
        start.refuse(("--live %s: %s"):format(network, why))
    elseif #names > 0 then
        start.stop(REFUSED, ("refused: these instances are on network %s and are not this run's; a change of it "
            .. "reaches every one of them:\n  %s"):format(network, table.concat(names, "\n  ")))
    end
    return names ~= nil and #names == 0
end

local function drill(found)
    local data = contract.load()
    if found.live and not may_live(data, found.live) then
        return
    end
    local probes, left_out = session.select(session.probes(session.files(false)), found.only, found.skip)
    if probes and found.live then
        probes = select(2, split(probes))
        left_out = #probes > 0 and left_out or "--live: no rehearsal is selected"
    end
    if not probes or #probes == 0 then
        return start.refuse(left_out)
    end
    local phases = session.phases(probes)
    local boxes = #split(probes) > 0 and math.max(session.boxes_needed(probes), BOXES) or 0
    local lines, why = plan(data, probes, boxes, session.allot(probes, found.live))
    if not lines then
        return start.stop(UNSURE, why)
    end
    if found["dry-run"] then
        return say_plan(lines)
    end
    local room = mint.room()
    if room.each and room.each < room.least then
        return start.stop(REFUSED, ("refused: %d MiB are free, and that is %d for each box: less than %d, the least "
            .. "a box is minted with (memory, in the contract)"):format(room.free, room.each, room.least))
    end
    local server
    server, why = incus.server()
    if not server then
        return start.refuse(why)
    end
    if not consent(lines) then
        return
    end
    engine.call("grant", "box.mint", "box.exec", "box.cli", "rehearse")
    if not leftovers.may_start() then
        return
    end
    if found.live then
        engine.call("live.allow", data.project, found.live)
    end
    session.obey(found)
    local started = engine.clock()
    local drilled, without = cli_under_drill(probes)
    local results = measure(probes, found, boxes)
    if without and not found.only then
        phases = all_but(phases, "B")
    end
    local status = report.status(results, phases)
    session.finish(results, server, {
        status = status,
        phases = phases,
        ms = (engine.clock() - started) * 1000,
        cli = drilled,
        without_cli = without,
        left_out = left_out,
    })
end

-- Whether a --hold is a time that can be waited.
local function is_hold(text)
    local seconds = tonumber(text)
    return seconds ~= nil and seconds >= 0 and seconds <= MAX_HOLD
end

local function main(...)
    local found = start.only_options("drill.lua", KNOWN, HELP, ...)
    if not found then
        return
    elseif found.hold and not is_hold(found.hold) then
        return start.refuse(("--hold wants a number of seconds from 0 to %d"):format(MAX_HOLD))
    end
    engine.call("progress")
    engine.call("grant", "probes")
    drill(found)
end

main(...)
