--- A rehearsal: a planned change, tried on a network, an ACL, a profile and two boxes of our own before it
-- ships. `return rehearse { ... }` is a whole probe (docs/rehearse.md).
--
-- Before: what must keep working works, and so does what the change must break; else SUSPECT, and the change
-- is never made. Then the change, watched until it has settled; three observations; the undoing, and the
-- baseline back. What breaks what it must not is VETO; what does not break what it must is FAIL.
local contract = require "contract"
local incus = require "incus"
local inet = require "inet"
local box = require "box"
local live = require "live"
local mint = require "mint"
local own = require "own"
local question = require "question"
local settle = require "settle"
local task = require "task"

local rehearse = {}

local OBSERVATIONS = 3
local BETWEEN = 200          -- milliseconds from one observation to the next
local BASELINE = 10000       -- milliseconds for a fresh network to answer everything
local NEEDS = { "box.mint", "box.exec", "rehearse" }

-- -- the before-state ---------------------------------------------------------------------------------

local function laid_over(base, over)
    local out = {}
    for key, value in pairs(base) do
        out[key] = value
    end
    for key, value in pairs(over or {}) do
        out[key] = value
    end
    return out
end

-- The contract's rules with our gateway and subnet in place of its own.
local function rules(data, r, list)
    local out = {}
    for i, rule in ipairs(list) do
        out[i] = { state = "enabled" }
        for key, value in pairs(rule) do
            value = value == data.gateway .. "/32" and r.gateway .. "/32" or value
            out[i][key] = value == data.subnet and r.subnet or value
        end
    end
    return out
end

-- The contract's devices, with every NIC on its network on the rehearsal's. Remembers the NIC's name and keys.
local function devices(data, r)
    local out = {}
    for name, device in pairs(data.profile.devices) do
        out[name] = laid_over(device)
        if device.type == "nic" and device.network == data.network.name then
            out[name].network = r.network
            r.device, r.nic = name, out[name]
        end
    end
    return out
end

-- What is made, in order: kind, body.
local function things(r, spec)
    local data, before = r.data, spec.before or {}
    local config = laid_over(data.network.config, before.network)
    config["ipv4.address"] = r.address
    if (config["security.acls"] or "") ~= "" then
        config["security.acls"] = r.name
    end
    return {
        { "acl", {
            description = "boxdrill: a rehearsal's own",
            egress = rules(data, r, before.egress or data.acl.egress),
            ingress = rules(data, r, before.ingress or data.acl.ingress),
        } },
        { "network", { description = "boxdrill: a rehearsal's own", config = config } },
        { "profile", { description = "boxdrill: a rehearsal's own", devices = devices(data, r) } },
    }
end

local function mint_boxes(r)
    local recipe, why = mint.recipe(r.profile, r.subnet)
    if not recipe then
        return nil, why
    end
    r.minted = true
    local suffixes = { r.part .. "-a", r.count > 1 and r.part .. "-b" or nil }
    local made
    made, why = mint.boxes(suffixes, recipe)
    if not made then
        return nil, why
    end
    r.a, r.b = box.new(made[1].name), made[2] and box.new(made[2].name)
    return true
end

local function build(r, spec)
    if r.live then
        devices(r.data, r)
        return mint_boxes(r)
    end
    for _, thing in ipairs(things(r, spec)) do
        local done, why = own.create(thing[1], r.data.project, r.name, thing[2])
        if not done then
            return nil, why
        end
    end
    return mint_boxes(r)
end

-- Removes all of it; what could not be seen to be gone is recorded, and left to the end of the run.
local function remove(r)
    local project, all = r.data.project, {}
    for i = 1, r.minted and r.count or 0 do
        all[i] = r.name .. (i == 1 and "-a" or "-b")
    end
    local trouble = task.map(all, function(name)
        return select(2, mint.delete(project, name)) or false
    end)
    for _, kind in ipairs(r.live and {} or { "profile", "network", "acl" }) do
        trouble[#trouble + 1] = select(2, own.remove(kind, project, r.name)) or false
    end
    for _, why in ipairs(trouble) do
        if why then
            r.t:error("not removed: " .. why)
        end
    end
end

-- -- the change ---------------------------------------------------------------------------------------

-- Puts the keys of the live network back; those that were not changed are as they were.
local function undo_live(r, changed)
    for i = #changed, 1, -1 do
        local one = changed[i]
        local back, why, code = live.unset(r.data.project, r.network, one.key, one.before, one.after)
        if not back then
            return nil, why, code
        end
    end
    return true
end

-- Sets keys of the live network, as the last thing before which nobody else's instance hangs on it. The same
-- returns as of `make`.
local function make_live(r, keys)
    local strangers, why, code = live.strangers(r.network)
    if not strangers or #strangers > 0 then
        return nil, why or "these instances have come onto it: " .. table.concat(strangers, ", "), code
    end
    local changed = {}
    for _, key in ipairs(contract.sorted_keys(keys)) do
        local done
        done, why, code = live.set(r.data.project, r.network, key, keys[key])
        if not done then
            undo_live(r, changed)
            return nil, why, code
        end
        changed[#changed + 1] = { key = key, before = r.before[key], after = keys[key] }
    end
    return function()
        return undo_live(r, changed)
    end
end

-- Makes the change. Returns a function that undoes it; or nil, message, code.
local function make(r, change)
    local project = r.data.project
    if change.device then
        local done, why, code = incus.device(project, r.a.name, r.device, laid_over(r.nic, change.device))
        return done and function()
            return incus.device(project, r.a.name, r.device, r.nic)
        end, why, code
    end
    if r.live then
        return make_live(r, change.network)
    end
    local kind = change.network and "network" or "acl"
    local before, why, code = own.edit(kind, project, r.name, function(body)
        body.config = laid_over(body.config, change.network)
        for _, direction in ipairs { "egress", "ingress" } do
            for _, rule in ipairs(change[direction] or {}) do
                table.insert(body[direction], laid_over({ state = "enabled" }, rule))
            end
        end
    end)
    return before and function()
        return own.edit(kind, project, r.name, function(body)
            body.config, body.egress, body.ingress = before.config, before.egress, before.ingress
        end)
    end, why, code
end

-- -- asking -------------------------------------------------------------------------------------------

-- The stages of one place's run: what must keep working, what must break, what must keep working.
local function stages_of(r, keeps, breaks)
    local budgets = r.data.budgets
    local stages, blocks = {}, {}
    for _, part in ipairs { { keeps, budgets.control }, { breaks, budgets.severed }, { keeps, budgets.control } } do
        local stage = {}
        for _, one in ipairs(part[1]) do
            local specs = one.specs(r, part[2])
            blocks[#blocks + 1] = { question = one, stage = #stages + 1, first = #stage + 1, specs = specs }
            table.move(specs, 1, #specs, #stage + 1, stage)
        end
        if #stage > 0 then
            stages[#stages + 1] = stage
        end
    end
    return stages, blocks
end

-- "works", "fails" or "lost", of two such words: the worse one.
local function worse(one, two)
    for _, word in ipairs { "lost", "fails" } do
        if one == word or two == word then
            return word
        end
    end
    return two
end

-- One place's run: notes in `found` what each of its questions came to.
local function ask(r, place, group, found)
    local stages, blocks = stages_of(r, group.keeps, group.breaks)
    local seen = place:attempt(stages)
    for _, block in ipairs(blocks) do
        local first = block.first
        local slice = table.move(seen[block.stage], first, first + #block.specs - 1, 1, {})
        local works, text = question.read(r, block.question, slice, block.specs)
        local word = works == nil and "lost" or works and "works" or "fails"
        local before = found[block.question]
        if not before or before.word == "works" then
            found[block.question] = { word = worse(before and before.word, word), text = text,
                by_hand = question.by_hand(block.question, place, block.specs) }
        end
    end
end

-- One observation: each place's questions in one run, the places side by side.
-- @return map of question to { word, text, by_hand }
local function observe(r)
    local groups, order, found = {}, {}, {}
    for _, side in ipairs { "keeps", "breaks" } do
        for _, one in ipairs(r[side]) do
            local place = question.place(r, one)
            if not groups[place] then
                groups[place] = { keeps = {}, breaks = {} }
                order[#order + 1] = place
            end
            table.insert(groups[place][side], one)
        end
    end
    task.map(order, function(place)
        ask(r, place, groups[place], found)
    end)
    return found
end

-- Who the boxes are, and what each question needs before it can be asked.
local function prepare(r)
    local both = task.map({ r.a, r.b }, function(one)
        return one:identity(r.subnet) or false
    end)
    for _, one in ipairs(both) do
        if not one then
            r.t:error("a box could not be asked who it is")
            return false
        elseif not one.address then
            r.t:suspect("a box got no address on the rehearsal's own network: the change was not made")
            return false
        end
    end
    r.me, r.sibling = both[1], both[2]
    for _, side in ipairs { "keeps", "breaks" } do
        local kept = {}
        for _, one in ipairs(r[side]) do
            local ready, why = true, nil
            if one.prepare then
                ready, why = one.prepare(r)
            end
            if ready then
                kept[#kept + 1] = one
            elseif ready == false then
                r.t:note(why)
                r.unasked = (r.unasked or "") .. "; " .. why
            else
                r.t:error(("%s: %s"):format(one.what, tostring(why)))
                return false
            end
        end
        r[side] = kept
    end
    return true
end

-- What does not work of what must, at the baseline. @return array of texts
local function missing(r)
    local found, out = observe(r), {}
    for _, side in ipairs { "keeps", "breaks" } do
        for _, one in ipairs(r[side]) do
            if found[one].word ~= "works" then
                out[#out + 1] = ("%s: %s"):format(one.what, found[one].text)
            end
        end
    end
    return out
end

-- Whether everything works; asked again for a while, as a fresh or a changed network takes its time.
local function baseline(r, ms, when)
    local lacks = {}
    local whole = task.poll(ms, BETWEEN, function()
        lacks = missing(r)
        return #lacks == 0
    end)
    r.t:control("the baseline " .. when, whole == true, { seen = table.concat(lacks, "; ") })
    return whole, table.concat(lacks, "; ")
end

-- -- judging ------------------------------------------------------------------------------------------

local function three(r)
    local counts = {}
    for i = 1, OBSERVATIONS do
        if i > 1 then
            task.sleep(BETWEEN)
        end
        for one, found in pairs(observe(r)) do
            counts[one] = counts[one] or { works = 0, fails = 0, lost = 0 }
            counts[one][found.word] = counts[one][found.word] + 1
            counts[one].text, counts[one].by_hand = found.text, found.by_hand
        end
    end
    return counts
end

-- The verdict on what was wanted `OBSERVATIONS` times and came `count` times.
local function verdict(count, wanted, bad)
    local unwanted = wanted == "works" and "fails" or "works"
    if count[wanted] == OBSERVATIONS then
        return "PASS"
    elseif count[unwanted] == OBSERVATIONS then
        return bad
    elseif count.lost > 0 then
        return "ERROR", "the instrument failed"
    end
    return "SUSPECT", ("%d of %d observations: one reading is no verdict"):format(count[unwanted], OBSERVATIONS)
end

local function judge_keep(r, spec, one, count, state)
    local what, reason = verdict(count, "works", "VETO")
    local details = { clause = "the change breaks nothing else: " .. spec.change.what, seen = count.text,
        by_hand = count.by_hand, lost_ms = state.lost[one], reason = reason }
    if state.broken[one] then
        details.reason = ("not back %d s after the change: broken"):format(r.data.budgets.settle // 1000)
        if what == "PASS" then
            what, details.reason = "VETO", details.reason .. " for that long, though back now"
        end
    elseif state.lost[one] > 0 and what == "PASS" then
        details.reason = ("transient: lost for %d ms"):format(state.lost[one])
    end
    r.t:record(what, "keeps: " .. one.what, details)
end

local function judge_break(r, spec, one, count)
    local what, reason = verdict(count, "fails", "FAIL")
    if what == "FAIL" then
        reason = "the change does not break what it must"
    end
    r.t:record(what, "breaks: " .. one.what, {
        clause = "the change breaks it: " .. spec.change.what,
        seen = count.text,
        by_hand = count.by_hand,
        reason = reason,
    })
end

-- "transient: public names 120 ms", or that nothing was interrupted.
local function interruption(r, state)
    local parts = {}
    for _, one in ipairs(r.keeps) do
        if state.lost[one] > 0 then
            parts[#parts + 1] = ("%s for %d ms"):format(one.what, state.lost[one])
        end
    end
    return #parts > 0 and "transient: lost " .. table.concat(parts, ", ") or "nothing was interrupted"
end

local function judge(r, spec, state)
    local counts = three(r)
    for _, one in ipairs(r.keeps) do
        judge_keep(r, spec, one, counts[one], state)
    end
    for _, one in ipairs(r.breaks) do
        judge_break(r, spec, one, counts[one])
    end
end

-- The change did not come about: Incus's own words.
local function refused(r, spec, state)
    local by_incus = math.type(state.code) == "integer"
    local details = { clause = spec.change.what, seen = state.why }
    if not by_incus then
        return r.t:error("the change could not be made: " .. tostring(state.why))
    elseif not spec.refused then
        return r.t:fail("Incus refuses the change", details)
    end
    local counts = three(r)
    for _, one in ipairs(r.keeps) do
        judge_keep(r, spec, one, counts[one], state)
    end
    if r.t:verdict() == "PASS" then
        details.answer = "REJECTED by Incus: " .. state.why
    end
    r.t:pass("Incus refuses the change, as it should, and nothing else is broken", details)
end

-- Undoes the change and shows that the baseline is back.
local function undo(r, undoing)
    local done, why = undoing()
    if not done then
        return r.t:error("the change could not be undone: " .. tostring(why))
    end
    local back, lacks = baseline(r, r.data.budgets.settle, "after the undoing")
    if not back then
        r.t:suspect("the baseline is not back after the undoing: was it the change?", { seen = lacks })
    end
end

local function try(r, spec)
    if not prepare(r) then
        return
    end
    local whole, lacks = baseline(r, BASELINE, "before the change")
    if not whole then
        return r.t:suspect("the baseline is broken: the change was not made", { seen = lacks })
    end
    local state = settle.watch(r, r.keeps, function()
        return make(r, spec.change)
    end)
    if not state.before then
        return refused(r, spec, state)
    end
    if spec.refused then
        r.t:fail("Incus accepts the change", { clause = "Incus refuses it: " .. spec.change.what })
    end
    judge(r, spec, state)
    undo(r, state.before)
    if r.t:verdict() == "PASS" then
        r.t:pass("the change is viable", { answer = "VIABLE: " .. interruption(r, state) .. (r.unasked or "") })
    end
end

-- Why a change is not rehearsed on a live network, or nil. Notes what its keys are before.
local function unfit(r, change)
    if change.egress or change.ingress then
        return "an ACL may be attached elsewhere too: it is rehearsed on one of our own only (leave --live out)"
    elseif change.device then
        return nil
    end
    local network = incus.network(r.data.project, r.network)
    local differs = false
    r.before = {}
    for key, after in pairs(change.network) do
        r.before[key] = network and network.config[key] or ""
        differs = differs or r.before[key] ~= after
    end
    return not differs and ("in force on %s already"):format(r.network) or nil
end

local function begin(t, spec)
    local data, part = contract.load(), own.part(t.id)
    local r = {
        t = t,
        data = data,
        part = part,
        name = own.name(part),
        live = t.live ~= nil,
        count = spec.boxes or 2,
        keeps = spec.keeps or {},
        breaks = spec.breaks or {},
    }
    if r.live then
        r.network, r.profile, r.subnet, r.gateway = t.live, data.profile.name, data.subnet, data.gateway
    else
        r.network, r.profile, r.address = r.name, r.name, t.allotted
        r.subnet, r.gateway = inet.network(t.allotted)
    end
    return r
end

local function run(t, spec)
    if not t.allotted and not t.live then
        return t:suspect("no free subnet for a network of its own: the change was not made")
    end
    local r = begin(t, spec)
    local unasked = r.live and unfit(r, spec.change)
    if unasked then
        return t:skip(unasked)
    end
    local ok, trouble = pcall(function()
        local built, why = build(r, spec)
        if not built then
            return t:error("what it is rehearsed on could not be built: " .. why)
        end
        try(r, spec)
    end)
    remove(r)
    if not ok then
        error(trouble, 0)
    end
end

-- -- the probe ----------------------------------------------------------------------------------------

local SECTIONS = { "network", "egress", "ingress", "device" }

local function check_change(change)
    local kinds = 0
    for _, section in ipairs(SECTIONS) do
        kinds = kinds + (type(change) == "table" and change[section] and 1 or 0)
    end
    if kinds ~= 1 or type(change.what) ~= "string" then
        error("rehearse: change: `what`, and one of network, egress, ingress, device expected", 3)
    end
end

local function check_questions(list, field)
    for _, one in ipairs(list or {}) do
        if type(one) ~= "table" or type(one.what) ~= "string" or type(one.specs) ~= "function" then
            error(("rehearse: %s: questions expected (docs/rehearse.md)"):format(field), 3)
        end
    end
end

--- A probe that rehearses one change.
-- @param spec
--   id, title, audit: as of every probe
--   boxes: 2, or 1 where no question needs a sibling; 2 if left out
--   before: { network = {}, egress = {}, ingress = {} }: where the before-state is not the contract's
--   change: { what = text, and one of network = { KEY = VALUE } to be set, egress or ingress = { RULE } to be
--     added to the ACL, device = { KEY = VALUE } to be set on box a's NIC }
--   breaks: questions (module `question`) that must work before and fail after
--   keeps: questions that must work before and after; at least one
--   refused: true where the right answer is that Incus refuses the change
function rehearse.probe(spec)
    check_change(spec.change)
    check_questions(spec.breaks, "breaks")
    check_questions(spec.keeps, "keeps")
    if not spec.keeps or #spec.keeps == 0 then
        error("rehearse: keeps: at least one question expected", 2)
    end
    return {
        id = spec.id,
        title = spec.title,
        audit = spec.audit,
        needs = NEEDS,
        run = function(t)
            run(t, spec)
        end,
    }
end

return setmetatable(rehearse, {
    __call = function(_, spec)
        return rehearse.probe(spec)
    end,
})
