--- Verdicts rendered: as text for a terminal, or as JSON, one object a line (docs/json.md). All of it goes
-- through the broker's `print`, which escapes what a terminal would act on: names and addresses here
-- may be a box's own words.
local cjson = require "cjson"
local witness = require "witness"

local report = {}

local STYLE = {
    PASS = "green",
    FAIL = "red",
    VETO = "red",
    ERROR = "red",
    SUSPECT = "yellow",
    NOTE = "cyan",
    SKIP = "dim",
}
-- The order in which verdicts are counted and shown.
local ORDER = { "PASS", "FAIL", "NOTE", "SKIP", "SUSPECT", "ERROR", "VETO" }
local SHOWN = 6 -- observations of one probe that are printed; all are in the JSON
local EXIT = { OK = 0, FAILED = 1, UNSURE = 3 }

-- Prints one line. @param style plain, bold, dim, green, red, yellow or cyan @param text
local function line(style, text)
    engine.call("print", style, text .. "\n")
end

-- Lines that are printed at once: between two of them another probe's would come.
local function block()
    local parts = {}
    return {
        -- One line: style, text, and so on.
        add = function(...)
            table.move({ ... }, 1, select("#", ...), #parts + 1, parts)
            parts[#parts] = parts[#parts] .. "\n"
        end,
        print = function()
            engine.call("print", table.unpack(parts))
        end,
    }
end

-- Text of unknown origin that shall stay on one line: the broker lets line breaks through.
local function flat(text)
    return (tostring(text):gsub("[\r\n\t]+", " "))
end

--- Whether the run was asked for JSON.
function report.is_json()
    return report.options().json == "1"
end

local options

--- The run's options. @return map of "0" and "1": json, color, yes, root, log, landlock
function report.options()
    if not options then
        local values = table.pack(engine.call("options"))
        options = {}
        for i = 1, values.n - 1, 2 do
            options[values[i]] = values[i + 1]
        end
    end
    return options
end

--- A line of narration; nothing of it in JSON.
-- @param text @param style plain if left out
function report.say(text, style)
    if not report.is_json() then
        line(style or "plain", text)
    end
end

-- JSON that is ASCII throughout, whatever bytes the strings hold: what is no UTF-8 becomes U+FFFD.
local function ascii(json)
    local out = {}
    local at = 1
    while at <= #json do
        local stop = json:find("[\127-\255]", at)
        if not stop then
            out[#out + 1] = json:sub(at)
            break
        end
        out[#out + 1] = json:sub(at, stop - 1)
        local sequence = json:match("^" .. utf8.charpattern, stop)
        local code = sequence and utf8.len(sequence) == 1 and utf8.codepoint(sequence)
        if not code then
            sequence, code = json:sub(stop, stop), 0xfffd
        end
        if code > 0xffff then
            code = code - 0x10000
            out[#out + 1] = ("\\u%04x\\u%04x"):format(0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff))
        else
            out[#out + 1] = ("\\u%04x"):format(code)
        end
        at = stop + #sequence
    end
    return table.concat(out)
end

-- The keys of an object: `type`, `id` and `verdict` first, the rest in order, so that two runs compare.
local FIRST = { type = 1, id = 2, verdict = 3 }

local function keys_of(object)
    local keys = {}
    for key in pairs(object) do
        keys[#keys + 1] = key
    end
    table.sort(keys, function(a, b)
        local x, y = FIRST[a] or 4, FIRST[b] or 4
        return x < y or x == y and a < b
    end)
    return keys
end

local function encode(value)
    if type(value) ~= "table" then
        return (cjson.encode(value):gsub("\\/", "/"))
    end
    local parts = {}
    if #value > 0 then
        for i, entry in ipairs(value) do
            parts[i] = encode(entry)
        end
        return "[" .. table.concat(parts, ",") .. "]"
    end
    for i, key in ipairs(keys_of(value)) do
        parts[i] = cjson.encode(key) .. ":" .. encode(value[key])
    end
    return "{" .. table.concat(parts, ",") .. "}"
end

--- One object as a line of JSON: ASCII, so that nothing in it needs escaping again.
-- @param object a table with text keys; a table in it with a first element is an array
-- @return text without a newline
function report.json(object)
    return ascii(encode(object))
end

--- Why a script did not do what it was asked: in JSON an object of type "error".
-- @param message text
function report.refuse(message)
    if report.is_json() then
        line("plain", report.json { type = "error", message = message })
    else
        line("red", message)
    end
end

local function seconds(ms)
    return ms and ("%6.1f s"):format(ms / 1000) or ""
end

local function detail(out, label, text)
    if text then
        out.add("plain", ("    %-9s %s"):format(label, flat(text)))
    end
end

-- One observation that is to be seen.
local function add_observation(out, observation)
    out.add(STYLE[observation.verdict], ("  %s: %s"):format(observation.verdict, flat(observation.what)))
    detail(out, "contract", observation.clause)
    detail(out, "seen", observation.seen)
    detail(out, "reason", observation.reason)
    detail(out, "why", observation.why)
    detail(out, "mend", observation.mend)
    detail(out, "witness", observation.witness)
    detail(out, "last", observation.last_primitive)
    detail(out, "by hand", observation.by_hand)
end

--- Which observations of a result stand beside its verdict: those that made it.
function report.telling(result)
    local out = {}
    for _, observation in ipairs(result.evidence.observations or {}) do
        if observation.verdict == result.verdict then
            out[#out + 1] = observation
        end
    end
    return out
end

-- A rehearsal's answer, in one line; nil where there is none.
local function answer_of(result)
    for _, observation in ipairs(result.evidence.observations or {}) do
        if observation.answer and observation.verdict == result.verdict then
            return observation.answer
        end
    end
    return nil
end

local function print_text(result)
    local out, found = block(), answer_of(result)
    out.add(STYLE[result.verdict], ("%-8s"):format(result.verdict),
        "plain", (" %-14s %-62s %s"):format(flat(result.id), flat(result.title), seconds(result.ms)))
    if found then
        out.add(STYLE[result.verdict], "  " .. flat(found))
    end
    local shown = (result.verdict == "PASS" or result.said) and {} or report.telling(result)
    for i = 1, math.min(#shown, SHOWN) do
        add_observation(out, shown[i])
    end
    if #shown > SHOWN then
        out.add("dim", ("  and %d more of these (--json has all)"):format(#shown - SHOWN))
    end
    out.print()
end

--- Reports one probe's verdict as it comes.
-- @param result { id, title, audit, verdict, ms, evidence, said }; `said`: why is said already, in text
function report.verdict(result)
    if report.is_json() then
        line("plain", report.json {
            type = "verdict",
            id = result.id,
            title = result.title,
            audit = result.audit,
            verdict = result.verdict,
            ms = result.ms,
            evidence = result.evidence,
        })
    else
        print_text(result)
    end
end

--- How many results there are of each verdict. @return map with every verdict in it
function report.counts(results)
    local counts = {}
    for _, verdict in ipairs(ORDER) do
        counts[verdict] = 0
    end
    for _, result in ipairs(results) do
        counts[result.verdict] = counts[result.verdict] + 1
    end
    return counts
end

-- Whether each of the phases has a PASS.
local function all_passed(results, phases)
    local passed = {}
    for _, result in ipairs(results) do
        if result.verdict == "PASS" then
            passed[result.phase] = true
        end
    end
    for _, phase in ipairs(phases) do
        if not passed[phase] then
            return false
        end
    end
    return #phases > 0
end

--- The exit status of a run.
-- @param results array of { verdict, phase }
-- @param phases the selected ones
-- @return 0: a PASS in each phase, and nothing but PASS, NOTE and SKIP; 1: a FAIL or a VETO; 3 otherwise
function report.status(results, phases)
    local counts = report.counts(results)
    if counts.FAIL + counts.VETO > 0 then
        return EXIT.FAILED
    elseif counts.SUSPECT + counts.ERROR > 0 or not all_passed(results, phases) then
        return EXIT.UNSURE
    end
    return EXIT.OK
end

-- What stands in the audit block behind a verdict.
local function answer(result)
    if result.said then
        return "not run"
    end
    local first, found = report.telling(result)[1], answer_of(result)
    if found then
        return found
    elseif result.verdict == "PASS" or not first then
        return result.title
    end
    return first.seen and ("%s: %s"):format(first.what, first.seen) or first.what
end

--- A cell of a Markdown table: one line, no pipe, nothing that would be a tag.
function report.cell(text)
    return (flat(text):gsub("|", " "):gsub("<", "&lt;"))
end

--- The audit's answers. @param results as of report.verdict
-- @return array of lines, a table in Markdown; empty when none of the results answers a question of the audit
function report.audit(results)
    local keyed = {}
    for _, result in ipairs(results) do
        if result.audit then
            keyed[#keyed + 1] = result
        end
    end
    if #keyed == 0 then
        return keyed
    end
    table.sort(keyed, function(a, b)
        return a.audit < b.audit or a.audit == b.audit and a.id < b.id
    end)
    local out = { "| Audit | Probe | Verdict | Answer |", "| --- | --- | --- | --- |" }
    for _, result in ipairs(keyed) do
        out[#out + 1] = ("| %s | %s | %s | %s |"):format(result.audit, result.id, result.verdict,
            report.cell(answer(result)))
    end
    return out
end

--- Counts as text: "39 PASS, 1 NOTE". @param counts as of report.counts
function report.counts_text(counts)
    local parts = {}
    for _, verdict in ipairs(ORDER) do
        if counts[verdict] > 0 then
            parts[#parts + 1] = ("%d %s"):format(counts[verdict], verdict)
        end
    end
    return #parts > 0 and table.concat(parts, ", ") or "no verdicts"
end

-- Why there was no witness, and of how many probes; nil where each had one.
local function without_witness(results)
    local why, count = nil, 0
    for _, result in ipairs(results) do
        for _, control in ipairs(result.evidence.controls or {}) do
            if control.what == witness.CONTROL and not control.passed then
                why, count = control.seen, count + 1
                break
            end
        end
    end
    return why, count
end

local CLOSING = {
    [EXIT.OK] = { "green", "The contract holds, as far as it was asked." },
    [EXIT.FAILED] = { "red", "The contract does not hold." },
    [EXIT.UNSURE] = { "yellow", "Nothing failed, but not everything could be judged." },
}

--- The end of a report.
-- @param results array as of report.verdict, with phase
-- @param summary { status, phases, ms, audit, cli, without_cli, left_out }: the exit status, the selected phases, the
--   run's time; audit is false where no audit block is wanted; the CLI that was drilled, or why none was;
--   the ids of the probes that were not asked; whether the witness was switched off
function report.summary(results, summary)
    local counts = report.counts(results)
    if report.is_json() then
        line("plain", report.json {
            type = "summary",
            run = engine.run_id,
            verdicts = counts,
            status = summary.status,
            phases = #summary.phases > 0 and summary.phases or nil,
            cli = summary.cli,
            left_out = summary.left_out and #summary.left_out > 0 and summary.left_out or nil,
            ms = math.floor(summary.ms),
        })
        return
    end
    local audit = summary.audit ~= false and report.audit(results) or {}
    if #audit > 0 then
        line("bold", "\nThe audit's answers, ready to paste:\n")
        line("plain", table.concat(audit, "\n"))
    end
    if summary.cli then
        line("plain", "\nThe box CLI that was drilled: " .. flat(summary.cli))
    elseif summary.without_cli then
        line("yellow", "\nNO BOX CLI WAS DRILLED: " .. flat(summary.without_cli))
    end
    if summary.left_out and #summary.left_out > 0 then
        line("plain", ("\nNot asked, by --only or --skip: %d probes: %s"):format(
            #summary.left_out, flat(table.concat(summary.left_out, " "))))
    end
    local why, count = without_witness(results)
    if count > 0 then
        line("yellow", ("\nNO WITNESS on this host (%s): what %d probes say rests on the boxes' word alone."):format(
            flat(why), count))
    end
    local closing = CLOSING[summary.status]
    engine.call("print", closing[1], "\n" .. closing[2], "plain",
        (" %s in %.1f s (run %s)\n"):format(report.counts_text(counts), summary.ms / 1000, engine.run_id))
    if report.options().landlock == "0" then
        line("yellow", "This kernel has no Landlock: the workers were confined by seccomp alone.")
    end
end

return report
