-- The resolver that the network gives its boxes: public names, asked of the gateway over UDP and TCP, and of
-- the resolver that the box itself is configured with.
local contract = require "contract"
local resolver = require "resolver"

local CLAUSE = "the gateway's resolver answers public names"
local OWN_CLAUSE = "the resolver a box is configured with answers public names"

local function queries_for(t, server, protos, clause)
    local out = {}
    for _, name in ipairs(t.contract.allowed.names) do
        for _, proto in ipairs(protos) do
            out[#out + 1] = { server = server, proto = proto, name = name, kind = "A", clause = clause }
        end
    end
    return out
end

local function observe(t, box, result)
    local query = result.query
    local verdict = result.status == "resolved" and "PASS" or result.status == "inconclusive" and "ERROR" or "FAIL"
    t:record(verdict, ("%s asks %s for %s over %s"):format(box.label, query.server, query.name, query.proto), {
        clause = query.clause,
        seen = resolver.text(result),
        outcome = result.seen.outcome,
        errno = result.seen.errno,
        ms = result.seen.ms,
        by_hand = box:by_hand_text(resolver.question(query)),
    })
end

-- The queries to the box's own resolvers; none where the gateway is the only one.
local function own_queries(t, box)
    local info, why = box:info()
    if not info then
        t:error(box.label .. " could not be asked for its resolvers: " .. why)
        return {}
    elseif #info.nameservers == 0 then
        t:fail(box.label .. " has no resolver configured", { clause = OWN_CLAUSE })
    end
    local out = {}
    for _, server in ipairs(info.nameservers) do
        if contract.excluded(t.contract, server, 53) then
            t:skip(("%s asks %s, its own resolver: the contract excludes it"):format(box.label, server))
        elseif server ~= t.contract.gateway then
            table.move(queries_for(t, server, { "udp" }, OWN_CLAUSE), 1, 8, #out + 1, out)
        end
    end
    return out
end

return {
    id = "c.dns",
    title = "the gateway's resolver answers public names",
    audit = "A5",
    needs = { "box.exec" },
    boxes = 1,
    run = function(t, box)
        local queries = queries_for(t, t.contract.gateway, { "udp", "tcp" }, CLAUSE)
        local own = own_queries(t, box)
        table.move(own, 1, #own, #queries + 1, queries)
        for _, result in ipairs(resolver.ask(box, queries, t.contract.budgets.dns)) do
            observe(t, box, result)
        end
    end,
}
