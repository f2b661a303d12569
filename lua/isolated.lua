--- Control, negative, control: the only way into the judging table (judge).
--
-- A measurement counts only when, within one run of the program, A reached the public internet before
-- and after; and where the target is a box B of ours, when B was up: another address, MAC and machine-id
-- than A's, the public internet reached from the very address probed, before and after, and the target port held
-- there by our own program, in the foreground of a bounded exec. What fails is retried once; then SUSPECT.
local arrivals = require "arrivals"
local guest = require "guest"
local host = require "host"
local inet = require "inet"
local judge = require "judge"
local outcome = require "outcome"
local task = require "task"
local witness = require "witness"

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

-- Whether an address is the place's own: then what answers there is the place itself.
local function holds(info, address)
    return inet.held(info and info.addresses or {}, address)
end

-- Whether one of a control stage's attempts came through, to an address that is not the place's own.
local function reached(data, stage, info)
    for i, place in ipairs(data.allowed.addresses) do
        if stage[i].outcome == "reachable" and not holds(info, place.address) then
            return true
        end
    end
    return false
end

local function words(data, stage, info)
    local out = {}
    for i, place in ipairs(data.allowed.addresses) do
        local own = holds(info, place.address) and " (it holds that address itself)" or ""
        out[i] = outcome.text(stage[i]) .. own
    end
    return table.concat(out, ", ")
end

-- Whether a place reaches the public internet now; recorded as a control.
local function online(t, place, identity, try)
    local from, info = identity and identity.address, identity and identity.info
    local stage = place:attempt({ control_specs(t.contract, from) })[1]
    local up = reached(t.contract, stage, info)
    t:control(place.label .. " reaches the public internet", up, { seen = words(t.contract, stage, info), try = try })
    return up
end

--- Whether a place reaches the public internet; asked once more if not, and recorded as controls.
-- @param t @param place a box or the host
-- @param identity the box's { address, info }: bound to that address, and not to be met at its own; may be nil
-- @return boolean
function isolated.online(t, place, identity)
    return online(t, place, identity, 1) or online(t, place, identity, 2)
end

-- One control of a round: recorded; false ends the round's claim to be judged.
local function demand(t, round, passed, what, seen)
    t:control(what, passed, { seen = seen, try = round.try })
    if not passed and not round.why then
        round.why = ("%s: it is not so%s"):format(what, seen and " (" .. seen .. ")" or "")
    end
    return passed
end

-- One control stage of a round: whether it came through.
local function demand_online(t, round, label, stage, info)
    demand(t, round, reached(t.contract, stage, info), label, words(t.contract, stage, info))
end

-- An attempt's spec as it is sent: a datagram says something of its own, so that a witness can tell it from
-- everybody else's; and what a witness will have told by then is not waited for any longer.
local function as_sent(data, spec, watched)
    local out = {}
    for key, value in pairs(spec) do
        out[key] = value
    end
    if spec.proto == "udp" then
        out.send = spec.send or guest.nonce()
    end
    out.ms = watched and math.min(spec.ms, data.budgets.watched) or spec.ms
    return out
end

-- The measurement itself: A's controls around the negatives and beside them, in one run.
local function attempt(t, options, round)
    local source, identity = options.source, options.identity
    local controls = control_specs(t.contract, identity and identity.address)
    local specs = {}
    for i, target in ipairs(options.targets) do
        specs[i] = as_sent(t.contract, target.spec, round.watched and round.watched[i])
    end
    table.move(controls, 1, #controls, #specs + 1, specs)
    local seen = source:attempt { controls, specs, controls }
    local info, label = identity and identity.info, source.label .. " reaches the public internet "
    round.seen = table.move(seen[2], 1, #options.targets, 1, {})
    demand_online(t, round, label .. "before", seen[1], info)
    demand_online(t, round, label .. "meanwhile", table.move(seen[2], #options.targets + 1, #specs, 1, {}), info)
    demand_online(t, round, label .. "after", seen[3], info)
end

--- The addresses that both of two boxes hold on the boxes' network.
-- @param a @param b identities, as of Box:identity
-- @return array of texts
function isolated.shared(a, b)
    local out = {}
    for _, one in ipairs(a.addresses or {}) do
        for _, other in ipairs(b.addresses or {}) do
            if inet.same(one, other) then
                out[#out + 1] = one
            end
        end
    end
    return out
end

-- What B says of itself must set it apart from A: two boxes with one identity talk past each other.
local function demand_distinct(t, round, a, b)
    local label = "the boxes are two: addresses, MAC and machine-id differ"
    local same = {}
    for _, key in ipairs { "address", "mac", "machine_id" } do
        if not a[key] or not b[key] or a[key] == b[key] then
            same[#same + 1] = ("%s %s and %s"):format(key, tostring(a[key]), tostring(b[key]))
        end
    end
    for _, address in ipairs(isolated.shared(a, b)) do
        same[#same + 1] = ("both hold %s"):format(address)
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
        link = holder.link,
        mark = holder.mark,
    }
    local controls = control_specs(data, holder.address)
    -- Beside the listener too: what watches the link has then something to see.
    local seen = holder.box:attempt { controls, { listen, table.unpack(controls) }, controls }
    return { before = seen[1], listener = seen[2][1], after = seen[3] }
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
    local kept, label = join(), holder.box.label
    local word = kept.listener
    -- One that its time ended, and not its token, may not have been there to the last.
    demand(t, round, word.result == "listened" and word.stopped == "1", label .. " listened all the while",
        word.why or word.errno or word.result)
    local from = label .. " reaches the public internet from that address "
    demand_online(t, round, from .. "before", kept.before, holder.info)
    demand_online(t, round, from .. "after", kept.after, holder.info)
    round.came = arrivals.read(word)
end

-- One round, with a witness around it; round.why says what it lacks to be judged. `whole`: every attempt has its
-- whole time, whatever a witness may tell sooner.
local function measure_once(t, options, try, whole)
    local round = { try = try }
    if options.identity and options.holder and not demand_distinct(t, round, options.identity, options.holder) then
        return round
    end
    round.witness = witness.measured(options, function(watched)
        round.watched = not whole and watched or nil
        local f = options.holder and attempt_held or attempt
        f(t, options, round)
    end)
    if round.witness.eyes or round.witness.why then
        t:control(witness.CONTROL, round.witness.eyes ~= nil, { seen = round.witness.why, try = try })
    end
    return round
end

-- Whether another attempt of the round to the same address was rejected at once with "host unreachable": then
-- a late one is the same wall's, and no failed ARP.
local function rejects(t, options, round, i)
    local address, seen = options.targets[i].spec.to, round.seen[i]
    for j, other in ipairs(round.seen) do
        if j ~= i and options.targets[j].spec.to == address and outcome.is_no_host(other)
            and other.offender == seen.offender and other.ms and other.ms <= t.contract.budgets.routed then
            return true
        end
    end
    return false
end

-- Who else than the table's column has a word: the target's own box, and what a witness told.
local function add_reasons(one, kind, word)
    if word.arrived then
        one.reason = ("%s (%s)"):format(one.reason, word.arrived)
    elseif kind then
        one.reason = ("%s (%s, as the target's box says)"):format(one.reason, kind)
    elseif word.blind and one.verdict ~= "FAIL" and one.verdict ~= "ERROR" then
        one.verdict, one.reason, one.blind = "SUSPECT", word.blind .. ", so it may have arrived", true
    end
end

-- What arrived at B, by the word of our program there: nil, or text.
local function told(options, round, target)
    if not options.holder then
        return nil
    elseif target.mark then
        return arrivals.of_frame(round.came, target, options.sender)
    end
    return arrivals.of(round.came, target.spec.proto, options.sender)
end

-- The table's word on one target of a round whose controls passed.
local function judged(t, options, round, i)
    local target, seen, routed = options.targets[i], round.seen[i], t.contract.budgets.routed
    local kind = told(options, round, target)
    local word = witness.tell(round.witness, options, i)
    target.guarded, target.rejects = options.source.guards, rejects(t, options, round, i)
    target.witness, target.unsent = kind and "arrived" or word.column, word.unsent
    local one = { row = judge.row(seen, target, routed), seen = seen, target = target, story = word.story or word.why }
    one.verdict, one.reason = judge.isolated(seen, target, routed)
    add_reasons(one, kind, word)
    local rests = options.holder and target.witness ~= "absent" -- on the word of the target's box
    if rests and one.verdict == "PASS" and round.came.blind then
        one.verdict = "SUSPECT"
        one.reason = ("%s %s, so its own firewall may have hidden it"):format(
            options.holder.box.label, round.came.blind)
    end
    one.own = options.identity and holds(options.identity.info, target.spec.to)
    if one.own then
        one.verdict, one.reason = "SUSPECT", "the box holds that address itself: it asked itself"
    end
    return one
end

-- ICMP errors that no closed port sends, but a wall does: no network, no host, prohibited.
local WALLS = { ["3/0"] = true, ["3/1"] = true, ["3/9"] = true, ["3/10"] = true, ["3/13"] = true }
local WALLS6 = { ["1/0"] = true, ["1/1"] = true, ["1/3"] = true, ["1/5"] = true, ["1/6"] = true }

-- Whether what was seen may be the target's own answer: a reset, or an ICMP error of its own that a closed
-- port sends. Such a one looks the same whether a wall rejected it or not.
local function may_be_own(one)
    local seen = one.seen
    if not seen.icmp then
        return seen.outcome == "refused"
    end
    local walls = seen.origin == "icmp6" and WALLS6 or WALLS
    return inet.same(seen.offender, one.target.spec.to) and not walls[seen.icmp]
end

-- Who sent the ICMP error: the address asked, or another one.
local function sender(one)
    return inet.same(one.seen.offender, one.target.spec.to) and "the target" or one.seen.offender
end

-- Whether two attempts ended alike: in the same row, by the same ICMP error from the same sender, one that is
-- no answer of the target's own. (At one address the listener's own may be silent: ICMP errors are rationed.)
local function alike(a, b)
    return not may_be_own(a) and a.row == b.row and a.seen.icmp == b.seen.icmp and sender(a) == sender(b)
end

-- Why a target with nobody known behind it, on which the table has no opinion, may be left as a note:
-- nil where it may not, since what was seen may mean that it was let through.
local function excuse(one, all)
    if one.seen.outcome == "silent" then
        return "no answer; nothing is known to be listening there"
    elseif one.row == "unsent" then
        return "nothing left the place it was asked from"
    elseif one.seen.outcome == "unreachable" and not one.seen.icmp and one.seen.call ~= "async" then
        return "nothing left the place it was asked from"
    end
    for _, other in ipairs(all) do
        if not other.target.unjudged and other.verdict == "PASS" and alike(one, other) then
            return "as where a program is listening, so not the target's own answer"
        end
    end
    return nil
end

-- Whether the box simply has no IPv6 to ask with, as the contract wants it.
local function has_no_ipv6(t, one)
    return one.row == "unsent" and one.seen.errno == "ENETUNREACH" and inet.family(one.target.spec.to) == 6
        and t.contract.network.config["ipv6.address"] == "none"
end

-- Whether the box's own firewall swallows what goes to the same address or range: UDP and ICMP are told so
-- (EPERM), TCP's SYN is dropped in silence.
local function is_swallowed(one, all)
    if one.row ~= "silent" or one.target.guarded or one.target.witness then
        return false
    end
    for _, other in ipairs(all) do
        local same = inet.same(other.target.spec.to, one.target.spec.to)
            or one.target.range and other.target.range == one.target.range
        if same and other.row == "unsent" and other.seen.errno == "EPERM" then
            return true
        end
    end
    return false
end

-- The verdict on a target in the light of the others: one with nobody known behind it becomes a note, where it
-- may be one; a silence that the box may have made itself is no proof.
local function soften(t, one, all)
    if one.own or one.blind then
        return
    elseif has_no_ipv6(t, one) then
        one.verdict, one.reason = "NOTE", "the box has no IPv6: nothing was asked"
    elseif one.verdict == "PASS" and is_swallowed(one, all) then
        one.verdict, one.reason = "SUSPECT", "the box's own firewall drops what goes there: it says nothing of the wall"
    elseif one.target.unjudged and one.verdict == "PASS" and not one.target.witness then
        one.verdict = "NOTE"
    elseif one.target.unjudged and one.verdict == "SUSPECT" then
        local why = excuse(one, all)
        one.verdict, one.reason = why and "NOTE" or "SUSPECT", why or one.reason
    end
end

-- Answers that a closed port gives, and a wall that rejects gives just so: one observation for all of them.
-- The table refuses to judge each; together they say what is wanting.
local function gather(t, options, all)
    local found, places = {}, {}
    for _, one in ipairs(all) do
        local open = one.target.unjudged and one.verdict == "SUSPECT" and not one.own and not one.blind
        if open and may_be_own(one) then
            found[#found + 1] = one
            places[#places + 1] = outcome.target(one.target.spec)
        end
    end
    if #found < 2 then
        return
    end
    for _, one in ipairs(found) do
        one.verdict, one.reason = "NOTE", one.reason .. "; judged together with its like"
    end
    t:record("SUSPECT", ("%s was refused at %d places where nobody is known to listen"):format(
        options.source.label, #found), {
        clause = options.clause,
        seen = table.concat(places, ", "),
        reason = "a wall that rejects answers like a closed port behind a hole: let it drop, or name listeners there",
        by_hand = options.source:by_hand(found[1].target.spec),
    })
end

local function observe(t, options, one)
    local target, spec = one.target, one.target.spec
    local details = outcome.details(one.seen, spec)
    details.reason, details.clause = one.reason, target.clause or options.clause
    details.listener = target.listener and true or false
    details.witness = one.story
    if target.by_hand then
        details.by_hand = options.source:by_hand_text(target.by_hand)
    elseif not target.mark then
        details.by_hand = options.source:by_hand(spec)
    end
    t:record(one.verdict, ("%s to %s"):format(options.source.label, target.what or outcome.target(spec)), details)
end

-- Whether a round that was not waited out left a target of which its witness does not know the end.
local function is_early(options, round)
    for i in pairs(round.watched or {}) do
        if not witness.is_told(witness.tell(round.witness, options, i)) then
            return true
        end
    end
    return false
end

--- Measures that none of the targets can be reached, and records one observation for each. Where a witness tells what
-- became of the packets, an answer is waited for only as long as it takes to know (`budgets.watched`,
-- docs/witness.md); where it turns out that it could not, the round is made again, with the whole wait.
-- @param t
-- @param options
--   source: the place A: a box or the host
--   targets: array of { spec (as of guest.spec), what (text; may be left out), listener (a program is known to
--     be listening there), on_link (on A's own link), up (known to be up), unjudged (without a witness silence
--     there is a NOTE: nobody is known to listen), clause, by_hand (words for a shell there), mark and any (a frame's,
--     as of arrivals.of_frame) }. Afterwards `witness` is what one said of it, too: arrived, absent, or nil
--   holder: where the targets are a box B: { box, port } and B's identity; the port is held by our
--     program meanwhile, which watches `link` for frames with the `mark`, where those are given
--   sender: with a holder, how A is recognised among what arrives there, as of arrivals.of
--   identity: A's, as of Box:identity, where A is a box: B must be another, and A's own addresses are no targets
--   clause: what the contract says
function isolated.measure(t, options)
    local round = measure_once(t, options, 1, false)
    if not round.why and is_early(options, round) then
        round = measure_once(t, options, 1, true)
    end
    if round.why and online(t, options.source, options.identity, 2) then
        round = measure_once(t, options, 2, true)
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
        soften(t, one, all)
    end
    gather(t, options, all)
    for _, one in ipairs(all) do
        observe(t, options, one)
    end
end

--- What a measurement between a box and its host stands on: who the box is, and the host's addresses. What
-- cannot be known is recorded.
-- @param t @param box @param clause what the contract says
-- @return the box's identity and host.addresses(); nil when there is nothing to measure
function isolated.ground(t, box, clause)
    local me, why = box:identity()
    if not me then
        return t:error(box.label .. " could not be asked who it is: " .. why)
    elseif not me.address then
        return t:suspect(box.label .. " has no address on the boxes' network", { clause = clause })
    end
    local addresses
    addresses, why = host.addresses()
    if not addresses then
        return t:error("the host's addresses: " .. why)
    end
    return me, addresses
end

--- Finds out, from the host and just before they are relied on, behind which targets somebody answers:
-- sets `listener` there and `unjudged` on the others.
-- @param place the host as a place
-- @param targets as of isolated.measure
-- @param ms how long an answer may take; who takes longer counts as nobody
function isolated.verify(place, targets, ms)
    local specs = {}
    for i, target in ipairs(targets) do
        specs[i] = {}
        for key, value in pairs(target.spec) do
            specs[i][key] = value
        end
        specs[i].ms = ms
        -- A scope names a link as the box calls it; the host's own address needs none of the box's.
        specs[i].to = target.host_address or specs[i].to
    end
    local seen = #specs > 0 and place:attempt({ specs })[1] or {}
    for i, target in ipairs(targets) do
        target.listener = seen[i].outcome == "reachable"
        target.unjudged = not target.listener
        target.verified = outcome.text(seen[i])
    end
end

return isolated
