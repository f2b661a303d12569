--- "A must not reach T", judged by one table and nothing else. Pure functions.
--
-- Columns: what else is known of the attempt. `arrived` and `absent` are a witness's word on the host
-- (it saw the flow arrive, or it watched and did not); without a witness, `listener` says that a program
-- is known to be listening on T's port, and `nothing` that none is.
local outcome = require "outcome"

local judge = {}

local FAIL, PASS, SUSPECT, ERROR = "FAIL", "PASS", "SUSPECT", "ERROR"

-- Each cell: verdict, reason. A third element is the verdict while T is not known to be up.
local TABLE = {
    reachable = {
        arrived = { FAIL, "the connection completed" },
        absent = { ERROR, "it completed, yet the witness saw nothing: somebody lies" },
        listener = { FAIL, "the connection completed" },
        nothing = { FAIL, "the connection completed" },
    },
    refused = {
        arrived = { FAIL, "it arrived, and was refused there" },
        absent = { PASS, "rejected on the way" },
        listener = { PASS, "rejected on the way: a program is listening there, so the refusal is not the target's" },
        nothing = { SUSPECT, "the target's own reset, or a firewall's: it may have arrived" },
    },
    unreachable_link = {
        arrived = { FAIL, "it arrived, and was answered with an error" },
        absent = { PASS, "it did not arrive" },
        listener = { PASS, "nobody answers there, though a program is listening" },
        nothing = { PASS, "nobody answers there, though the target is up", SUSPECT },
    },
    unreachable_soon = {
        arrived = { FAIL, "it arrived, and was answered with an error" },
        absent = { PASS, "it did not arrive" },
        listener = { PASS, "rejected on the way" },
        nothing = { SUSPECT, "rejected on the way, or no route beyond it" },
    },
    unreachable_late = {
        arrived = { FAIL, "it was let through" },
        absent = { PASS, "it did not arrive" },
        listener = { SUSPECT, "the error came late: it may have been let through to a target that was down" },
        nothing = { SUSPECT, "it may have been let through to nobody" },
    },
    unsent = {
        arrived = { FAIL, "it arrived" },
        absent = { SUSPECT, "nothing left the box: it says nothing of the wall" },
        listener = { SUSPECT, "nothing left the box: it says nothing of the wall" },
        nothing = { SUSPECT, "nothing left the box: it says nothing of the wall" },
    },
    silent = {
        arrived = { FAIL, "it arrived, and was not answered" },
        absent = { PASS, "it did not arrive" },
        listener = { PASS, "no answer, though a program is listening" },
        nothing = { SUSPECT, "no answer, but nobody is known to be there" },
    },
    unresolved = {
        arrived = { ERROR, "the name did not resolve: nothing was asked" },
        absent = { ERROR, "the name did not resolve: nothing was asked" },
        listener = { ERROR, "the name did not resolve: nothing was asked" },
        nothing = { ERROR, "the name did not resolve: nothing was asked" },
    },
    inconclusive = {
        arrived = { ERROR, "the instrument failed" },
        absent = { ERROR, "the instrument failed" },
        listener = { ERROR, "the instrument failed" },
        nothing = { ERROR, "the instrument failed" },
    },
}

-- Whether an attempt ended where it started. That nobody answered ARP on A's own link is no such end: there
-- ARP is the attempt. (`unsent`: a witness saw that nothing left.)
local function is_unsent(seen, target)
    if target.unsent and (seen.outcome == "unreachable" or seen.outcome == "refused" or seen.outcome == "silent") then
        return true
    end
    local failed = seen.outcome == "unreachable" or seen.outcome == "refused"
    if not failed or target.on_link and outcome.is_no_host(seen) then
        return false
    end
    return outcome.is_local(seen) or outcome.is_own(seen)
end

-- Whether an ICMP error may mean that a router let it through: to a link where nobody answered ARP, or
-- onward until its time to live was over.
local function may_be_through(seen)
    return not seen.icmp or outcome.is_no_host(seen)
        or seen.icmp:match("^%d+") == (seen.origin == "icmp6" and "3" or "11")
end

--- The table's row for what was seen.
-- @param seen { outcome, ms, icmp, ... } as of the outcome module
-- @param target { on_link, guarded, rejects, unsent }: whether T is on A's own link; whether A's own kernel is the wall
--   (A is the host), so that an error made there is its doing; whether T's address is known to be rejected
--   at once, so that a late "host unreachable" is no failed ARP;
--   whether a witness saw that nothing of it left A
-- @param routed_ms "host unreachable" later than this may be the host's own failed ARP, in milliseconds. Every
--   other error is a reject, however late: ICMP errors are rationed, and come with a repeated SYN then
function judge.row(seen, target, routed_ms)
    if not target.guarded and is_unsent(seen, target) then
        return "unsent"
    elseif seen.outcome ~= "unreachable" then
        return seen.outcome
    elseif target.on_link then
        return "unreachable_link"
    end
    local soon = seen.ms and seen.ms <= routed_ms
    local rejected = target.rejects and outcome.is_no_host(seen)
    return (soon or rejected or not may_be_through(seen)) and "unreachable_soon" or "unreachable_late"
end

--- The table's column for what is known of the target.
-- @param target { listener, witness }: witness is "arrived", "absent" or nil
function judge.column(target)
    return target.witness or (target.listener and "listener" or "nothing")
end

--- One cell.
-- @param row, column as of judge.row and judge.column
-- @param up whether T is known to be up
-- @return verdict, reason. Throws on a row or a column there is none of
function judge.cell(row, column, up)
    local cell = (TABLE[row] or error(("judge: no row %s"):format(tostring(row)), 2))[column]
    if not cell then
        error(("judge: no column %s"):format(tostring(column)), 2)
    end
    if cell[3] and not up then
        return cell[3], "nobody answers there, and nobody is known to be there"
    end
    return cell[1], cell[2]
end

--- The verdict on one attempt to reach what must not be reached.
-- @param seen { outcome, ms }
-- @param target { on_link, guarded, rejects, unsent, listener, witness, up }
-- @param routed_ms see judge.row
-- @return verdict, reason
function judge.isolated(seen, target, routed_ms)
    return judge.cell(judge.row(seen, target, routed_ms), judge.column(target), target.up or target.listener)
end

-- Strongest first. A measured failure stands whatever else went wrong beside it; then what could not be
-- measured; a NOTE alone is a NOTE, and SKIP only when nothing else was said.
local RANK = { FAIL = 1, VETO = 2, ERROR = 3, SUSPECT = 4, PASS = 5, NOTE = 6, SKIP = 7 }

--- One verdict out of many: FAIL, VETO, ERROR, SUSPECT, PASS, NOTE, SKIP, the first of these that occurs.
-- @param verdicts array; empty is ERROR: a probe that observed nothing proved nothing
function judge.worst(verdicts)
    local best = nil
    for _, verdict in ipairs(verdicts) do
        local rank = RANK[verdict] or error(("judge: no verdict %s"):format(tostring(verdict)), 2)
        if not best or rank < RANK[best] then
            best = verdict
        end
    end
    return best or "ERROR"
end

return judge
