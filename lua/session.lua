--- A run of probes: their files loaded, their boxes minted, the probes run phase by phase, their verdicts
-- reported as they come. What drill.lua and run.lua have in common.
local cjson = require "cjson"
local cli = require "cli"
local contract = require "contract"
local incus = require "incus"
local mint = require "mint"
local options = require "options"
local own = require "own"
local probe_file = require "probe"
local report = require "report"
local runlog = require "runlog"
local subnets = require "subnets"
local task = require "task"

local session = {}

local UNLOGGED = 3 -- the exit status where all went well but the log
local SUFFIXES = { "a", "b", "c", "d", "e", "f", "g", "h" }

local function has(list, word)
    for _, entry in ipairs(list) do
        if entry == word then
            return true
        end
    end
    return false
end

--- Whether one of some probes asks for a grant.
function session.needs(probes, grant)
    for _, probe in ipairs(probes) do
        if has(probe.needs or {}, grant) then
            return true
        end
    end
    return false
end

--- The options that every script prints in its --help.
session.OPTIONS_HELP = [[
  --no-witness     do not watch this host's links: the boxes' word alone counts
  --yes            ask nothing
  --json           one JSON object a line (docs/json.md)
  --box PATH       the box CLI to drill, instead of `box` on PATH
  --site FILE      the site's changes to the contract
  --log FILE       append what was found to a run log (Markdown), all or nothing
]]

--- Does what a script's options say of all its probes. @param found as of start.options
function session.obey(found)
    if found["no-witness"] then
        engine.call("witness.off")
    end
end

-- A probe that can not be run. @param missing whether the file could not even be read
local function broken(file, why, missing)
    return {
        file = file,
        id = file,
        title = "could not be loaded",
        phase = "?",
        boxes = 0,
        needs = {},
        broken = why,
        missing = missing,
    }
end

-- One probe as its own worker declares it. `id` is what the broker keeps its verdict under.
local function load_one(file)
    local metadata, id, code = engine.call("probe.load", file)
    if not metadata then
        return broken(file, id, code ~= "ENOEXEC")
    end
    local ok, meta = pcall(probe_file.declared, metadata, file)
    if not ok then
        return broken(file, tostring(meta), false)
    elseif id and id ~= meta.id then
        return broken(file, ("%s: it declares itself as %s, and its metadata says %s"):format(file, id, meta.id), false)
    end
    local needs = meta.needs or {}
    return {
        file = file,
        id = meta.id,
        title = meta.title,
        audit = meta.audit,
        phase = meta.id:sub(1, 1):upper(),
        boxes = meta.boxes or 0,
        early = meta.early == true,
        needs = needs,
        rehearses = has(needs, "rehearse"),
    }
end

--- Whether a probe's id, or its file's name, is one of the doctor's checks: they look at the host and need no
-- run, and no drill asks them.
function session.is_check(id)
    return id:find("^h%.") ~= nil
end

--- The names of the installed probes: those of the drill, or the doctor's checks.
-- @param checks boolean
function session.files(checks)
    local files, out = table.pack(engine.call("probe.files")), {}
    if not files[1] and files.n > 1 then
        error("no probes: " .. tostring(files[2]), 0)
    end
    for _, file in ipairs(files) do
        if session.is_check(file) == checks then
            out[#out + 1] = file
        end
    end
    return out
end

--- Loads probes, each in a worker of its own.
-- @param files names of installed probes, or of the operator's own files; all installed ones if left out
-- @return array, by id, of probes { file, id, title, audit, phase, boxes, needs }; one that cannot be
--   loaded has `broken`, the reason, and the file's name as its id; `missing` where there is no such file
function session.probes(files)
    if not files then
        files = session.files(false)
        local checks = session.files(true)
        table.move(checks, 1, #checks, #files + 1, files)
    end
    local out = task.map(files, load_one)
    table.sort(out, function(a, b)
        return a.id < b.id
    end)
    return out
end

-- Which of some words name a probe: its id, or its phase's letter. @return set of words found
local function named(probe, words)
    local found = {}
    for _, word in ipairs(words) do
        if word == probe.id or word:upper() == probe.phase then
            found[word] = true
        end
    end
    return found
end

-- A word that names no probe at all, or nil.
local function stray(probes, words)
    for _, word in ipairs(words) do
        local known = false
        for _, probe in ipairs(probes) do
            known = known or named(probe, { word })[word]
        end
        if not known then
            return word
        end
    end
    return nil
end

--- The probes that are wanted. Those that could not be loaded always are: nobody knows what they ask.
-- @param probes as of session.probes
-- @param only comma list of ids and phase letters; all if nil
-- @param skip the same, of those that are left out
-- @return array, and the ids of the others; or nil, message
function session.select(probes, only, skip)
    local chosen, others = {}, {}
    for option, list in pairs { only = only, skip = skip } do
        local word = stray(probes, options.words(list))
        if word then
            return nil, ("--%s %s: there is no such probe or phase ('boxdrill list' shows them)"):format(option, word)
        end
    end
    for _, probe in ipairs(probes) do
        local wanted = not only or next(named(probe, options.words(only)))
        local unwanted = skip and next(named(probe, options.words(skip)))
        if probe.phase == "?" or wanted and not unwanted then
            chosen[#chosen + 1] = probe
        else
            others[#others + 1] = probe.id
        end
    end
    if #chosen == 0 then
        return nil, "--only and --skip leave no probe"
    end
    return chosen, others
end

--- The phases of some probes. @return array of letters, sorted
function session.phases(probes)
    local out, seen = {}, { ["?"] = true }
    for _, probe in ipairs(probes) do
        if not seen[probe.phase] then
            seen[probe.phase] = true
            out[#out + 1] = probe.phase
        end
    end
    table.sort(out)
    return out
end

--- Gives each rehearsal a free subnet of its own (`allotted`), or the reason why it has none (`broken`).
-- @param probes as of session.probes
-- @param live a network of the host's to rehearse on instead (`live`); may be left out
-- @return those that rehearse, in their order
function session.allot(probes, live)
    local out, names = {}, {}
    for _, probe in ipairs(probes) do
        if probe.rehearses then
            out[#out + 1], probe.live = probe, live
        end
    end
    if live then
        return out
    end
    local free, why = subnets.free(contract.load(), #out)
    for i, probe in ipairs(out) do
        local part = own.part(probe.id)
        if names[part] then
            probe.broken = ("its network would bear the name of %s's: another id"):format(names[part])
        end
        names[part] = names[part] or probe.id
        probe.allotted = free and free[i]
        probe.broken = probe.broken or why
    end
    return out
end

--- What rehearsals make, as lines of text. @param probes as of session.allot
function session.rehearsal_lines(probes)
    local lines = {}
    for _, probe in ipairs(probes) do
        local name = own.name(own.part(probe.id))
        local where = ("network %s (%s), ACL and profile of that name,"):format(
            name, probe.allotted or "no free subnet: not run")
        if probe.live then
            where = ("on network %s, which is changed and put back,"):format(probe.live)
        end
        lines[#lines + 1] = ("  %s instances %s-a, -b, for %s"):format(where, name, probe.id)
    end
    return lines
end

--- How many boxes the hungriest of these probes needs.
function session.boxes_needed(probes)
    local most = 0
    for _, probe in ipairs(probes) do
        most = math.max(most, probe.boxes)
    end
    return most
end

--- The names of the first n boxes of this run, without the run's prefix.
function session.suffixes(n)
    return { table.unpack(SUFFIXES, 1, n) }
end

-- An error's report, as a worker or the broker gives it: the message, a traceback, the last primitive.
local function failure(text)
    return {
        verdict = "ERROR",
        what = text:match("^(.-)\nstack traceback:") or text:match("^(.-)\nlast primitive:") or text,
        last_primitive = text:match("last primitive: ([^\n]+)"),
        traceback = text:match("\n(stack traceback:.-)\nlast primitive:"),
    }
end

-- The result of a probe that could not be run at all.
local function not_run(probe, why)
    return {
        id = probe.id,
        title = probe.title,
        audit = probe.audit,
        phase = probe.phase,
        verdict = "ERROR",
        evidence = { observations = { failure(why) } },
    }
end

-- What of a record is plain data under a name; nil when one of `fields` is no text in it.
local function plain(record, fields)
    if type(record) ~= "table" then
        return nil
    end
    for _, field in ipairs(fields) do
        if type(record[field]) ~= "string" then
            return nil
        end
    end
    local out = {}
    for key, value in pairs(record) do
        local kind = type(value)
        if type(key) == "string" and (kind == "string" or kind == "boolean" or kind == "number") then
            out[key] = value
        end
    end
    return out
end

-- The records of a list that have these fields.
local function records(list, fields)
    local out = {}
    for _, record in ipairs(type(list) == "table" and list or {}) do
        out[#out + 1] = plain(record, fields)
    end
    return out
end

--- The evidence that a probe's own worker wrote: its observations and controls, what is none left out; the
-- broker's word (`message`) where that worker did not end well.
-- @param text JSON, of anybody's making
-- @return { observations, controls }
function session.evidence(text)
    local ok, evidence = pcall(cjson.decode, text or "")
    if not ok or type(evidence) ~= "table" then
        return {}
    elseif evidence.message then
        return { observations = { failure(tostring(evidence.message)) } }
    end
    local observations = records(evidence.observations, { "verdict", "what" })
    local controls = records(evidence.controls, { "what" })
    return {
        observations = #observations > 0 and observations or nil,
        controls = #controls > 0 and controls or nil,
    }
end

--- Runs one probe with its boxes, waits for its verdict.
-- @param probe as of session.probes @param boxes as of mint.boxes
-- @return a result, as report.verdict takes it
function session.run_one(probe, boxes)
    if probe.broken then
        return not_run(probe, probe.broken)
    elseif probe.boxes > #boxes then
        return not_run(probe, ("it needs %d boxes, there are %d"):format(probe.boxes, #boxes))
    end
    local names = {}
    for i = 1, probe.boxes do
        names[i] = boxes[i].name
    end
    names[#names + 1] = probe.live and "live:" .. probe.live or probe.allotted
    local verdict, evidence, ms = engine.call("probe.run", probe.file, table.unpack(names))
    if not verdict then
        return not_run(probe, evidence)
    end
    local result = not_run(probe, "")
    result.verdict, result.evidence, result.ms = verdict, session.evidence(evidence), tonumber(ms)
    return result
end

-- The phases of some probes, in order, each with its probes.
local function by_phase(probes)
    local phases, groups = {}, {}
    for _, probe in ipairs(probes) do
        if not groups[probe.phase] then
            groups[probe.phase] = {}
            phases[#phases + 1] = probe.phase
        end
        table.insert(groups[probe.phase], probe)
    end
    table.sort(phases)
    return phases, groups
end

-- The early probes, or the others.
local function select_early(probes, early)
    local out = {}
    for _, probe in ipairs(probes) do
        if (probe.early or false) == early then
            out[#out + 1] = probe
        end
    end
    return out
end

--- Runs the probes that are asked before the run has boxes of its own.
-- @param probes as of session.probes
-- @return array of results, and the other probes
function session.run_early(probes)
    return session.run(select_early(probes, true), {}), select_early(probes, false)
end

-- Calls f for each of a phase's probes: side by side, or, where they change one live network, one by one.
local function each_of(probes, f)
    if not probes[1].live then
        return task.map(probes, f)
    end
    for _, probe in ipairs(probes) do
        f(probe)
    end
end

--- Runs probes: phase by phase, those of one phase side by side, and reports each as it ends.
-- @param probes as of session.probes
-- @param boxes as of mint.boxes
-- @param results of probes that were run before; may be left out
-- @return array of results, as report.verdict takes them
function session.run(probes, boxes, results)
    results = results or {}
    local phases, groups = by_phase(probes)
    for _, phase in ipairs(phases) do
        each_of(groups[phase], function(probe)
            local ok, result = pcall(session.run_one, probe, boxes)
            if not ok then
                result = not_run(probe, tostring(result))
            end
            results[#results + 1] = result
            report.verdict(result)
        end)
        if session.needs(groups[phase], "box.cli") then
            cli.discard()
        end
    end
    return results
end

--- Results of probes that can not run, for one reason; reported, the reason once.
-- @param results of probes that were run before; may be left out
function session.none_run(probes, why, results)
    results = results or {}
    report.say(why, "red")
    for _, probe in ipairs(probes) do
        local result = not_run(probe, why)
        result.said = true
        results[#results + 1] = result
        report.verdict(result)
    end
    return results
end

--- The end of a report, and of the script: the summary, the run log's section, the exit status. A log that could
-- not be written is said, and no success.
-- @param results, summary as of report.summary @param server as of incus.server; may be nil
function session.finish(results, server, summary)
    report.summary(results, summary)
    local logged, why = runlog.append(results, summary, server)
    if not logged then
        report.refuse("the run log was not written: " .. why)
    end
    engine.call("exit", (logged or summary.status ~= 0) and summary.status or UNLOGGED)
end

--- Deletes this run's boxes, and says which could not be seen to be gone.
-- @return whether all are gone
function session.delete(boxes)
    local project = contract.load().project
    local all = true
    task.map(boxes, function(box)
        local gone, why = mint.delete(project, box.name)
        if not gone then
            all = false
            report.say(why, "red")
        end
    end)
    return all
end

--- Leaves this run's boxes standing, without our program in them.
function session.keep(boxes)
    local project = contract.load().project
    engine.call("made.keep")
    for _, box in ipairs(boxes) do
        incus.unpush(project, box.name)
        report.say(("kept: %s (delete it with: incus delete -f --project %s %s)"):format(box.name, project, box.name))
    end
end

--- Mints boxes with a line of narration for each.
-- @param n how many
-- @return as mint.boxes
function session.mint(n)
    if n == 0 then
        return {}
    end
    local started = engine.clock()
    report.say(("minting %d boxes ..."):format(n), "dim")
    local room = mint.room()
    if room.each then
        report.say(("  small host: %d MiB are free, so each box gets %d MiB of memory, not %d"):format(
            room.free, room.each, room.wanted), "yellow")
    end
    local boxes, why, code = mint.boxes(session.suffixes(n))
    if not boxes then
        return nil, why, code
    end
    for _, box in ipairs(boxes) do
        report.say(("  %s %s"):format(box.name, box.address or "has no IPv4 address"), "dim")
    end
    report.say(("  %.1f s"):format(engine.clock() - started), "dim")
    return boxes
end

return session
