--- Control, negative, control: the only way into the judging table (judge).
--
-- A measurement counts only when, within one run of the program, A reached the public internet before
-- and after; and where the target is a box B of ours, when B was up: another address, MAC and machine-id
-- than A's, the public internet reached from the very address probed, before and after, and the target port held
-- there by our own program, in the foreground of a bounded exec. What fails is retried once; then SUSPECT.
local guest = require "guest"
local judge = require "judge"
local outcome = require "outcome"
local task = require "task"

local isolated = {}

-- The specs that reach the public internet, bound to an address where one is given.
local function control_specs(data, from)
    local out = {}
    for i, place in ipairs(data.allowed.addresses) do
        out[i] = {
            proto = "tcp",
            to = place.address,
            port = place.port,
            ms = data.budgets.control,
            from = from,
        }
    end
    return out
end

-- Whether one of a control stage's attempts came through.
local function reached(stage)
    for _, seen in ipairs(stage) do
        if seen.outcome == "reachable" then
            return true
        end
    end
    return false
end

local function words(stage)
    local out = {}
    for i, seen in ipairs(stage) do
        out[i] = outcome.text(seen)
    end
    return table.concat(out, ", ")
end

-- Whether a place reaches the public internet now; recorded as a control.
local function online(t, place, from, try)
    local stage = place:attempt({ control_specs(t.contract, from) })[1]
    t:control(place.label .. " reaches the public internet", reached(stage), { seen = words(stage), try = try })
    return reached(stage)
end

--- Whether a place reaches the public internet; asked once more if not, and recorded as controls.
-- @param t @param place a box or the host @param from the address to be bound to; may be nil
-- @return boolean
function isolated.online(t, place, from)
    return online(t, place, from, 1) or online(t, place, from, 2)
end

-- One control of a round: recorded; false ends the round's claim to be judged.
local function demand(t, round, passed, what, seen)
    t:control(what, passed, { seen = seen, try = round.try })
    if not passed and not round.why then
        round.why = ("%s: it is not so%s"):format(what, seen and " (" .. seen .. ")" or "")
    end
    return passed
end

-- The measurement itself: A's controls around the negatives, in one run.
local function attempt(t, options, round)
    local specs = {}
    for i, target in ipairs(options.targets) do
        specs[i] = target.spec
    end
    local source = options.source
    local seen = source:attempt { control_specs(t.contract), specs, control_specs(t.contract) }
    round.seen = seen[2]
    demand(t, round, reached(seen[1]), source.label .. " reaches the public internet before", words(seen[1]))
    demand(t, round, reached(seen[3]), source.label .. " reaches the public internet after", words(seen[3]))
end

-- What B says of itself must set it apart from A: two boxes with one identity talk past each other.
local function demand_distinct(t, round, a, b)
    local label = "the boxes are two: address, MAC and machine-id differ"
    local same = {}
    for _, key in ipairs { "address", "mac", "machine_id" } do
        if not a[key] or not b[key] or a[key] == b[key] then
            same[#same + 1] = ("%s %s and %s"):format(key, tostring(a[key]), tostring(b[key]))
        end
    end
    return demand(t, round, #same == 0, label, #same > 0 and table.concat(same, ", ") or nil)
end

-- B's run: its controls around the listener, all bound to the very address probed.
local function hold(t, holder, token)
    local data = t.contract
    local listen = {
        proto = "listen",
        port = holder.port,
        bind = holder.address,
        ms = data.budgets.listen,
        token = token,
    }
    local controls = control_specs(data, holder.address)
    local seen = holder.box:attempt { controls, { listen }, controls }
    return { before = seen[1], listener = seen[2][1], after = seen[3] }
end

-- The addresses from which something arrived at the listener, by protocol: { tcp = { ADDR = true } }.
local function arrivals(listener)
    local out = { tcp = {}, udp = {} }
    for entry in (listener.seen or ""):gmatch("[^;]+") do
        local proto, address = entry:match("^(%l+):%[?([^%]]-)%]?:%d+")
        if out[proto] then
            out[proto][address] = true
        end
    end
    return out
end

-- The round's attempt while B holds the port.
local function attempt_held(t, options, round)
    local holder, data = options.holder, t.contract
    local token = guest.nonce()
    local join = task.spawn(hold, t, holder, token)
    local await = {
        proto = "await",
        port = holder.port,
        to = holder.address,
        token = token,
        ms = data.budgets.control + data.budgets.attempt,
    }
    local ready = holder.box:attempt({ { await } })[1][1]
    local held = demand(t, round, ready.result == "ready",
        ("%s holds port %d on %s"):format(holder.box.label, holder.port, holder.address),
        ready.why or ready.errno)
    if held then
        attempt(t, options, round)
    end
    holder.box:attempt { { { proto = "stop", port = holder.port, to = holder.address, token = token } } }
    local kept = join()
    demand(t, round, kept.listener.result == "listened", holder.box.label .. " listened all the while",
        kept.listener.why or kept.listener.errno)
    demand(t, round, reached(kept.before),
        holder.box.label .. " reaches the public internet from that address before", words(kept.before))
    demand(t, round, reached(kept.after),
        holder.box.label .. " reaches the public internet from that address after", words(kept.after))
    round.arrived = arrivals(kept.listener)
end

-- One round; round.why says what it lacks to be judged.
local function measure_once(t, options, try)
    local round = { try = try }
    if not options.holder then
        attempt(t, options, round)
        return round
    end
    if options.identity and not demand_distinct(t, round, options.identity, options.holder) then
        return round
    end
    attempt_held(t, options, round)
    return round
end

-- The table's word on one target of a round whose controls passed.
local function judged(t, options, round, i)
    local target, seen = options.targets[i], round.seen[i]
    local arrived = options.holder and round.arrived[target.spec.proto]
    if arrived and options.source_address and arrived[options.source_address] then
        target.witness = "arrived"
    end
    local verdict, reason = judge.isolated(seen, target, t.contract.budgets.routed)
    return { verdict = verdict, reason = reason, seen = seen, target = target }
end

-- Who sent the ICMP error: the address asked, or another one.
local function sender(one)
    return one.seen.offender == one.target.spec.to and "the target" or one.seen.offender
end

-- Whether two attempts ended alike: the same word, by the same ICMP error from the same sender. (At one
-- address the listener's own may be silent: the kernel rations its ICMP errors.)
local function alike(a, b)
    return a.seen.outcome == b.seen.outcome and a.seen.icmp == b.seen.icmp and sender(a) == sender(b)
end

-- Why a target with nobody known behind it, on which the table has no opinion, may be left as a note:
-- nil where it may not, since what was seen may mean that it was let through.
local function excuse(one, all)
    if one.seen.outcome == "silent" then
        return "no answer; nothing is known to be listening there"
    elseif one.seen.outcome == "unreachable" and not one.seen.icmp then
        return "nothing left the place it was asked from"
    end
    for _, other in ipairs(all) do
        if not other.target.unjudged and other.verdict == "PASS" and alike(one, other) then
            return "as where a program is listening, so not the target's own answer"
        end
    end
    return nil
end

-- Turns the verdict on an unjudged target into a note, where it may be one.
local function soften(one, all)
    if one.verdict == "PASS" then
        one.verdict = "NOTE"
    elseif one.verdict == "SUSPECT" then
        local why = excuse(one, all)
        one.verdict, one.reason = why and "NOTE" or "SUSPECT", why or one.reason
    end
end

local function observe(t, options, one)
    local target, spec = one.target, one.target.spec
    local details = outcome.details(one.seen, spec)
    details.reason, details.clause = one.reason, target.clause or options.clause
    details.listener = target.listener and true or false
    details.by_hand = options.source:by_hand(spec)
    t:record(one.verdict, ("%s to %s"):format(options.source.label, target.what or outcome.target(spec)), details)
end

--- Measures that none of the targets can be reached, and records one observation for each.
-- @param t
-- @param options
--   source: the place A: a box or the host
--   source_address: A's address, to be recognised among a listener's arrivals; may be nil
--   targets: array of { spec (as of guest.spec), what (text; may be left out), listener (a program is known to
--     be listening there), on_link (on A's own link), up (known to be up), unjudged (silence there is a
--     NOTE: nobody is known to listen), clause }
--   holder: where the targets are a box B: { box, address, mac, machine_id, port }; its port is held
--     by our program meanwhile
--   identity: A's { address, mac, machine_id }, where A is a box and B must be another
--   clause: what the contract says
function isolated.measure(t, options)
    local round = measure_once(t, options, 1)
    if round.why and online(t, options.source, nil, 2) then
        round = measure_once(t, options, 2)
    end
    if round.why then
        t:suspect("a control failed twice: " .. round.why, { clause = options.clause })
        return
    end
    local all = {}
    for i = 1, #options.targets do
        all[i] = judged(t, options, round, i)
    end
    for _, one in ipairs(all) do
        if one.target.unjudged then
            soften(one, all)
        end
        observe(t, options, one)
    end
end

--- Finds out, from the host and just before they are relied on, behind which targets somebody answers:
-- sets `listener` there and `unjudged` on the others.
-- @param host the host as a place
-- @param targets as of isolated.measure
function isolated.verify(host, targets)
    local specs = {}
    for i, target in ipairs(targets) do
        specs[i] = {}
        for key, value in pairs(target.spec) do
            specs[i][key] = value
        end
        -- A scope names a link as the box calls it; the host's own address needs none of the box's.
        specs[i].to = target.host_address or specs[i].to
    end
    local seen = #specs > 0 and host:attempt({ specs })[1] or {}
    for i, target in ipairs(targets) do
        target.listener = seen[i].outcome == "reachable"
        target.unjudged = not target.listener
        target.verified = outcome.text(seen[i])
    end
end

return isolated
