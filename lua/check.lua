--- `t`: what a probe records with. A probe never prints; it records observations, and one verdict comes
-- out of them (judge.worst). Reporters render.
local contract = require "contract"
local isolated = require "isolated"
local judge = require "judge"
local outcome = require "outcome"
local task = require "task"

local check = {}
local T = {}
T.__index = T

local RETRY_PAUSE = 1000

-- Lays plain data on a record: texts, finite numbers, booleans under names. What a verdict is made of is none
-- of it. Throws, two callers up.
local function lay(record, details)
    if details ~= nil and type(details) ~= "table" then
        error("t: details are a table", 3)
    end
    for key, value in pairs(details or {}) do
        local kind = type(value)
        if type(key) ~= "string" or record[key] ~= nil then
            error(("t: details can not hold '%s'"):format(tostring(key)), 3)
        elseif kind ~= "string" and kind ~= "boolean" and not (kind == "number" and value - value == 0) then
            error(("t: details: %s is no text, number or boolean"):format(key), 3)
        end
    end
    for key, value in pairs(details or {}) do
        record[key] = value
    end
    return record
end

--- A fresh `t`.
-- @param id the probe's
-- @return an object with the methods below and the fields contract, id
function check.new(id)
    return setmetatable({ id = id, contract = contract.load(), observations = {}, controls = {} }, T)
end

--- Records one observation. Throws on misuse.
-- @param verdict PASS, FAIL, NOTE, SKIP, SUSPECT or ERROR (VETO in phase D)
-- @param what what was observed, text
-- @param details a table of plain data for the report (texts, numbers, booleans); may be left out. It holds
--   neither `verdict` nor `what`.
--   `clause` (what the contract says), `seen` (what was found), `reason` and `by_hand` (the command that
--   asks the same) are printed with a verdict that is no PASS; `answer` says in one line what a probe of that
--   verdict came to
function T:record(verdict, what, details)
    judge.worst { verdict } -- throws on a verdict there is none of
    if type(what) ~= "string" then
        error("t: what was observed is a string", 2)
    end
    table.insert(self.observations, lay({ verdict = verdict, what = what }, details))
end

--- The contract holds here. @param what text @param details a table of plain data; may be left out
function T:pass(what, details)
    self:record("PASS", what, details)
end

--- Measured: it does not hold.
-- @param what text @param details plain data
function T:fail(what, details)
    self:record("FAIL", what, details)
end

--- Refuses to judge. @param what the reason @param details plain data
function T:suspect(what, details)
    self:record("SUSPECT", what, details)
end

--- The instrument failed. @param what how @param details plain data
function T:error(what, details)
    self:record("ERROR", what, details)
end

--- Recorded, judged by nobody. @param what text @param details plain data
function T:note(what, details)
    self:record("NOTE", what, details)
end

--- Does not apply here. @param what the reason @param details plain data
function T:skip(what, details)
    self:record("SKIP", what, details)
end

--- PASS or FAIL. @param ok boolean @param what text @param details plain data, as of T:record
-- @return ok
function T:expect(ok, what, details)
    self:record(ok and "PASS" or "FAIL", what, details)
    return ok
end

--- Records a control: what was asked to see that the instrument works. It is no verdict.
-- @param what text @param passed boolean @param details plain data
function T:control(what, passed, details)
    if type(what) ~= "string" or type(passed) ~= "boolean" then
        error("t: a control is a string, and whether it passed", 2)
    end
    table.insert(self.controls, lay({ what = what, passed = passed }, details))
end

--- The verdict of what was recorded so far.
function T:verdict()
    local verdicts = {}
    for i, observation in ipairs(self.observations) do
        verdicts[i] = observation.verdict
    end
    return judge.worst(verdicts)
end

--- What was recorded, as data for the report.
function T:evidence()
    local out = {}
    if #self.observations > 0 then
        out.observations = self.observations
    end
    if #self.controls > 0 then
        out.controls = self.controls
    end
    return out
end

-- Indices of `seen` that are not reachable.
local function unreached(seen)
    local out = {}
    for i, one in ipairs(seen) do
        if one.outcome ~= "reachable" then
            out[#out + 1] = i
        end
    end
    return out
end

-- The specs that the contract's `exclude` does not forbid. @return array, array of the others
local function permitted(data, specs)
    local asked, excluded = {}, {}
    for _, spec in ipairs(specs) do
        local list = contract.excluded(data, spec.to, spec.port) and excluded or asked
        list[#list + 1] = spec
    end
    return asked, excluded
end

local function skip_excluded(t, place, specs)
    for _, spec in ipairs(specs) do
        t:skip(("%s to %s: the contract excludes it"):format(place.label, outcome.target(spec)))
    end
end

--- Each of these must be reachable from a place; one that is not is asked once more, a second later. What the
-- contract excludes is not asked.
-- @param place a box or the host
-- @param specs array as of guest.spec
-- @param clause what the contract says, for a FAIL
function T:reaches(place, specs, clause)
    local excluded
    specs, excluded = permitted(self.contract, specs)
    skip_excluded(self, place, excluded)
    if #specs == 0 then
        return
    end
    local seen = place:attempt({ specs })[1]
    local missing = unreached(seen)
    if #missing > 0 then
        task.sleep(RETRY_PAUSE)
        local again = {}
        for j, i in ipairs(missing) do
            again[j] = specs[i]
        end
        for j, one in ipairs(place:attempt({ again })[1]) do
            seen[missing[j]] = one
        end
    end
    for i, spec in ipairs(specs) do
        local details = outcome.details(seen[i], spec)
        details.clause, details.by_hand = clause, place:by_hand(spec)
        local verdict = seen[i].outcome == "reachable" and "PASS"
            or seen[i].outcome == "inconclusive" and "ERROR" or "FAIL"
        self:record(verdict, ("%s reaches %s"):format(place.label, outcome.target(spec)), details)
    end
end

--- None of these may be reachable: control, negative, control, judged by the table in judge. What the
-- contract excludes is not asked; with nothing left to ask the verdict is SUSPECT.
-- @param options see isolated.measure
function T:isolated(options)
    local asked, excluded = {}, {}
    for _, target in ipairs(options.targets) do
        if contract.excluded(self.contract, target.spec.to, target.spec.port) then
            excluded[#excluded + 1] = target.spec
        else
            asked[#asked + 1] = target
        end
    end
    skip_excluded(self, options.source, excluded)
    if #asked == 0 then
        return self:suspect("there is nothing to ask: the contract names nothing, or excludes it", {
            clause = options.clause,
        })
    end
    local narrowed = {}
    for key, value in pairs(options) do
        narrowed[key] = value
    end
    narrowed.targets = asked
    return isolated.measure(self, narrowed)
end

return check
