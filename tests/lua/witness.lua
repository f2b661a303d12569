-- What a witness tells of a flow, from eyes that say what a test wants.
-- Run by: boxdrill tests/lua/NAME.lua (in the sandbox; no Incus is needed).
local passed, failed = 0, 0

local function check(what, ok, got)
    if ok then
        passed = passed + 1
    else
        failed = failed + 1
        print(("FAILED: %s%s"):format(what, got == nil and "" or ": " .. tostring(got)))
    end
end

local witness = require "witness"

local A, B, ROUTED, HOST = "10.88.0.8", "10.88.0.9", "192.168.1.1", "203.0.113.2"

local function frame(fields)
    local out = { time = 10, outgoing = false, family = 4, src = A, smac = "a", proto = "tcp", dport = 80, sport = 4000,
        seq = 7, syn = true }
    for key, value in pairs(fields) do
        out[key] = value
    end
    return out
end

local function ask(target, fields)
    local out = { time = 10, outgoing = false, family = 4, src = A, smac = "a", proto = "arp", kind = "ask",
        target = target, dst = target, broadcast = true }
    for key, value in pairs(fields or {}) do
        out[key] = value
    end
    return out
end

local function eye(role, link, list, fields)
    local out = { role = role, link = link, kept = #list, lost = 0, frames = list }
    for key, value in pairs(fields or {}) do
        out[key] = value
    end
    return out
end

local function options(to, fields)
    local out = {
        source = { name = "a", label = "a" },
        identity = { addresses = { A }, mac = "a" },
        targets = { { spec = { proto = "tcp", to = to, port = 80 } } },
    }
    for key, value in pairs(fields or {}) do
        out[key] = value
    end
    return out
end

local HELD = { { address = HOST } }

-- The word on one target whose eyes these are.
local function tell(o, eyes)
    local what, why = witness.plan(o, HELD, o.routes or {}, o.arp_retry)
    return witness.tell({ eyes = eyes, goals = what and what.goals, hops = what and what.hops, why = why }, o, 1)
end

local SYN = frame { dst = ROUTED }
local routes
local function routed(links, port, fields)
    return tell(options(ROUTED, { routes = routes }), {
        eye("port", "va", port or { SYN }, { box = "a" }),
        eye("link", "uplink", links, fields),
    })
end

local word = routed {}
check("left the box, and went nowhere", word.column == "absent" and not word.unsent, word.column)
check("and says so", word.story:find("a SYN %(1%) left a, nothing of it left this host") ~= nil, word.story)
word = routed({}, {})
check("nothing left the box", word.column == "absent" and word.unsent)
word = routed { frame { dst = ROUTED, src = HOST, smac = "h", outgoing = true } }
check("left by the uplink, behind a NAT", word.column == "arrived", word.column)
check("somebody else's connection", routed { frame { dst = ROUTED, src = HOST, smac = "h", seq = 8, outgoing = true } }
    .column == "absent")
check("another port's", routed { frame { dst = ROUTED, dport = 81, src = HOST, outgoing = true } }.column == "absent")
check("one that comes in by the uplink", routed { frame { dst = ROUTED, src = HOST } }.column == "absent")
check("without a NAT", routed { frame { dst = ROUTED, smac = "h", seq = 9, outgoing = true } }.column == "arrived")

local function asked(fields)
    fields.outgoing, fields.src, fields.smac = true, HOST, "h"
    return ask(ROUTED, fields)
end
check("the host asks who has it, at once", routed { asked { time = 10.001 } }.column == "arrived")
word = routed { asked { time = 9 }, asked { time = 10.001 } }
check("it had asked before: that cannot be told", word.column == nil and word.why ~= nil)
check("it asks later", routed { asked { time = 13 } }.column == nil)
check("it asks the neighbour it knows", routed { asked { time = 10.001, broadcast = false } }.column == "absent")
check("it asks, and nothing left the box", routed({ asked { time = 10.001 } }, {}).column == "absent")
local OTHER = frame { dst = ROUTED, dport = 443, seq = 99 }
check("it asked for another flow, which is let through", routed(
    { asked { time = 10.001 }, frame { dst = ROUTED, dport = 443, seq = 99, src = HOST, outgoing = true } },
    { SYN, OTHER }).column == "absent")

local function unreachable(time)
    return frame { src = HOST, dst = A, proto = "icmp", kind = "error", icmp = "3/1", time = time, outgoing = true,
        inner = { proto = "tcp", dst = ROUTED, dport = 80 }, dport = false }
end
check("a prompt host-unreachable is a reject", routed({}, { SYN, unreachable(10.01) }).column == "absent")
check("a late one cannot be told", routed({}, { SYN, unreachable(13.06) }).column == nil)
local function with_retry(seconds, at, links)
    return tell(options(ROUTED, { arp_retry = seconds }), {
        eye("port", "va", { SYN, unreachable(at) }, { box = "a" }),
        eye("link", "uplink", links or {}),
    }).column
end
check("so late that an ARP request would have been repeated meanwhile, and was not", with_retry(1, 13.06) == "absent")
check("one that may have been under way", with_retry(1, 11) == nil)
check("where they are repeated seldom", with_retry(5, 13.06) == nil)
check("late, and one was seen", with_retry(1, 13.06, { asked { time = 9 } }) == nil)
check("late, after a prompt one", routed({}, { SYN, unreachable(10.01), unreachable(13.06) }).column == "absent")

-- By a gateway: it is the gateway that the host asks for.
local VIA = "192.0.2.9"
local function asked_via()
    return ask(VIA, { outgoing = true, src = HOST, smac = "h", time = 10.001 })
end
check("it asks for somebody that no route names", routed { asked_via() }.column == "absent")
routes = {
    { to = "0.0.0.0/0", table = "main", gateways = { "203.0.113.1" } },
    { to = "192.168.0.0/16", table = "main", gateways = { VIA } },
}
check("it asks for the gateway there", routed { asked_via() }.column == "arrived")
check("it asks for nobody", routed {}.column == "absent")
routes[3] = { to = "192.168.1.0/24", table = "main", gateways = { "192.0.2.10" } }
check("it asks for another route's gateway", routed { asked_via() }.column == "absent")
routes[2].table = "vpn"
check("a table of its own may be asked", routed { asked_via() }.column == "arrived")
routes[3].down = true
word = routed {}
check("a link without a carrier shows nothing", word.column == nil and word.why ~= nil)
routes = { { to = "10.0.0.0/8", table = "main", gateways = {}, down = true } }
check("nor does it matter where the route is none of its", routed {}.column == "absent")
routes = nil

-- What was lost or not watched is no absence; what was seen stands.
for what, fields in pairs { lost = { lost = 3 }, blinded = { error = "ENETDOWN" } } do
    word = routed({}, nil, fields)
    check(what .. ": no absence", word.column == nil and word.blind ~= nil and not word.unsent)
    word = routed({ frame { dst = ROUTED, src = HOST, outgoing = true } }, nil, fields)
    check(what .. ": what arrived did", word.column == "arrived")
end
word = tell(options(ROUTED), { eye("port", "va", { SYN }, { box = "a", lost = 1 }), eye("link", "uplink", {}) })
check("lost on the source's port", word.column == nil and word.blind == "the witness lost 1 frames on va", word.blind)
word = tell(options(ROUTED), { eye("port", "va", { SYN }, { box = "a" }) })
check("no link was watched", word.column == nil and word.blind ~= nil)

-- The host itself.
local TO_HOST = frame { dst = HOST }
local function host(list, fields)
    return tell(options(HOST), {
        eye("port", "va", { TO_HOST }, { box = "a" }),
        eye("input", "tcp4", list, fields),
        eye("input", "udp4", {}, { lost = 9 }),
    })
end
check("stopped before the input hook", host({}).column == "absent")
check("passed it", host({ frame { dst = HOST, smac = false } }).column == "arrived")
check("another box's packet", host({ frame { dst = HOST, src = B, smac = false, seq = 1 } }).column == "absent")
check("lost behind the hook", host({}, { lost = 1 }).column == nil)

-- A sibling.
local function sibling(theirs, mine, guards)
    local o = options(B, {
        holder = { box = { name = "b" }, address = B },
        sender = { addresses = { A }, mac = "a", sibling = not guards },
        targets = {
            { spec = { proto = "tcp", to = B, port = 80 }, on_link = true },
            { spec = { proto = "udp", to = B, port = 80 }, on_link = true },
        },
    })
    o.source.guards = guards
    return tell(o, {
        not guards and eye("port", "va", mine or { ask(B) }, { box = "a" }) or eye("link", "x", {}),
        eye("port", "vb", theirs, { box = "b" }),
    })
end
word = sibling {}
check("asked for, and nobody heard it", word.column == "absent" and not word.unsent)
check("nothing was asked", sibling({}, {}).unsent)
check("one protocol left, another did not", sibling({}, { frame { dst = B, proto = "udp" }, ask(B) }).unsent)
check("what another probe sends there says nothing", not sibling({}, { frame { dst = B, dport = 81 }, ask(B) }).unsent)
check("the question was handed on", sibling { ask(B, { outgoing = true }) }.column == "arrived")
check("the frame was", sibling({ frame { dst = B, outgoing = true } }, { frame { dst = B } }).column == "arrived")
check("routed around: another MAC", sibling({ frame { dst = B, outgoing = true, smac = "h" } }, { frame { dst = B } })
    .column == "arrived")
word = sibling { ask(B, { outgoing = true, src = "10.88.0.1", smac = "h" }) }
check("the gateway asks", word.column == "absent" and word.pending and not witness.is_told(word))
check("the sibling itself asks", sibling { ask(A, { src = B, smac = "b" }) }.column == "absent")

-- From the host: what it asks for says nothing, and its own kernel is the wall.
check("the host asks for a box", sibling({ ask(B, { outgoing = true }) }, nil, true).column == "absent")
check("and its packet may wait for the answer", sibling({ ask(B, { outgoing = true }) }, nil, true).pending)
local ANSWERED = { ask(B, { outgoing = true }), ask(B, { kind = "answer", src = B }) }
check("not when there was one", not sibling(ANSWERED, nil, true).pending)
check("the host's SYN is handed on", sibling({ frame { dst = B, outgoing = true } }, nil, true).column == "arrived")
local THIRD = frame { dst = B, src = "10.88.0.77", smac = "c", seq = 1, outgoing = true }
check("a sibling's to the same port", sibling({ THIRD }, nil, true).column == "absent")

-- Nobody would see it.
word = tell(options("10.88.0.77"), { eye("port", "va", {}, { box = "a" }) })
check("somebody else's box", word.column == nil and word.why ~= nil)
word = witness.tell({ why = "it needs root" }, options(ROUTED), 1)
check("no witness at all", word.column == nil and word.why == "it needs root")

-- Who sent it back.
local function back(links)
    local reset = frame { src = ROUTED, dst = A, sport = 80, dport = 4000, rst = true, syn = false, outgoing = true }
    return routed(links, { SYN, reset }).story
end
check("a wall's reset", back({}):find("a reset in the name of 192.168.1.1, made on this host", 1, true) ~= nil)
local far = { frame { src = ROUTED, dst = HOST, sport = 80, dport = 4000, rst = true, syn = false } }
check("the target's reset", back(far):find("from beyond", 1, true) ~= nil, back(far))

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
