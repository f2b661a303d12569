--- What one attempt did, in one word. Decided by errno and the ICMP error that carried it, never by prose
-- or an exit code. Pure functions.
--
-- A seen attempt is a table: outcome (reachable, refused, unreachable, silent, unresolved, inconclusive),
-- and where known: errno (name), ms (milliseconds until that fact), call (where the error came from: connect,
-- send, async), icmp ("TYPE/CODE"), origin (icmp, icmp6 or local), offender (who sent that ICMP error), own (the
-- address it was sent from), why (text, with inconclusive).
local outcome = {}

-- errno of an attempt that the kernel reported as failed. The ICMP ones are Linux's icmp_err_convert[]
-- (net/ipv4/icmp.c) and its ICMPv6 counterpart; EPERM is a local firewall's output hook, EACCES a
-- prohibit route or ICMPv6 1/1. (EINVAL: see word_of.)
local WORD = {
    ECONNREFUSED = "refused",
    ECONNRESET = "refused",
    EHOSTUNREACH = "unreachable",
    ENETUNREACH = "unreachable",
    EACCES = "unreachable",
    EPERM = "unreachable",
    EHOSTDOWN = "unreachable",
    ENETDOWN = "unreachable",
    ENONET = "unreachable",
    ENOPROTOOPT = "unreachable",
    EOPNOTSUPP = "unreachable",
    ETIMEDOUT = "silent",
}

-- EINVAL is a blackhole route when connect() says it at once, and misuse anywhere else.
local function word_of(errno, call)
    if errno == "EINVAL" and call == "connect" then
        return "unreachable"
    end
    return WORD[errno or ""]
end

-- The address of the program's `local`: "ADDR:PORT" or "[ADDR]:PORT".
local function address_of(place)
    return place and (place:match("^%[([^%]]+)%]:%d+$") or place:match("^([%d.]+):%d+$"))
end

--- An attempt that could not be made or whose result was lost.
-- @param why text
function outcome.inconclusive(why)
    return { outcome = "inconclusive", why = why }
end

--- What a line of the guest program says (docs/guest.md): tcp, udp, icmp, or a frame, to which nobody answers.
-- @param fact the line's keys and values, texts; nil when it never came
-- @return a seen attempt
function outcome.of_fact(fact)
    if not fact then
        return outcome.inconclusive("no result for this attempt")
    end
    local seen = {
        errno = fact.errno,
        ms = tonumber(fact.ms),
        call = fact.call,
        icmp = fact.icmp,
        offender = fact.from,
        origin = fact.origin,
        own = address_of(fact["local"]),
        data = fact.data,
    }
    if fact.result == "connected" or fact.result == "reply" then
        seen.outcome = "reachable"
    elseif fact.result == "timeout" or fact.result == "sent" then
        seen.outcome = "silent"
    elseif fact.result == "error" and word_of(fact.errno, fact.call) then
        seen.outcome = word_of(fact.errno, fact.call)
    else
        seen.outcome = "inconclusive"
        seen.why = ("%s in %s: %s"):format(tostring(fact.result), fact.call or "?", fact.errno or "?")
    end
    return seen
end

--- What `host.connect` says: TCP from the host by libcurl.
-- @param ms milliseconds, text; nil when the operation itself failed
-- @param errno errno's name, "" when it connected, "timeout" when the budget was over; the operation's
--   message when it failed
function outcome.of_connect(ms, errno)
    if not ms then
        return outcome.inconclusive(errno)
    elseif errno == "" or errno == "timeout" then
        return { outcome = errno == "" and "reachable" or "silent", ms = tonumber(ms) }
    end
    local seen = { ms = tonumber(ms), errno = errno, outcome = word_of(errno, "connect") or "inconclusive" }
    if seen.outcome == "inconclusive" then
        seen.why = "connect: " .. errno
    end
    return seen
end

--- Whether an error was made where the attempt started: the call itself failed (no route, an unreachable
-- route, the place's own firewall), so nothing left it.
function outcome.is_local(seen)
    return seen.errno ~= nil and not seen.icmp and (seen.call == "connect" or seen.call == "send")
end

--- Whether the ICMP error came from the place's own kernel: nobody answered ARP or ND, or its own firewall.
function outcome.is_own(seen)
    return seen.icmp ~= nil and seen.offender ~= nil and seen.offender == seen.own
end

--- Whether the ICMP error says "host unreachable": what a router says when nobody answers its ARP, too.
function outcome.is_no_host(seen)
    return seen.icmp == (seen.origin == "icmp6" and "1/3" or "3/1")
end

--- A seen attempt in words: "refused (ECONNREFUSED, 0.4 ms)".
function outcome.text(seen)
    local facts = {}
    if seen.errno then
        facts[#facts + 1] = outcome.is_local(seen) and ("%s in %s"):format(seen.errno, seen.call) or seen.errno
    end
    if seen.icmp then
        local from = seen.offender and " from " .. seen.offender or ""
        facts[#facts + 1] = ("ICMP %s%s"):format(seen.icmp, from)
    end
    if seen.why and not seen.errno then
        facts[#facts + 1] = seen.why
    end
    if seen.ms then
        facts[#facts + 1] = ("%.1f ms"):format(seen.ms)
    end
    if #facts == 0 then
        return seen.outcome
    end
    return ("%s (%s)"):format(seen.outcome, table.concat(facts, ", "))
end

--- What an attempt went to, in words: "10.88.0.7 tcp 8088".
-- @param spec as of guest.spec
function outcome.target(spec)
    return spec.port and ("%s %s %d"):format(spec.to, spec.proto, spec.port) or ("%s %s"):format(spec.to, spec.proto)
end

--- A seen attempt as the details of an observation.
-- @param seen a seen attempt @param spec as of guest.spec
-- @return a table: seen (text), outcome, errno, call (with errno), ms, icmp, offender, proto, to, port
function outcome.details(seen, spec)
    return {
        seen = outcome.text(seen),
        outcome = seen.outcome,
        errno = seen.errno,
        call = seen.errno and seen.call,
        ms = seen.ms,
        icmp = seen.icmp,
        offender = seen.offender,
        proto = spec.proto,
        to = spec.to,
        port = spec.port,
    }
end

return outcome
