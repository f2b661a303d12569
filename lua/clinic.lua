--- What the doctor's checks came to, in its words: as text, or as JSON, one object a line (docs/json.md).
local report = require "report"

local clinic = {}

local EXIT = { CLEAN = 0, DIRTY = 1, UNASKED = 3 }

-- A probe's verdict in the doctor's words; of a SKIP the check says which it is.
local WORDS = {
    PASS = { "clean", "green" },
    NOTE = { "clean", "green" },
    FAIL = { "DIRTY", "red" },
    FRESH = { "not set up yet", "cyan" },
    SKIP = { "nothing to ask", "dim" },
    SUSPECT = { "could not be asked", "yellow" },
    ERROR = { "could not be asked", "yellow" },
}
local TOLD = { FAIL = true, SUSPECT = true, ERROR = true, NOTE = true, SKIP = true }

local function flat(text)
    return (tostring(text):gsub("[\r\n\t]+", " "))
end

-- The doctor's word for a result.
local function word_of(result)
    for _, observation in ipairs(result.evidence.observations or {}) do
        if result.verdict == "SKIP" and observation.fresh then
            return WORDS.FRESH
        end
    end
    return WORDS[result.verdict]
end

-- A line of what is printed at once: checks end side by side.
local function add(out, style, format, ...)
    out[#out + 1] = style
    out[#out + 1] = format:format(...) .. "\n"
end

local function add_observation(out, observation)
    add(out, WORDS[observation.verdict][2], "  %s%s", observation.verdict == "NOTE" and "NOTE: " or "",
        flat(observation.what))
    for _, entry in ipairs {
        { "why", observation.why }, { "seen", observation.seen }, { "mend", observation.mend },
        { "because", observation.reason }, { "last", observation.last_primitive }, { "by hand", observation.by_hand },
    } do
        if entry[2] then
            add(out, "plain", "    %-9s %s", entry[1], flat(entry[2]))
        end
    end
    if observation.verdict == "FAIL" then
        add(out, "plain", "    %-9s %s", "--fix",
            observation.fix and "mends it" or "leaves it: somebody may have meant it")
    end
end

local function say_text(result)
    local word = word_of(result)
    local out = { word[2], ("%-18s"):format(word[1]) }
    add(out, "plain", " %-12s %-62s %5.1f s", result.id, flat(result.title), (result.ms or 0) / 1000)
    for _, observation in ipairs(result.evidence.observations or {}) do
        if TOLD[observation.verdict] then
            add_observation(out, observation)
        end
    end
    engine.call("print", table.unpack(out))
end

local function say_json(object)
    engine.call("print", "plain", report.json(object) .. "\n")
end

--- Says one check's result.
-- @param result as of session.run_one
function clinic.say(result)
    if not report.is_json() then
        return say_text(result)
    end
    say_json {
        type = "check",
        id = result.id,
        title = result.title,
        verdict = word_of(result)[1],
        ms = result.ms,
        findings = result.evidence.observations,
    }
end

-- How many problems, and how many questions without an answer.
local function count(results)
    local out = { FAIL = 0, unasked = 0, fresh = 0 }
    for _, result in ipairs(results) do
        for _, observation in ipairs(result.evidence.observations or {}) do
            if observation.verdict == "FAIL" then
                out.FAIL = out.FAIL + 1
            elseif observation.verdict == "SUSPECT" or observation.verdict == "ERROR" then
                out.unasked = out.unasked + 1
            end
        end
        out.fresh = out.fresh + (word_of(result) == WORDS.FRESH and 1 or 0)
    end
    return out
end

-- The whole verdict: words, their style, the exit status.
local function closing(found)
    if found.FAIL > 0 then
        return ("%d problem%s."):format(found.FAIL, found.FAIL > 1 and "s" or ""), "red", EXIT.DIRTY
    elseif found.unasked > 0 then
        return "Nothing is wrong, as far as could be asked: not everything could.", "yellow", EXIT.UNASKED
    elseif found.fresh > 0 then
        return "Not set up yet: a fresh host (boxdrill setup.lua sets it up).", "cyan", EXIT.CLEAN
    end
    return "Clean.", "green", EXIT.CLEAN
end

--- Says what all of it came to.
-- @param results array as of clinic.say @param ms how long it took
-- @return the exit status
function clinic.summary(results, ms)
    local found = count(results)
    local words, style, status = closing(found)
    if report.is_json() then
        say_json {
            type = "doctor",
            problems = found.FAIL,
            unasked = found.unasked,
            fresh = found.fresh > 0,
            status = status,
            ms = math.floor(ms),
        }
    else
        engine.call("print", style, "\n" .. words, "plain", (" %d check%s in %.1f s\n"):format(
            #results, #results == 1 and "" or "s", ms / 1000))
    end
    return status
end

--- What the journal has open.
-- @return its state ("whole", ...), array of texts; nil, message when it cannot be read
function clinic.leftovers()
    local texts, open = table.pack(engine.call("journal.show")), {}
    if not texts[1] then
        return nil, texts[2]
    end
    for i = 3, texts.n - 5, 6 do
        if texts[i] == "open" then
            open[#open + 1] = ("%s %s (project %s), made by run %s"):format(
                texts[i + 2], texts[i + 4], texts[i + 3], texts[i + 1])
        end
    end
    return texts[2]:match("%S+"), open
end

return clinic
