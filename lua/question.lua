--- What a rehearsal asks, before, during and after its change: each question either works or fails.
--
-- A question is a table:
--   what     text: the thing that works or does not
--   specs    function(r, ms): the attempts that ask it, as of guest.spec, fresh ones each time
--   works    function(r, seen, specs): true or false, nil when the instrument failed, and text; where it is
--            left out, all of its attempts must be reachable
--   from     function(r): the place it is asked from; box a where it is left out
--   prepare  function(r): called once, before the baseline; returns true, or false, why (then the
--            question does not apply here: NOTE), or nil, message (then the instrument failed)
--   by_hand  function(specs): the words that ask the same from a shell there; may be left out
--   every    while a change settles it is asked in each n-th sample only (about twenty a second); 1 if left out
--
-- r is the rehearsal: { t, data (the contract), a, b (boxes), me, sibling (their identities), name, gateway,
-- subnet, device }.
local inet = require "inet"
local outcome = require "outcome"
local resolver = require "resolver"

local question = {}

local function reachable(_, seen, specs)
    local words, all = {}, true
    for i, one in ipairs(seen) do
        words[i] = ("%s %s"):format(outcome.target(specs[i]), outcome.text(one))
        if one.outcome == "inconclusive" then
            return nil, words[i]
        end
        all = all and one.outcome == "reachable"
    end
    return all, table.concat(words, ", ")
end

--- Reads what was seen of a question's attempts. @return true, false or nil, text
function question.read(r, one, seen, specs)
    return (one.works or reachable)(r, seen, specs)
end

--- Where a question is asked from.
function question.place(r, one)
    return one.from and one.from(r) or r.a
end

local function public(r, ms, from)
    local specs = {}
    for i, place in ipairs(r.data.allowed.addresses) do
        specs[i] = { proto = "tcp", to = place.address, port = place.port, ms = ms, from = from }
    end
    return specs
end

--- The public internet by address.
function question.egress()
    return { what = "the public internet", every = 2, specs = public }
end

--- The command that asks the same by hand.
function question.by_hand(one, place, specs)
    return one.by_hand and place:by_hand_text(one.by_hand(specs)) or place:by_hand(specs[1])
end

-- A question of names; `expected` is the address that an answer must hold, any if nil.
local function names(what, queries_of, expected_of)
    return {
        what = what,
        specs = function(r, ms)
            local queries = queries_of(r)
            local specs = resolver.specs(queries, ms)
            specs.queries = queries
            return specs
        end,
        works = function(r, seen, specs)
            local words, all = {}, true
            local expected = expected_of and expected_of(r)
            for i, result in ipairs(resolver.results(seen, specs.queries)) do
                words[i] = ("%s %s"):format(result.query.name, resolver.text(result))
                if result.status == "inconclusive" then
                    return nil, words[i]
                end
                local right = not expected or inet.same(result.answers[1], expected)
                all = all and result.status == "resolved" and right
            end
            return all, table.concat(words, ", ")
        end,
        by_hand = function(specs)
            return resolver.question(specs.queries[1])
        end,
    }
end

--- Public names, asked of the network's own resolver.
function question.names()
    return names("public names from the gateway's resolver", function(r)
        local out = {}
        for i, name in ipairs(r.data.allowed.names) do
            out[i] = { server = r.gateway, proto = "udp", name = name, kind = "A" }
        end
        return out
    end)
end

--- The sibling's name, asked of the network's own resolver.
function question.sibling_name()
    return names("the sibling's name from the gateway's resolver", function(r)
        local name = ("%s.%s"):format(r.b.name, r.data.network.domain)
        return { { server = r.gateway, proto = "udp", name = name, kind = "A" } }
    end, function(r)
        return r.sibling.address
    end)
end

-- An address of the network that neither the gateway nor a box has.
local function unused(r)
    local network = inet.parse(r.gateway)
    for last = 254, 2, -1 do
        local address = inet.text(network:sub(1, 3) .. string.char(last))
        if address ~= r.gateway and address ~= r.me.address and address ~= r.spoofed
            and not (r.sibling and address == r.sibling.address) then
            return address
        end
    end
end

local function run(box, ...)
    local result, why = box:exec { ... }
    if not result then
        return nil, why
    elseif result.state ~= "exit" or result.value ~= 0 then
        return nil, ("%s: %s"):format(table.concat({ ... }, " "), result.stderr)
    end
    return true
end

--- Packets with a source address that is not the box's own, to the public internet: it has given itself another.
function question.spoofed_address()
    return {
        what = "packets with a spoofed source address",
        every = 2,
        prepare = function(r)
            r.spoofed = unused(r)
            local done, why = run(r.a, "ip", "address", "add", r.spoofed .. "/32", "dev", r.me.link)
            return done, why
        end,
        specs = function(r, ms)
            return { public(r, ms, r.spoofed)[1] }
        end,
    }
end

-- A second MAC on the box's link, in a network namespace of its own in the box.
local MACVLAN = [[
set -e
ip netns add bd-mac
ip link add bd-mac link "$1" netns bd-mac type macvlan mode bridge
in_it() { nsenter --net=/run/netns/bd-mac "$@"; }
in_it ip address add "$2" dev bd-mac
in_it ip link set bd-mac up
in_it ip route add default via "$3"
]]

--- Packets from a second MAC on the box's link, with an address of its own.
function question.spoofed_mac()
    return {
        what = "packets from a MAC that is not the box's",
        every = 2,
        prepare = function(r)
            local address = unused(r)
            local bits = r.subnet:match("/(%d+)$")
            local done, why = run(r.a, "sh", "-c", MACVLAN, "sh", r.me.link, address .. "/" .. bits, r.gateway)
            r.macvlan = r.a:inside(r.a.label .. "'s second MAC", { "nsenter", "--net=/run/netns/bd-mac" })
            return done, why
        end,
        from = function(r)
            return r.macvlan
        end,
        specs = function(r, ms)
            return { public(r, ms)[1] }
        end,
    }
end

--- The public internet from behind a container runtime's bridge in the box.
function question.inner_runtime()
    return {
        what = "the public internet from behind a container runtime's bridge in the box",
        every = 2,
        prepare = function(r)
            local place, why = r.a:inner()
            if place == false then
                return false, "this box image has no container runtime, so none was asked"
            end
            r.inner = place
            return place and true, why
        end,
        from = function(r)
            return r.inner
        end,
        specs = public,
    }
end

return question
