--- A change, watched while it is made and until what it interrupts is back: how long each thing was lost, and
-- what did not come back in time.
local question = require "question"
local task = require "task"

local settle = {}

local PACE = 50              -- milliseconds from one sample to the next
-- Of one attempt, in milliseconds: eight times what the slowest took while nothing was changed, within these.
local LEAST, MOST, FACTOR = 100, 300, 8
local TRIAL = 3              -- samples that tell how long attempts take here
local FIRST, NEXT = 40, 10   -- samples in the first run of the program, which spans the change, and in the others
local LEAD = 250             -- the watching has begun when the change is made
local IN_A_ROW = 3           -- one observation is not a verdict
-- A wait that sends nothing: asks the box's own loopback, which nobody answers.
local WAIT = { proto = "await", port = 9, ms = PACE, token = "0000000000000000" }

-- The stages of one run, and where in them each question's attempts are.
local function plan(r, questions, count, budget)
    local stages, places = {}, {}
    for i = 1, count do
        stages[i] = { WAIT }
        for _, one in ipairs(questions) do
            if i % (one.every or 1) == 0 then
                local specs = one.specs(r, budget)
                places[#places + 1] = { question = one, stage = i, first = #stages[i] + 1, specs = specs }
                table.move(specs, 1, #specs, #stages[i] + 1, stages[i])
            end
        end
    end
    return stages, places
end

-- The budget of an attempt from this place.
local function budget_of(r, place, questions)
    local slowest = 0
    for _, stage in ipairs(place:attempt((plan(r, questions, TRIAL, MOST)))) do
        for _, seen in ipairs(stage) do
            slowest = math.max(slowest, seen.outcome == "reachable" and seen.ms or 0)
        end
    end
    return math.max(LEAST, math.min(MOST, FACTOR * slowest // 1 | 0))
end

-- One run of the program: adds { at, works } to each question's samples.
local function sample(r, place, questions, samples, count, budget)
    local stages, places = plan(r, questions, count, budget)
    local began = engine.clock()
    local seen, starts = place:attempt(stages)
    for _, where in ipairs(places) do
        local first = where.first
        local slice = table.move(seen[where.stage], first, first + #where.specs - 1, 1, {})
        local works = question.read(r, where.question, slice, where.specs)
        local at = began + (starts and starts[where.stage] or 0) / 1000
        table.insert(samples[where.question], { at = at, works = works == true })
    end
end

--- Whether the last samples since a time all work. Pure.
-- @param samples array of { at, works } @param since seconds
function settle.recovered(samples, since)
    if #samples < IN_A_ROW then
        return false
    end
    for i = #samples - IN_A_ROW + 1, #samples do
        if not samples[i].works or samples[i].at < since then
            return false
        end
    end
    return true
end

--- How long something was lost, in milliseconds: from each sample that failed until the next that worked. Pure.
-- @param samples array of { at, works }
function settle.lost(samples)
    local lost, from = 0, nil
    for _, one in ipairs(samples) do
        if one.works and from then
            lost, from = lost + (one.at - from), nil
        elseif not one.works then
            from = from or one.at
        end
    end
    if from then
        lost = lost + (samples[#samples].at - from)
    end
    return math.floor(lost * 1000 + 0.5)
end

-- Watches the questions of one place until they are back or the time is over.
local function watch(r, place, questions, samples, state)
    local count = FIRST
    repeat
        sample(r, place, questions, samples, count, state.budgets[place])
        count = NEXT
        local all = state.made ~= nil
        for _, one in ipairs(questions) do
            all = all and settle.recovered(samples[one], state.made)
        end
    until all or state.made and engine.clock() > state.made + r.data.budgets.settle / 1000
end

--- Makes a change and watches it.
-- @param r the rehearsal
-- @param questions what must keep working
-- @param change makes it; returns what own.edit does
-- @return { before, why, code: as change returned; lost: map of question to milliseconds; broken: map of
--   question to true where it was not back in time; ms: the time from the change's end until all was back }
function settle.watch(r, questions, change)
    local state, samples, groups, order = {}, {}, {}, {}
    for _, one in ipairs(questions) do
        local place = question.place(r, one)
        samples[one] = {}
        if not groups[place] then
            groups[place] = {}
            order[#order + 1] = place
        end
        table.insert(groups[place], one)
    end
    state.budgets = {}
    task.map(order, function(place)
        state.budgets[place] = budget_of(r, place, groups[place])
    end)
    local work = {
        function()
            task.sleep(LEAD)
            -- What is thrown ends the watching as well: it goes on until the change is made.
            local ok, before, why, code = pcall(change)
            state.made = engine.clock()
            if not ok then
                error(before, 0)
            end
            state.before, state.why, state.code = before, why, code
        end,
    }
    for _, place in ipairs(order) do
        work[#work + 1] = function()
            watch(r, place, groups[place], samples, state)
        end
    end
    task.all(work)
    state.lost, state.broken = {}, {}
    for _, one in ipairs(questions) do
        state.lost[one] = settle.lost(samples[one])
        state.broken[one] = not settle.recovered(samples[one], state.made) or nil
    end
    return state
end

return settle
