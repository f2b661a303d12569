-- A sibling's name, asked of the gateway's own resolver, and of every other resolver on an address of the host's
-- that answers the host: bare, with the network's domain, and by reverse lookup; over UDP and TCP. Never the box's own
-- name: its hosts file would answer that. A resolver that resolves nobody proves nothing, so the gateway's must resolve
-- a public name before and after.
local contract = require "contract"
local host = require "host"
local inet = require "inet"
local isolated = require "isolated"
local resolver = require "resolver"
local siblings = require "siblings"
local targets = require "targets"

local CLAUSE = "no resolver of the host tells a box its siblings' names"
local DNS = 53

-- What is asked about the sibling.
local function questions(t, server, sibling, address)
    local out = {}
    for _, proto in ipairs { "udp", "tcp" } do
        for _, name in ipairs { sibling.name, sibling.name .. "." .. t.contract.network.domain } do
            out[#out + 1] = { server = server, proto = proto, name = name, kind = "A" }
        end
        local reverse = inet.reverse(address)
        out[#out + 1] = { server = server, proto = proto, name = reverse, kind = "PTR", address = address }
    end
    return out
end

local function public(t, server, proto)
    local name = t.contract.allowed.names[1]
    return { server = server or t.contract.gateway, proto = proto or "udp", name = name, kind = "A" }
end

-- The other addresses of the host on which a resolver answers the host, whatever it says, as the box says them.
local function other_resolvers(t, addresses, link)
    local queries, places = {}, {}
    for _, place in ipairs(targets.addresses(t.contract, addresses, link)) do
        local own = inet.same(place.address, t.contract.gateway)
        if not own and contract.excluded(t.contract, place.address, DNS) then
            t:skip(("a resolver on %s: the contract excludes it"):format(place.address))
        elseif not own then
            for _, proto in ipairs { "udp", "tcp" } do
                queries[#queries + 1] = public(t, place.host_address or place.address, proto)
                places[#places + 1] = place.address
            end
        end
    end
    local seen, found, there = host:attempt { resolver.specs(queries, t.contract.budgets.control) }, {}, {}
    for i, result in ipairs(resolver.results(seen[1], queries)) do
        if result.rcode and not there[places[i]] then
            there[places[i]] = true
            found[#found + 1] = places[i]
        end
    end
    return found
end

local function control(t, when, results)
    local passed = results[1].status == "resolved"
    t:control("the gateway's resolver answers a public name " .. when, passed, { seen = resolver.text(results[1]) })
    return passed
end

-- One run: a public name, the sibling's, a public name again. nil when a control failed.
local function ask_once(t, box, queries)
    local ms = t.contract.budgets.dns
    local before, after = { public(t) }, { public(t) }
    local seen = box:attempt { resolver.specs(before, ms), resolver.specs(queries, ms), resolver.specs(after, ms) }
    local first = control(t, "before", resolver.results(seen[1], before))
    local last = control(t, "after", resolver.results(seen[3], after))
    return first and last and resolver.results(seen[2], queries) or nil
end

-- Whether an answer is about the sibling: its address, or its name.
local function gives_away(result, sibling, address)
    for _, answer in ipairs(result.answers) do
        if inet.same(answer, address) or answer:lower():find(sibling.name, 1, true) == 1 then
            return true
        end
    end
    return false
end

-- What says nothing at another address than the gateway's gives nobody away: there the wall may stand before it.
local SHUT = { silent = true, refused = true, unreachable = true }

local function judged(t, result, sibling, address)
    if result.status == "unresolved" then
        return "PASS"
    elseif SHUT[result.status] and result.query.server ~= t.contract.gateway then
        return "PASS", "a resolver answers the host there, and not the box"
    elseif result.status == "inconclusive" then
        return "ERROR", "the instrument failed"
    elseif result.status ~= "resolved" then
        return "SUSPECT", "neither an answer nor a no"
    elseif gives_away(result, sibling, address) then
        return "FAIL", "the answer gives the sibling away"
    end
    return "SUSPECT", "an answer, but not about the sibling: a resolver that answers anything?"
end

local function observe(t, box, sibling, address, result)
    local verdict, reason = judged(t, result, sibling, address)
    local query = result.query
    t:record(verdict, ("%s asks %s for %s (%s over %s)"):format(box.label, query.server, query.name, query.kind,
        query.proto), {
        clause = CLAUSE,
        seen = resolver.text(result),
        reason = reason,
        ms = result.seen.ms,
        by_hand = box:by_hand_text(resolver.question(query)),
    })
end

local function run(t, box, sibling)
    local mine, theirs = siblings.ground(t, box, sibling, CLAUSE)
    if not mine then
        return
    elseif not isolated.online(t, box, mine) then
        return t:suspect(box.label .. " does not reach the public internet", { clause = CLAUSE })
    end
    local addresses, why = host.addresses()
    if not addresses then
        return t:error("the host's addresses: " .. why)
    end
    local queries = questions(t, t.contract.gateway, sibling, theirs.address)
    for _, server in ipairs(other_resolvers(t, addresses, mine.link)) do
        local more = questions(t, server, sibling, theirs.address)
        table.move(more, 1, #more, #queries + 1, queries)
    end
    local results = ask_once(t, box, queries) or ask_once(t, box, queries)
    if not results then
        return t:suspect("the gateway's resolver does not resolve a public name: it resolves nobody", {
            clause = CLAUSE,
        })
    end
    for _, result in ipairs(results) do
        observe(t, box, sibling, theirs.address, result)
    end
end

return {
    id = "c.names",
    title = "no resolver of the host names a box's siblings",
    audit = "A4",
    needs = { "box.exec", "host.connect" },
    boxes = 2,
    run = run,
}
