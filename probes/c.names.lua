-- A sibling's name, asked of the gateway's own resolver: bare, with the network's domain, and by reverse
-- lookup; over UDP and TCP. Never the box's own name: its hosts file would answer that. A resolver that
-- resolves nobody proves nothing, so it must resolve a public name before and after.
local inet = require "inet"
local isolated = require "isolated"
local resolver = require "resolver"
local task = require "task"

local CLAUSE = "the gateway's resolver does not tell a box its siblings' names"

-- What is asked about the sibling.
local function questions(t, sibling, address)
    local server, out = t.contract.gateway, {}
    for _, proto in ipairs { "udp", "tcp" } do
        for _, name in ipairs { sibling.name, sibling.name .. "." .. t.contract.network.domain } do
            out[#out + 1] = { server = server, proto = proto, name = name, kind = "A" }
        end
        local reverse = inet.reverse(address)
        out[#out + 1] = { server = server, proto = proto, name = reverse, kind = "PTR", address = address }
    end
    return out
end

local function public(t)
    return { { server = t.contract.gateway, proto = "udp", name = t.contract.allowed.names[1], kind = "A" } }
end

local function control(t, when, results)
    local passed = results[1].status == "resolved"
    t:control("the gateway's resolver answers a public name " .. when, passed, { seen = resolver.text(results[1]) })
    return passed
end

-- One run: a public name, the sibling's, a public name again. nil when a control failed.
local function ask_once(t, box, queries)
    local ms = t.contract.budgets.dns
    local before, after = public(t), public(t)
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

local function judged(result, sibling, address)
    if result.status == "unresolved" then
        return "PASS"
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
    local verdict, reason = judged(result, sibling, address)
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
    local mine, theirs = table.unpack(task.map({ box, sibling }, function(one)
        return one:identity() or false
    end))
    if not mine or not theirs then
        return t:error("a box could not be asked who it is")
    elseif not mine.address or not theirs.address then
        return t:suspect("a box has no address on the boxes' network", { clause = CLAUSE })
    elseif not isolated.online(t, box, mine) then
        return t:suspect(box.label .. " does not reach the public internet", { clause = CLAUSE })
    end
    local queries = questions(t, sibling, theirs.address)
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
    title = "the gateway's resolver does not name a box's siblings",
    audit = "A4",
    needs = { "box.exec" },
    boxes = 2,
    run = run,
}
