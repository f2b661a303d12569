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
check("a reset where the listener's port is reset, too", with_closed(RESET, RESET):verdict() == "PASS")
check("let through to nobody", with_closed({ outcome = "unreachable", icmp = "3/1", ms = 3070 }, SILENT):verdict()
    == "SUSPECT")
check("no route: nothing was sent", with_closed({ outcome = "unreachable", errno = "ENETUNREACH", ms = 0 }, SILENT)
    :verdict() == "PASS")
local other = { outcome = "unreachable", icmp = "3/13", offender = "10.88.0.1", ms = 1 }
check("the same wall's reject", with_closed(other, other):verdict() == "PASS")
check("another router's reject", with_closed({ outcome = "unreachable", icmp = "3/0", offender = "192.0.2.9", ms = 9 },
    other):verdict() == "SUSPECT")

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
        source_address = "10.9.9.8",
        identity = identity or { address = "10.9.9.8", mac = "02:00:00:00:00:08", machine_id = "8" },
        holder = { box = holder, address = "10.9.9.9", mac = "02:00:00:00:00:09", machine_id = "9", port = 80 },
        targets = { target(80, { on_link = true, up = true }) },
        clause = "the clause",
    }
    return test
end
local HOLDS = { listen = { result = "listened" }, await = { result = "ready" }, stop = { result = "stopped" } }
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

check("a sibling out of reach", sibling(HOLDS, SILENT):verdict() == "PASS")
check("a sibling that answers", sibling(HOLDS, UP):verdict() == "FAIL")
check("it arrived, though nothing came back", sibling(but {
    listen = { result = "listened", seen = "udp:10.9.9.7:1;tcp:10.9.9.8:4000*2" },
}, SILENT):verdict() == "FAIL")
check("another's arrival is not A's", sibling(but {
    listen = { result = "listened", seen = "udp:10.9.9.8:1;tcp:10.9.9.7:4000" },
}, SILENT):verdict() == "PASS")
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

-- Who answers is seen from the host, just before.
local list = { target(80), target(81, { host_address = "10.9.9.9%br0" }), target(82) }
isolated.verify(place("the host", function(spec)
    return (spec.port == 80 or spec.to == "10.9.9.9%br0") and UP or SILENT
end), list)
check("verified listeners", list[1].listener and list[2].listener and not list[3].listener and list[3].unjudged)
isolated.verify(place("the host", always), {})
check("nothing to verify", true)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
