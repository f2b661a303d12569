-- The public internet, by address and by name. The name is asked of a public resolver, so that a dead
-- gateway resolver is c.dns's finding alone.
local resolver = require "resolver"

local CLAUSE = "a box reaches the public internet"

local function by_address(t, box)
    local specs = {}
    for i, place in ipairs(t.contract.allowed.addresses) do
        specs[i] = { proto = "tcp", to = place.address, port = place.port, ms = t.contract.budgets.attempt }
    end
    t:reaches(box, specs, CLAUSE)
end

-- The first public resolver's answer for a name; what the last one said where none answers.
local function lookup(t, box, name)
    local queries = {}
    for i, server in ipairs(t.contract.allowed.resolvers) do
        queries[i] = { server = server, proto = "udp", name = name, kind = "A" }
    end
    local results = resolver.ask(box, queries, t.contract.budgets.dns)
    for _, result in ipairs(results) do
        if result.status == "resolved" then
            return result.answers[1]
        end
    end
    return nil, results[#results]
end

local function by_name(t, box, name)
    local address, result = lookup(t, box, name)
    if not address then
        local verdict = result.status == "inconclusive" and "ERROR" or "FAIL"
        t:record(verdict, ("%s resolves %s through a public resolver"):format(box.label, name), {
            clause = CLAUSE,
            seen = resolver.text(result),
            outcome = "unresolved",
            by_hand = box:by_hand_text(resolver.question(result.query)),
        })
        return
    end
    t:pass(("%s resolves %s to %s"):format(box.label, name, address))
    t:reaches(box, {
        { proto = "tcp", to = address, port = t.contract.allowed.name_port, ms = t.contract.budgets.attempt },
    }, CLAUSE .. ", by name")
end

return {
    id = "c.egress",
    title = "a box reaches the public internet, by address and name",
    audit = "A1",
    needs = { "box.exec" },
    boxes = 1,
    run = function(t, box)
        by_address(t, box)
        for _, name in ipairs(t.contract.allowed.names) do
            by_name(t, box, name)
        end
    end,
}
