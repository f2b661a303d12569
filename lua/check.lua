--- `t`: what a probe records with. A probe never prints; it records observations, and one verdict comes
-- out of them (judge.worst). Reporters render.
local contract = require "contract"
local isolated = require "isolated"
local judge = require "judge"
local outcome = require "outcome"

local check = {}
local T = {}
T.__index = T

--- A fresh `t`.
-- @param id the probe's
-- @return an object with the methods below and the fields contract, id
function check.new(id)
    return setmetatable({ id = id, contract = contract.load(), observations = {}, controls = {} }, T)
end

--- Records one observation.
-- @param verdict PASS, FAIL, NOTE, SKIP, SUSPECT or ERROR (VETO in phase D)
-- @param what what was observed, text
-- @param details a table of plain data for the report (texts, numbers, booleans); may be left out.
--   `clause` (what the contract says), `seen` (what was found), `reason` and `by_hand` (the command that
--   asks the same) are printed with a verdict that is no PASS; `answer` says in one line what a probe of that
--   verdict came to
function T:record(verdict, what, details)
    judge.worst { verdict } -- throws on a verdict there is none of
    if type(what) ~= "string" then
        error("t: what was observed is a string", 2)
    end
    local observation = { verdict = verdict, what = what }
    for key, value in pairs(details or {}) do
        observation[key] = value
    end
    table.insert(self.observations, observation)
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
    local control = { what = what, passed = passed }
    for key, value in pairs(details or {}) do
        control[key] = value
    end
    table.insert(self.controls, control)
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

--- Each of these must be reachable from a place; one that is not is asked once more.
-- @param place a box or the host
-- @param specs array as of guest.spec
-- @param clause what the contract says, for a FAIL
function T:reaches(place, specs, clause)
    local seen = place:attempt({ specs })[1]
    local missing = unreached(seen)
    if #missing > 0 then
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

--- None of these may be reachable: control, negative, control, judged by the table in judge.
-- @param options see isolated.measure
function T:isolated(options)
    isolated.measure(self, options)
end

return check
