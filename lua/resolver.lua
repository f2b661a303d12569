--- Names asked of one resolver, from a place (a box or the host), by our own queries: neither the box's
-- hosts file nor its resolver library has a say in it.
local dns = require "dns"
local task = require "task"

local resolver = {}

local RETRY_PAUSE = 1000

-- What a well-formed reply says.
local function status_of(reply, kind)
    if reply.rcode == "NOERROR" and #dns.answers(reply, kind) > 0 then
        return "resolved"
    elseif reply.rcode == "NOERROR" or reply.rcode == "NXDOMAIN" or reply.rcode == "REFUSED" then
        return "unresolved"
    end
    return "failed"
end

local function read_reply(seen, query)
    local bytes = dns.unhex(seen.data or "") or ""
    if query.proto == "tcp" then
        if bytes == "" then
            return nil, "no reply on the connection"
        end
        local message, why = dns.unframed(bytes)
        if not message then
            return nil, why
        end
        bytes = message
    end
    return dns.reply(bytes, query.id, query.name, query.kind)
end

local function result_of(seen, query)
    local result = { query = query, seen = seen, answers = {} }
    if seen.outcome ~= "reachable" then
        result.status = seen.outcome
        return result
    end
    local reply, why = read_reply(seen, query)
    if not reply then
        result.status, result.why = "malformed", why
        return result
    end
    result.rcode = reply.rcode
    result.answers = dns.answers(reply, query.kind)
    result.status = status_of(reply, query.kind)
    return result
end

local function spec_of(query, ms)
    local message = dns.query(query.id, query.name, query.kind)
    return {
        proto = query.proto,
        to = query.server,
        port = 53,
        ms = ms,
        send = dns.hex(query.proto == "tcp" and dns.framed(message) or message),
        recv = 1024,
        framed = query.proto == "tcp" and 1 or nil,
    }
end

--- The specs of queries, to be made part of a stage.
-- @param queries array of { server, proto ("udp" or "tcp"), name, kind }; an id is put into each
-- @param ms budget of each
-- @return array of specs, as of guest.spec
function resolver.specs(queries, ms)
    local out = {}
    for i, query in ipairs(queries) do
        query.id = math.random(0, 65535)
        out[i] = spec_of(query, ms)
    end
    return out
end

--- Reads what was seen of the specs of resolver.specs.
-- @return array of results: { query, seen, status, rcode, answers, why }. status: resolved (answers
--   holds addresses or names), unresolved (it says that there is none), failed (SERVFAIL and such),
--   malformed (why), or the attempt's outcome when nothing came back
function resolver.results(seen, queries)
    local out = {}
    for i, query in ipairs(queries) do
        out[i] = result_of(seen[i], query)
    end
    return out
end

--- Asks side by side, and once more, a second later, those that got no answer.
-- @param place a box, or the host
-- @param queries as of resolver.specs
-- @param ms budget of each
-- @return as resolver.results
function resolver.ask(place, queries, ms)
    local results = resolver.results(place:attempt({ resolver.specs(queries, ms) })[1], queries)
    local again, places = {}, {}
    for i, result in ipairs(results) do
        if result.status ~= "resolved" and result.status ~= "unresolved" then
            again[#again + 1], places[#places + 1] = result.query, i
        end
    end
    if #again > 0 then
        task.sleep(RETRY_PAUSE)
        local second = resolver.results(place:attempt({ resolver.specs(again, ms) })[1], again)
        for j, result in ipairs(second) do
            result.retried = true
            results[places[j]] = result
        end
    end
    return results
end

--- A result in words, for what is shown.
function resolver.text(result)
    if result.status == "resolved" then
        return ("%s: %s"):format(result.rcode, table.concat(result.answers, " "))
    elseif result.rcode then
        return tostring(result.rcode)
    elseif result.why then
        return result.why
    end
    return require("outcome").text(result.seen)
end

--- The command that asks the same by hand; `dig` must be there.
function resolver.question(query)
    local name = query.kind == "PTR" and "-x " .. query.address or query.name .. " " .. query.kind
    local tcp = query.proto == "tcp" and "+tcp " or ""
    return ("dig %s+time=4 +tries=1 @%s %s"):format(tcp, query.server, name)
end

return resolver
