--- The doctor: is this host fit? Asks every check side by side, each with a deadline of its own, and says what is
-- clean, what is dirty, what is not set up yet and what could not be asked. Changes nothing, but with --fix and
-- --pin-dns.
local clinic = require "clinic"
local contract = require "contract"
local deviation = require "deviation"
local incus = require "incus"
local report = require "report"
local session = require "session"
local stall = require "stall"
local start = require "start"
local task = require "task"

-- All side by side, so the whole is over in less than thirty seconds.
local CHECK_MS = 20000
local REFUSED, NOT_REVERTED = 4, 5
local HELP = [[
usage: boxdrill doctor.lua [options] [CHECK ...]

Looks whether this host is fit to run boxes, or only at the named checks (boxdrill list has them: h.*). It reads;
it needs no box to be running. Each problem comes with why it matters and the command that mends it.

  clean                 it is as the contract says
  DIRTY                 it is not
  not set up yet        nothing of the contract's stack is there: a fresh host
  nothing to ask        what the check looks at is not there (no box is running)
  could not be asked    and why: who does not answer, or whose permission it takes

  --stall          show what is running and what it may be waiting for: boxdrill's processes, Incus's
                   operations, apt's and dpkg's locks, dnsmasq, the daemon's last log lines. For a second
                   terminal, when a drill stands still
  --fix            first remove what an earlier run left behind, as its journal has it (asks; needs root)
  --pin-dns        first set the boxes' resolver to the contract's public ones (asks; needs root). The network is
                   changed: running boxes have no answers for a tenth of a second
  --yes            ask nothing
  --json           one JSON object a line (docs/json.md)
  --site FILE      the site's changes to the contract

A user that is not root gets the checks that are theirs to see, and is told what they could not see.

Packets: the host asks the boxes' resolver for a name, and where that does not answer the contract's public ones.
Where a box is running, `ip`, `getent` and `curl` are asked in one: it sends what they send, to the contract's
public addresses (and the host tries those that the box does not reach). Nothing is put into the box.
]]
local HELP_END = [[

Exit status: 0 clean, or a fresh host; 1 problems; 2 usage, consent or privilege missing; 3 nothing is wrong, but
something could not be asked; 4 refused: a run is in progress; 5 something could not be removed.
]]
local KNOWN = { stall = "flag", fix = "flag", ["pin-dns"] = "flag" }

-- The checks that were named, or all.
local function chosen(names)
    if #names == 0 then
        return session.probes(session.files(true))
    end
    for _, name in ipairs(names) do
        if not session.is_check(name) or name:find("/", 1, true) then
            start.refuse(("doctor.lua: %s is no check (boxdrill list has them: h.*)"):format(name))
            return nil
        end
    end
    local checks = session.probes(names)
    for _, check in ipairs(checks) do
        if check.missing then
            start.refuse(("doctor.lua: there is no check %s (boxdrill list has them: h.*)"):format(check.id))
            return nil
        end
    end
    return checks
end

local function ask(check)
    if not check.broken then
        engine.call("probe.limit", check.file, CHECK_MS)
    end
    local result = session.run_one(check, {})
    clinic.say(result)
    return result
end

-- Takes back what an earlier run left. Returns whether the doctor goes on.
local function fix()
    local state, open = clinic.leftovers()
    if not state then
        start.stop(REFUSED, "--fix: the journal: " .. open)
        return false
    elseif #open == 0 and state == "whole" then
        report.say("Nothing to fix: no earlier run left anything in the journal.")
        return true
    elseif engine.call("confirm", ("Remove what an earlier run left behind?\n  %s\nRemove it?"):format(
        table.concat(open, "\n  "))) ~= "1" then
        start.refuse("not agreed to: nothing was done (--yes agrees beforehand)")
        return false
    end
    engine.call("grant", "journal")
    local done, why, code = engine.call("journal.revert")
    if why and not done then
        start.stop(code == "EBUSY" and REFUSED or NOT_REVERTED, "--fix: " .. why)
        return false
    end
    report.say("Removed what an earlier run left behind.", "green")
    return true
end

local KEY = "raw.dnsmasq"

-- Sets the network's resolver pin, and looks whether it took. Returns whether the doctor goes on.
local function pin_dns(data)
    local network, etag = incus.network(data.project, data.network.name)
    local names, why = incus.attached(data.network.name)
    if not network or not names then
        start.stop(3, ("--pin-dns: network %s: %s"):format(data.network.name, network and why or etag))
        return false
    end
    local wanted, before = data.network.config[KEY], network.config[KEY] or ""
    if before == wanted then
        report.say("Nothing to pin: the boxes' resolver is the contract's.")
        return true
    end
    local question = ("%s of network %s: %s -> %s\nAttached: %s\nChange it?"):format(KEY, network.name,
        deviation.shown(before), deviation.shown(wanted), #names > 0 and table.concat(names, ", ") or "nobody")
    if engine.call("confirm", question) ~= "1" then
        start.refuse("not agreed to: nothing was done (--yes agrees beforehand)")
        return false
    end
    engine.call("grant", "setup")
    local done
    done, why = incus.patch_network(data.project, network.name, etag, {
        description = network.description,
        config = { [KEY] = wanted },
    })
    local after = incus.network(data.project, network.name)
    if not done or not after or after.config[KEY] ~= wanted then
        start.stop(3, ("--pin-dns: it did not take: %s"):format(done and "it reads otherwise" or why))
        return false
    end
    report.say(("Pinned: the boxes' resolver asks %s."):format(table.concat(data.network.resolvers, " ")), "green")
    return true
end

local function examine(names)
    local checks = chosen(names)
    if not checks then
        return
    end
    local started = engine.clock()
    local results = task.map(checks, ask)
    engine.call("exit", clinic.summary(results, (engine.clock() - started) * 1000))
end

local function main(...)
    local found, names = start.options("doctor.lua", KNOWN, HELP .. HELP_END, ...)
    if not found then
        return
    elseif (found.fix or found["pin-dns"]) and report.options().root ~= "1" then
        return start.refuse("doctor.lua: --fix and --pin-dns change this host: run it as root")
    elseif found.stall then
        return stall.show()
    end
    engine.call("grant", "probes", "host.connect", "box.look")
    if found.fix and not fix() or found["pin-dns"] and not pin_dns(contract.load()) then
        return
    end
    examine(names)
end

main(...)
