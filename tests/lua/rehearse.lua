-- Rehearsals' pure parts: subnets chosen, losses counted, names made, a spec checked.
-- Run by: boxdrill tests/lua/NAME.lua (in the sandbox; no Incus is needed).
local guest = require "guest"
local own = require "own"
local question = require "question"
local rehearse = require "rehearse"
local settle = require "settle"
local subnets = require "subnets"
local task = require "task"
local passed, failed = 0, 0

local function check(what, ok, got)
    if ok then
        passed = passed + 1
    else
        failed = failed + 1
        print(("FAILED: %s%s"):format(what, got == nil and "" or ": " .. tostring(got)))
    end
end

local function is(what, got, wanted)
    check(what, got == wanted, got)
end

-- Subnets.
local function choose(taken, n)
    return table.concat(subnets.choose({ "10.208.0.0/12", "172.24.0.0/30", "192.168.224.0/20" }, taken, n), " ")
end
is("the first ones", choose({}, 2), "10.208.0.1/24 10.208.1.1/24")
is("an address in one takes it", choose({ "10.208.0.77/32" }, 1), "10.208.1.1/24")
is("a wider route takes all", choose({ "10.208.0.0/15" }, 1), "10.210.0.1/24")
is("beyond a range the next, but none that is smaller than a subnet", choose({ "10.0.0.0/8" }, 1),
    "192.168.224.1/24")
is("none is left", choose({ "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16" }, 1), "")
is("a default route takes all there is", choose({ "0.0.0.0/0" }, 1), "")
local wide, narrow = "10.1.0.0/16", "10.1.2.0/24"
check("overlap is mutual", subnets.overlap(wide, narrow) and subnets.overlap(narrow, wide))
check("neighbours do not overlap", not subnets.overlap("10.1.2.0/24", "10.1.3.0/24"))

-- Losses.
local function samples(...)
    local out = {}
    for i, works in ipairs { ... } do
        out[i] = { at = i / 10, works = works == 1 }
    end
    return out
end
is("nothing lost", settle.lost(samples(1, 1, 1)), 0)
is("one lost", settle.lost(samples(1, 0, 1, 1)), 100)
is("two of them", settle.lost(samples(1, 0, 0, 1, 0, 1)), 300)
is("to the end", settle.lost(samples(1, 0, 0, 0)), 200)
is("none at all", settle.lost({}), 0)
check("three in a row are back", settle.recovered(samples(0, 1, 1, 1), 0))
check("two are not", not settle.recovered(samples(1, 0, 1, 1), 0))
check("nor are some from before the change", not settle.recovered(samples(1, 1, 1, 1), 0.25))
check("nor none", not settle.recovered({}, 0))

-- What the change throws ends the watching, which goes on until the change is made.
local place = {
    attempt = function(_, stages)
        task.sleep(1)
        local out = {}
        for i, stage in ipairs(stages) do
            out[i] = {}
            for j in ipairs(stage) do
                out[i][j] = { outcome = "reachable", ms = 1 }
            end
        end
        return out, {}
    end,
}
local function watched(change)
    local asked = {
        what = "a place",
        specs = function()
            return { { proto = "tcp", to = "192.0.2.1", port = 1 } }
        end,
    }
    return pcall(settle.watch, { a = place, data = { budgets = { settle = 1000 } } }, { asked }, change)
end
local ended, state = watched(function()
    return {}
end)
check("a change that is made is watched to its end", ended and state.before ~= nil, state)
ended, state = watched(function()
    error("refused", 0)
end)
check("one that throws, too", not ended and tostring(state):find("refused", 1, true), state)

-- Names: a bridge's has at most 15 characters.
is("a name's part", own.part("d.internal"), "int")
is("without what a name may not have", own.part("d.a-b_c.d"), "abc")
is("never empty", own.part("d.-_"), "x")
is("a network's name fits", #own.name(own.part("d.internal")), 15)

-- When the stages of a run began.
local N = "00112233445566778899aabbccddeeff"
local starts = guest.starts(N .. " stage=1 at=0.100\nx stage=2 at=9\n" .. N .. " stage=2 at=50.200\n", N)
check("stages' starts", starts[1] == 0.1 and starts[2] == 50.2 and #starts == 2)
is("a lost run has none", #guest.starts("", N), 0)

-- A spec is checked when it is loaded.
local function refuses(what, change, keeps)
    local ok, why = pcall(rehearse, { id = "d.x", title = "x", change = change, keeps = keeps })
    check(what, not ok and tostring(why):find("rehearse: ", 1, true) ~= nil, why)
end
local keeps = { question.egress() }
refuses("no change", nil, keeps)
refuses("a change without words", { network = {} }, keeps)
refuses("two changes", { what = "x", network = {}, device = {} }, keeps)
refuses("nothing to keep", { what = "x", network = {} }, {})
refuses("a question that is none", { what = "x", network = {} }, { "egress" })
local made = rehearse { id = "d.x", title = "x", change = { what = "x", network = {} }, keeps = keeps }
is("a probe comes of it", made.id, "d.x")

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
