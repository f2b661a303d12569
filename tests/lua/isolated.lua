-- Control, negative, control: what it takes for a silence to count, with places that say what a test wants.
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

local check_module = require "check"
local isolated = require "isolated"
local outcome = require "outcome"

local UP = { outcome = "reachable", ms = 1 }
local SILENT = { outcome = "silent", ms = 4000 }

-- Answers every spec of a list of stages by answer(spec, run, stage).
local function place(label, answer)
    local self = { label = label, runs = 0 }
    function self.attempt(_, stages)
        self.runs = self.runs + 1
        local out = {}
        for i, stage in ipairs(stages) do
            out[i] = {}
            for j, spec in ipairs(stage) do
                out[i][j] = answer(spec, self.runs, i)
            end
        end
        return out
    end
    function self.by_hand(_, spec)
        return "ask " .. spec.to
    end
    function self.by_hand_text(_, words)
        return "in the box: " .. words
    end
    return self
end

local function is_control(spec, t)
    for _, allowed in ipairs(t.contract.allowed.addresses) do
        if spec.to == allowed.address then
            return true
        end
    end
    return false
end

local function target(port, fields)
    local out = { spec = { proto = "tcp", to = "10.9.9.9", port = port, ms = 10 }, listener = true }
    for key, value in pairs(fields or {}) do
        out[key] = value
    end
    return out
end

-- Measures one target from a place whose controls answer `control(run, stage)`; returns t.
local function measure(control, seen, targets)
    local t = check_module.new("c.test")
    local source = place("a", function(spec, run, stage)
        if is_control(spec, t) then
            return control(run, stage)
        end
        return type(seen) == "function" and seen(spec) or seen
    end)
    t:isolated { source = source, targets = targets or { target(80) }, clause = "the clause" }
    return t, source
end

local function always()
    return UP
end

local t, source = measure(always, SILENT)
check("silence, with good controls", t:verdict() == "PASS" and source.runs == 1, t:verdict())
t = measure(always, UP)
check("reachable", t:verdict() == "FAIL", t:verdict())
local observation = t.observations[1]
check("a FAIL says the clause, what was seen, and how to ask", observation.clause == "the clause"
    and observation.seen == "reachable (1.0 ms)" and observation.by_hand == "ask 10.9.9.9")

t, source = measure(function()
    return SILENT
end, SILENT)
check("a dead NIC is SUSPECT, never PASS", t:verdict() == "SUSPECT" and source.runs == 2, t:verdict())
t = measure(function(_, stage)
    return stage == 1 and UP or SILENT
end, SILENT)
check("the internet gone afterwards is SUSPECT", t:verdict() == "SUSPECT", t:verdict())
t = measure(function(_, stage)
    return stage == 2 and SILENT or UP
end, SILENT)
check("the internet gone meanwhile is SUSPECT", t:verdict() == "SUSPECT", t:verdict())
t, source = measure(function(run, stage)
    return run == 1 and stage == 3 and SILENT or UP
end, SILENT)
check("a control that fails once is retried", t:verdict() == "PASS" and source.runs == 3, t:verdict())
t = measure(function()
    return { outcome = "inconclusive", why = "lost" }
end, { outcome = "inconclusive", why = "lost" })
check("a lost run is no PASS", t:verdict() == "SUSPECT", t:verdict())
t = measure(always, { outcome = "inconclusive", why = "lost" })
check("a lost result is ERROR", t:verdict() == "ERROR", t:verdict())

-- Targets behind which nobody is known.
local function with_closed(closed, open)
    return (measure(always, function(spec)
        return spec.port == 81 and closed or open
    end, { target(80), target(81, { listener = false, unjudged = true }) }))
end
local RESET = { outcome = "refused", errno = "ECONNREFUSED", ms = 1 }
check("silence of a closed port is a note", with_closed(SILENT, SILENT):verdict() == "PASS")
check("a closed port that is reached", with_closed(UP, SILENT):verdict() == "FAIL")
check("a reset where the listener's port is silent", with_closed(RESET, SILENT):verdict() == "SUSPECT")
check("a reset where the listener's port is reset, too: a wall that resets, or a hole in it", with_closed(RESET, RESET)
    :verdict() == "SUSPECT")
local REFUSED = { outcome = "refused", errno = "ECONNREFUSED", icmp = "3/3", offender = "10.9.9.9", ms = 1 }
check("the target's own port-unreachable, likewise", with_closed(REFUSED, REFUSED):verdict() == "SUSPECT")
REFUSED.offender = "10.88.0.1"
check("a port-unreachable of the wall's", with_closed(REFUSED, REFUSED):verdict() == "PASS")
check("let through to nobody", with_closed({ outcome = "unreachable", icmp = "3/1", ms = 3070 }, SILENT):verdict()
    == "SUSPECT")
check("no route: nothing was sent", with_closed({ outcome = "unreachable", errno = "ENETUNREACH", ms = 0 }, SILENT)
    :verdict() == "PASS")
local other = { outcome = "unreachable", icmp = "3/13", offender = "10.88.0.1", ms = 1 }
check("the same wall's reject", with_closed(other, other):verdict() == "PASS")
local own = { outcome = "unreachable", icmp = "3/13", offender = "10.9.9.9", ms = 1 }
check("no closed port says prohibited", with_closed(own, own):verdict() == "PASS")
check("a late host-unreachable is not like a prompt one", with_closed(
    { outcome = "unreachable", icmp = "3/1", offender = "10.88.0.1", ms = 3070 },
    { outcome = "unreachable", icmp = "3/13", offender = "10.88.0.1", ms = 1 }):verdict() == "SUSPECT")
check("another router's reject", with_closed({ outcome = "unreachable", icmp = "3/0", offender = "192.0.2.9", ms = 9 },
    other):verdict() == "SUSPECT")

t = measure(always, RESET, { target(80), target(81, { listener = false, unjudged = true }),
    target(82, { listener = false, unjudged = true }) })
local together = {}
for _, one in ipairs(t.observations) do
    if one.verdict == "SUSPECT" then
        together[#together + 1] = one
    end
end
check("resets where nobody listens are one observation", #together == 1
    and together[1].seen == "10.9.9.9 tcp 81, 10.9.9.9 tcp 82", together[1] and together[1].seen)

-- A wall whose ICMP errors are rationed: they come late, on a repeated SYN.
local function late(icmp, ms, first)
    return (measure(always, function(spec)
        return { outcome = "unreachable", icmp = icmp, offender = "10.88.0.1", ms = spec.port == 80 and ms or first }
    end, { target(80), target(81) })):verdict()
end
check("prohibited, late", late("3/13", 3010, 3010) == "PASS")
check("host unreachable, late, and at once at the same address", late("3/1", 3010, 1) == "PASS")
check("host unreachable, late", late("3/1", 3010, 3010) == "SUSPECT")

-- What never left the box.
local function unsent(errno, call, fields)
    return (measure(always, { outcome = "unreachable", errno = errno, call = call, ms = 0 }, { target(80, fields) }))
end
check("an unreachable route in the box", unsent("EHOSTUNREACH", "connect"):verdict() == "SUSPECT")
check("a blackhole route in the box", unsent("EINVAL", "connect"):verdict() == "SUSPECT")
check("the box's own firewall", unsent("EPERM", "send"):verdict() == "SUSPECT")
check("the same on its own link", unsent("EPERM", "send", { on_link = true, up = true }):verdict() == "SUSPECT")
check("nobody there, and nothing sent: a note", unsent("EPERM", "send", { listener = false, unjudged = true }):verdict()
    == "NOTE")
local v6 = { spec = { proto = "tcp", to = "2001:db8::1", port = 80, ms = 10 } }
check("no IPv6 in the box, as the contract wants it", unsent("ENETUNREACH", "connect", v6):verdict() == "NOTE")
check("an unreachable IPv6 route is no such thing", unsent("EHOSTUNREACH", "connect", v6):verdict() == "SUSPECT")
local function own_hook(at, fields)
    return (measure(always, function(spec)
        if spec.proto == "udp" then
            return { outcome = "unreachable", errno = "EPERM", call = "send", ms = 0 }
        end
        return SILENT
    end, {
        target(80, fields),
        target(81, { spec = { proto = "udp", to = at, port = 81, ms = 10 }, range = "10.0.0.0/8" }),
    }))
end
check("TCP's silence where UDP never left", own_hook("10.9.9.9").observations[1].verdict == "SUSPECT")
check("the same range", own_hook("10.1.1.1", { range = "10.0.0.0/8" }).observations[1].verdict == "SUSPECT")
check("elsewhere it stands", own_hook("10.1.1.1").observations[1].verdict == "PASS")

-- From the host its own kernel is the wall.
local inbound = check_module.new("c.test")
local its_kernel = place("the host", function(spec)
    return is_control(spec, inbound) and UP or { outcome = "unreachable", errno = "EPERM", call = "send", ms = 0 }
end)
its_kernel.guards = require("host").guards
inbound:isolated { source = its_kernel, targets = { target(80, { on_link = true, up = true }) }, clause = "the clause" }
check("the host's own firewall is the wall", inbound:verdict() == "PASS", inbound:verdict())

local A = { address = "10.9.9.8", mac = "02:00:00:00:00:08", machine_id = "8" }

-- What the contract excludes is not asked.
local contract = require "contract"
local function excluding(list, specs)
    local test = check_module.new("c.test")
    test.contract = contract.build(engine.call("contract"), "host/contract.lua",
        ("return { exclude = { %s } }"):format(list), "site.lua")
    local asked = {}
    local a = place("a", function(spec)
        asked[#asked + 1] = spec.port
        return is_control(spec, test) and UP or SILENT
    end)
    if specs then
        test:reaches(a, specs, "the clause")
    else
        test:isolated { source = a, targets = { target(80), target(81) }, clause = "the clause" }
    end
    return test, " " .. table.concat(asked, " ") .. " "
end
local narrowed, asked = excluding('"10.9.9.9:81"')
check("an excluded target is not asked", asked:find(" 80 ") and not asked:find(" 81 "), asked)
check("and is a SKIP beside the others", narrowed:verdict() == "PASS" and narrowed.observations[1].verdict == "SKIP")
narrowed, asked = excluding('"8.8.8.8"')
check("an excluded control is not asked", narrowed:verdict() == "PASS" and not asked:find(" 53 "), asked)
narrowed, asked = excluding('"10.9.9.0/24"')
check("nothing left to ask", narrowed:verdict() == "SUSPECT" and asked == "  ", asked)
narrowed, asked = excluding('"10.9.9.9:80"', { { proto = "tcp", to = "10.9.9.9", port = 80, ms = 10 } })
check("nor what is to be reached", narrowed:verdict() == "SKIP" and asked == "  ", asked)

-- A sibling that holds the port. `b` says what its parts answer.
local function sibling(b, seen, identity)
    local test = check_module.new("c.test")
    local a = place("a", function(spec)
        return is_control(spec, test) and UP or seen
    end)
    local holder = place("b", function(spec, _, stage)
        if spec.proto == "tcp" then
            return b.control and b.control(stage) or UP
        end
        return b[spec.proto] or {}
    end)
    test:isolated {
        source = a,
        sender = { addresses = { "10.9.9.8" }, mac = "02:00:00:00:00:08", sibling = not b.host },
        identity = not b.host and (identity or A) or nil,
        holder = {
            box = holder,
            address = "10.9.9.9",
            addresses = { "10.9.9.9", "10.9.9.10" },
            mac = "02:00:00:00:00:09",
            machine_id = "9",
            port = 80,
            info = b.info,
        },
        targets = b.frames or { target(80, { on_link = true, up = true }) },
        clause = "the clause",
    }
    return test
end
local HELD = { result = "listened", stopped = "1", frames = "0" }
local HOLDS = { listen = HELD, await = { result = "ready" }, stop = { result = "stopped" } }
local function but(fields)
    local out = {}
    for key, value in pairs(HOLDS) do
        out[key] = value
    end
    for key, value in pairs(fields) do
        out[key] = value
    end
    return out
end

-- The listener's word, with some of it put otherwise.
local function heard(fields)
    local word = { frames = fields["frames-errno"] and "" or "1" }
    for key, value in pairs(HELD) do
        word[key] = word[key] or value
    end
    for key, value in pairs(fields) do
        word[key] = value or nil
    end
    return but { listen = word }
end

check("a sibling out of reach", sibling(HOLDS, SILENT):verdict() == "PASS")
check("a sibling that answers", sibling(HOLDS, UP):verdict() == "FAIL")
local ARRIVED = heard { seen = "udp:10.9.9.7:1;tcp:10.9.9.8:4000*2" }
check("it arrived, though nothing came back", sibling(ARRIVED, SILENT):verdict() == "FAIL")
local ANOTHERS = heard { seen = "udp:10.9.9.8:1;tcp:10.9.9.7:4000" }
check("another's arrival is not A's", sibling(ANOTHERS, SILENT):verdict() == "PASS")
-- What reached B's link, whatever B's own firewall made of it.
local FRAMES = {
    { "a lone SYN of A's", "FAIL", "tcp:10.9.9.8@02:00:00:00:00:01" },
    { "a SYN from A's MAC", "FAIL", "tcp:10.9.9.77@02:00:00:00:00:08*3" },
    { "A asks for the address", "FAIL", "arp:10.9.9.8@02:00:00:00:00:08" },
    { "A asks for the address, over IPv6", "FAIL", "nd:fe80::8@02:00:00:00:00:08" },
    { "another protocol", "PASS", "udp:10.9.9.8@02:00:00:00:00:08;icmp:10.9.9.8@02:00:00:00:00:08" },
    { "the gateway asks for the address", "PASS", "arp:10.9.9.1@02:00:00:00:00:01" },
    { "somebody else", "PASS", "tcp:10.9.9.80@02:00:00:00:00:01" },
}
for _, case in ipairs(FRAMES) do
    local what, verdict, frames = table.unpack(case)
    local b = heard { ["frames-seen"] = frames }
    check("frames: " .. what, sibling(b, SILENT):verdict() == verdict)
    check("frames, and refused: " .. what, sibling(b, RESET):verdict() == verdict)
end
local function by_host(frames)
    local b = heard { ["frames-seen"] = frames }
    b.host = true
    return sibling(b, SILENT):verdict()
end
check("frames: the host's SYN", by_host "tcp:10.9.9.8@02:00:00:00:00:01" == "FAIL")
check("frames: the host asks for the address, as always", by_host "arp:10.9.9.8@02:00:00:00:00:08" == "PASS")
for _, key in ipairs { "frames-errno", "frames-more", "frames-lost" } do
    check(key .. ": silence cannot be told", sibling(heard { [key] = "1" }, SILENT):verdict() == "SUSPECT")
    check(key .. ": what was seen counts", sibling(heard {
        [key] = "1",
        ["frames-seen"] = "tcp:10.9.9.8@02:00:00:00:00:08",
    }, SILENT):verdict() == "FAIL")
    check(key .. ": reachable is reachable", sibling(heard { [key] = "1" }, UP):verdict() == "FAIL")
end
check("nothing said of frames", sibling(heard { frames = false }, SILENT):verdict() == "SUSPECT")

-- Frames that are looked for by their mark. Left: it was seen leaving the box, and nobody answers a frame.
local LEFT = outcome.of_fact { result = "sent", ms = "1000", left = "4" }
local function frames(fields, seen)
    fields.watched = fields.watched or "7"
    local b = heard(fields)
    b.frames = {}
    for i = 1, 2 do
        b.frames[i] = { spec = { proto = "frame" }, mark = i, any = i == 2, what = "b: frame " .. i, listener = true,
            on_link = true, up = true, by_hand = "ask" }
    end
    local test = sibling(b, seen or LEFT)
    return ("%s %s"):format(test.observations[1].verdict, (test.observations[2] or {}).verdict), test
end
check("frames that did not come", frames {} == "PASS PASS", (frames {}))
check("one that came", frames { marked = "1@02:00:00:00:00:08*4" } == "FAIL PASS")
check("one that came from another MAC", frames { marked = "12@02:00:00:00:00:08*4;2@02:00:00:00:00:99*1" }
    == "PASS FAIL")
check("another frame of A's counts where any does", frames { ["frames-seen"] = "other:?@02:00:00:00:00:08" }
    == "PASS FAIL")
check("nobody else's does", frames { ["frames-seen"] = "other:?@02:00:00:00:00:07" } == "PASS PASS")
check("a listener that saw nothing, not even answers", frames { watched = "0" } == "SUSPECT SUSPECT")
check("one that never left", frames({}, outcome.of_fact { result = "error", call = "send", errno = "EPERM" })
    == "SUSPECT SUSPECT")
check("one that could not be sent", frames({}, outcome.of_fact { result = "failed", call = "socket", errno = "EPERM" })
    == "ERROR ERROR")
local _, shown = frames { marked = "1@02:00:00:00:00:99*4" }
check("how to ask it by hand", shown.observations[1].by_hand == "in the box: ask"
    and shown.observations[1].reason:find("the frame itself, from 02:00:00:00:00:99", 1, true) ~= nil)
check("ended by time", sibling(heard { stopped = "0" }, SILENT):verdict() == "SUSPECT")
check("one address is held by both", sibling(HOLDS, SILENT, {
    address = "10.9.9.8",
    addresses = { "10.9.9.8", "10.9.9.10" },
    mac = "02:00:00:00:00:08",
    machine_id = "8",
}):verdict() == "SUSPECT")

-- An address that a place holds itself says nothing of the world.
local function holding(addresses)
    local out = { addresses = {} }
    for i, address in ipairs(addresses) do
        out.addresses[i] = { address = address }
    end
    return out
end
local function local_controls()
    local places = {}
    for i, place_ in ipairs(check_module.new("c.test").contract.allowed.addresses) do
        places[i] = place_.address
    end
    return holding(places)
end
local function with_info(info, seen)
    return sibling(HOLDS, seen, {
        address = "10.9.9.8",
        mac = "02:00:00:00:00:08",
        machine_id = "8",
        info = info,
    }):verdict()
end
check("A meets itself at the controls' addresses", with_info(local_controls(), SILENT) == "SUSPECT")
check("A has addresses of its own", with_info(holding { "10.9.9.8", "fe80::8" }, SILENT) == "PASS")
check("A holds the address asked", with_info(holding { "10.9.9.9" }, UP) == "SUSPECT")
check("B meets itself at the controls' addresses", sibling(but { info = local_controls() }, SILENT):verdict()
    == "SUSPECT")

check("nobody held the port", sibling(but { await = { result = "timeout", errno = "ECONNREFUSED" } }, SILENT):verdict()
    == "SUSPECT")
check("the listener's word was lost", sibling(but { listen = { result = "lost", why = "x" } }, SILENT):verdict()
    == "SUSPECT")
check("the listener could not bind", sibling(but { listen = { result = "failed", errno = "EADDRINUSE" } }, SILENT)
    :verdict() == "SUSPECT")
check("the sibling was offline", sibling(but {
    control = function()
        return SILENT
    end,
}, SILENT):verdict() == "SUSPECT")
check("the sibling went offline", sibling(but {
    control = function(stage)
        return stage == 3 and SILENT or UP
    end,
}, SILENT):verdict() == "SUSPECT")
for key, value in pairs { address = "10.9.9.9", mac = "02:00:00:00:00:09", machine_id = "9" } do
    local me = { address = "10.9.9.8", mac = "02:00:00:00:00:08", machine_id = "8" }
    me[key] = value
    check("two boxes with one " .. key, sibling(HOLDS, SILENT, me):verdict() == "SUSPECT")
end
check("a box without a machine-id", sibling(HOLDS, SILENT, { address = "10.9.9.8", mac = "x" }):verdict() == "SUSPECT")

-- What a witness on the host told. (It stands in for one: here is no host to watch.)
local witness = require "witness"
local measured, tell = witness.measured, witness.tell
local function told(word, seen, fields)
    witness.measured = function(_, f)
        f()
        return {}
    end
    witness.tell = function()
        return word
    end
    local verdict = (measure(always, seen, { target(80, fields) })):verdict()
    witness.measured, witness.tell = measured, tell
    return verdict
end
local NOBODY = { listener = false, unjudged = true }
check("it did not arrive: silence needs no listener", told({ column = "absent" }, SILENT, NOBODY) == "PASS")
check("nor does a reset", told({ column = "absent" }, RESET, NOBODY) == "PASS")
check("it did not arrive, yet was answered", told({ column = "absent" }, UP, NOBODY) == "ERROR")
check("it arrived, in silence", told({ column = "arrived", arrived = "x" }, SILENT, NOBODY) == "FAIL")
check("it arrived, and was refused", told({ column = "arrived", arrived = "x" }, RESET, NOBODY) == "FAIL")
check("it arrived, and a listener was silent", told({ column = "arrived", arrived = "x" }, SILENT) == "FAIL")
local UNSENT = { column = "absent", unsent = true }
check("nothing left the box: a listener's silence is no proof", told(UNSENT, SILENT) == "SUSPECT")
check("nothing left the box: no proof where nobody listens", told(UNSENT, SILENT, NOBODY) == "NOTE")
check("frames were lost: SUSPECT with a listener", told({ blind = "x" }, SILENT) == "SUSPECT")
check("and without", told({ blind = "x" }, SILENT, NOBODY) == "SUSPECT")
check("frames were lost: reachable is reachable", told({ blind = "x" }, UP) == "FAIL")
check("frames were lost: what arrived did", told({ blind = "x", column = "arrived", arrived = "x" }, SILENT) == "FAIL")
check("no witness: as ever, with a listener", told({ why = "x" }, SILENT) == "PASS")
check("and without", told({ why = "x" }, SILENT, NOBODY) == "NOTE")

-- An answer is waited for until the witness knows. `words` are what it tells of one round after the other: the waits
-- of each round in ms, and the verdict.
local function waits(words, watched)
    local rounds, list = 0, {}
    witness.measured = function(_, f)
        rounds = rounds + 1
        f(watched)
        return {}
    end
    witness.tell = function()
        return words[rounds]
    end
    local result = measure(always, function(spec)
        list[#list + 1] = spec.ms
        return SILENT
    end, { target(80, { spec = { proto = "tcp", to = "10.9.9.9", port = 80, ms = 4000 } }) })
    witness.measured, witness.tell = measured, tell
    return table.concat(list, " ") .. " " .. result:verdict()
end
local ABSENT, CAME = { column = "absent" }, { column = "arrived", arrived = "x" }
check("it is told: not waited for longer", waits({ ABSENT }, { true }) == "1200 PASS", waits({ ABSENT }, { true }))
check("nor when it arrived", waits({ CAME }, { true }) == "1200 FAIL")
check("nobody to tell: the whole wait", waits({ ABSENT }, nil) == "4000 PASS" and waits({ ABSENT }, {}) == "4000 PASS")
for what, word in pairs {
    ["in doubt"] = { why = "x" },
    ["frames were lost"] = { blind = "x" },
    ["nothing left the source"] = UNSENT,
    ["it may wait for the target's address"] = { column = "absent", pending = true },
} do
    check(what .. ": again, and the whole wait", waits({ word, ABSENT }, { true }) == "1200 4000 PASS")
    check(what .. ": what arrives then did", waits({ word, CAME }, { true }) == "1200 4000 FAIL")
end

-- Who answers is seen from the host, just before.
local list = { target(80), target(81, { host_address = "10.9.9.9%br0" }), target(82) }
isolated.verify(place("the host", function(spec)
    return spec.ms == 9 and (spec.port == 80 or spec.to == "10.9.9.9%br0") and UP or SILENT
end), list, 9)
check("verified listeners", list[1].listener and list[2].listener and not list[3].listener and list[3].unjudged)
isolated.verify(place("the host", always), {}, 1)
check("nothing to verify", true)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
