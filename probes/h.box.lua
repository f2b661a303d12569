-- A look inside one running box of somebody's: nothing is pushed or left, four fixed questions are asked there, and
-- what comes back is the guest's word.
local cjson = require "cjson"
local curl = require "curl"
local host = require "host"
local incus = require "incus"
local inet = require "inet"
local own = require "own"
local stack = require "stack"
local task = require "task"

local WORD = "by the box's own word"
local COMMAND_MISSING = 127

-- The first running box of an operator's on the network, by name, and the boxes that do not run.
local function choose(data, instances)
    local chosen, others = nil, {}
    table.sort(instances, function(a, b)
        return a.name < b.name
    end)
    for _, instance in ipairs(instances) do
        -- One of a run's own may be starting, or going.
        local operators = instance.box and not (instance.config or {})[own.TAG] and next(stack.nics(data, instance))
        if operators and instance.status == "Running" then
            chosen = chosen or instance
        elseif operators then
            others[#others + 1] = ("%s is %s"):format(instance.name, tostring(instance.status):lower())
        end
    end
    return chosen, others
end

-- Asks; and once more, a second later, where `works` does not hold: one observation is not a verdict.
local function look(box, works, ...)
    local result, why
    for _ = 1, 2 do
        result, why = incus.look(box.project, box.name, ...)
        if not result or works(result) then
            break
        end
        task.sleep(1000)
    end
    return result, why
end

local function by_hand(box, words)
    return ("incus exec %s -T -n --project %s -- %s"):format(box.name, box.project, words)
end

-- Ended by `timeout` in the box.
local function is_late(result)
    return result.code == 124 or result.code == 137
end

-- Why a command in the box gave no answer; nil when it gave one.
local function no_answer(result, why)
    if not result then
        return why
    elseif result.code == COMMAND_MISSING or result.code == 126 then
        return "the box has no such command"
    elseif is_late(result) then
        return "the box did not answer in time"
    elseif result.truncated then
        return "it wrote too much"
    end
    return nil
end

-- One try to reach a place from the box. @return as curl.read, with place
local function try(box, place)
    local result, why = incus.look(box.project, box.name, "internet", place.address, place.port)
    why = no_answer(result, why)
    local said = result and not why and curl.read(result.stderr) or { outcome = "inconclusive", why = why }
    said.place = place
    return said
end

local function not_reached(t, box, said)
    local place = said.place
    local to = ("%s port %d"):format(place.address, place.port)
    if said.outcome == "inconclusive" then
        return stack.unasked(t, ("whether %s reaches %s"):format(box.name, to), said.why)
    end
    local from_host = host.connect(place.address, place.port, 3000).outcome
    stack.dirty(t, ("%s does not reach %s: %s, %s; from the host: %s"):format(
        box.name, to, said.outcome, WORD, from_host), {
        why = from_host == "reachable" and "routing: the host has a way out and its boxes have none"
            or "routing: the host itself has no way out",
        mend = from_host == "reachable" and "what h.forward, h.chains, h.bridge and h.squat say; then: incus restart "
            .. box.name or "ip route; ping the default gateway",
        seen = said.errno,
        by_hand = by_hand(box, ("curl -q -4 -v -sS --noproxy '*' -o /dev/null -m 5 http://%s:%d/"):format(
            place.address, place.port)),
    })
end

-- One public address that is reached is enough. The first alone, since a resolver's port keeps curl waiting for
-- HTTP; where that is not reached, a second later, all.
local function internet(t, box, places)
    local tries = { try(box, places[1]) }
    if tries[1].outcome ~= "reachable" and tries[1].outcome ~= "inconclusive" then
        task.sleep(1000)
        tries = task.map(places, function(place)
            return try(box, place)
        end)
    end
    for _, said in ipairs(tries) do
        if said.outcome == "reachable" then
            return t:pass(("%s reaches %s port %d, %s"):format(box.name, said.place.address, said.place.port, WORD))
        end
    end
    task.map(tries, function(said)
        not_reached(t, box, said)
    end)
end

local function names(t, box, name)
    local result, why = look(box, function(one)
        return one.code == 0
    end, "names", name)
    local late = result and is_late(result)
    why = not late and no_answer(result, why)
    if why then
        stack.unasked(t, ("whether %s resolves %s"):format(box.name, name), why)
    elseif result.code == 0 and inet.parse(result.stdout:match("^%s*(%S+)")) then
        t:pass(("%s resolves %s to %s, %s"):format(box.name, name, result.stdout:match("^%s*(%S+)"), WORD))
    else
        stack.dirty(t, ("%s does not resolve %s, %s"):format(box.name, name, WORD), {
            why = "DNS: what a box does by name does not work, whatever its routing does",
            mend = "what h.dnsmasq and h.resolver say",
            seen = late and "getent: no answer in six seconds" or ("getent: exit %s"):format(tostring(result.code)),
            by_hand = by_hand(box, "getent ahostsv4 " .. name),
        })
    end
end

-- What `ip -j` printed in the box: an array of tables, or nil, message.
local function decoded(box, what)
    local result, why = look(box, function(one)
        return one.code == 0
    end, what)
    why = no_answer(result, why)
    if why then
        return nil, why
    end
    local ok, value = pcall(cjson.decode, result.stdout)
    if not ok or type(value) ~= "table" then
        return nil, "its `ip` prints no JSON"
    end
    local out = {}
    for _, entry in ipairs(value) do
        out[#out + 1] = type(entry) == "table" and entry or nil
    end
    return out
end

-- The IPv4 addresses that a box says it has, loopback left out.
local function held(links)
    local out = {}
    for _, link in ipairs(links) do
        for _, entry in ipairs(type(link.addr_info) == "table" and link.addr_info or {}) do
            local address = type(entry) == "table" and entry["local"]
            if type(address) == "string" and inet.family(address) == 4 and not inet.within(address, "127.0.0.0/8") then
                out[#out + 1] = address
            end
        end
    end
    return out
end

local function addresses(t, box, links)
    for _, address in ipairs(held(links)) do
        if inet.within(address, t.contract.subnet) then
            return t:pass(("%s has %s, %s"):format(box.name, address, WORD))
        end
    end
    stack.dirty(t, ("%s has no address in %s, %s"):format(box.name, t.contract.subnet, WORD), {
        why = "it reaches nothing: its lease ran out, or it never got one",
        mend = "what h.dnsmasq and h.limits say; then: incus restart " .. box.name,
        by_hand = by_hand(box, "ip address"),
    })
end

-- The default gateway as an address of the box's own.
local function own_gateway(t, box, links, gateway)
    for _, address in ipairs(held(links)) do
        if inet.same(address, gateway) then
            stack.dirty(t, ("in %s its default gateway %s is an address of its own, %s"):format(
                box.name, address, WORD), {
                why = "a bridge in the box was given the boxes' own subnet: what it sends never leaves it",
                mend = ("incus restart %s, and give the bridge in it another subnet"):format(box.name),
            })
        end
    end
end

local function squat(t, box, links, routes)
    local leads, count = {}, 0
    for _, route in ipairs(routes) do
        if route.dst == "default" and type(route.gateway) == "string" then
            own_gateway(t, box, links, route.gateway)
        elseif route.scope == "link" and type(route.dst) == "string" and type(route.dev) == "string"
            and inet.within(t.contract.gateway, route.dst) and not leads[route.dev] then
            leads[route.dev], count = true, count + 1
        end
    end
    if count > 1 then
        stack.dirty(t, ("in %s the boxes' subnet is routed to %d links, %s"):format(box.name, count, WORD), {
            why = "packets for the gateway go to the wrong link",
            mend = by_hand(box, "ip route"),
        })
    end
end

local function inside(t, box)
    local work = {
        function()
            local links, why = decoded(box, "address")
            local routes, other = decoded(box, "route")
            if not links or not routes then
                return stack.unasked(t, ("the addresses and routes in %s"):format(box.name), why or other)
            end
            addresses(t, box, links)
            squat(t, box, links, routes)
        end,
    }
    work[#work + 1] = function()
        internet(t, box, t.contract.allowed.addresses)
    end
    work[#work + 1] = function()
        names(t, box, t.contract.allowed.names[1])
    end
    task.all(work)
end

return {
    id = "h.box",
    title = "a running box reaches the internet, and resolves names",
    needs = { "box.look", "host.connect" },
    run = function(t)
        local instances = stack.boxes(t)
        if not instances then
            return
        end
        local box, others = choose(t.contract, instances)
        if box then
            inside(t, box)
        else
            local words = "no box is running" .. (#others > 0 and ": " or "")
            t:skip(words .. table.concat(others, ", "))
        end
    end,
}
