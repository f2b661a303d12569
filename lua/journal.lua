--- What runs left behind, as the journal has it; `revert` removes it.
local leftovers = require "leftovers"
local options = require "options"
local report = require "report"

local USAGE, REFUSED = 2, 4
local HELP = [[
usage: boxdrill journal [revert] [options]

Shows what an earlier run made on this host and did not remove, because it or the host was killed, and what
carries the tag of a run that no journal knows (that is left to you, with the commands that remove it);
`revert` removes it: asks first, waits until nothing of that run is under way in Incus, deletes what is
still that run's own, and looks whether it is gone. Doing it twice is harmless.

  --yes            ask nothing

Exit status: 0 nothing is left; 2 usage, consent or privilege missing; 4 something is left, or the
journal is in use or cannot be read; 5 something could not be removed (it says what).
]]

local TEXT = {
    whole = nil,
    cut = "its last line was cut off: what that line announces was never asked for",
    damaged = "a line of it is damaged: look for what else is named bd-..., then delete the file",
    version = "another version of boxdrill wrote it: revert with that one",
}

local function finish(code, message, style)
    report.say(message, style)
    engine.call("exit", code)
end

local function say(entry)
    report.say(("%s  %-8s %s (project %s), made %s by run %s"):format(entry.state, entry.kind, entry.name,
        entry.project, os.date("!%Y-%m-%d %H:%M:%SZ", entry.time), entry.run))
    local by_hand = leftovers.by_hand(entry.kind, entry.project, entry.name)
    if entry.state == "open" and by_hand then
        report.say("      by hand: " .. by_hand, "dim")
    end
end

-- The journal, said; `open`: how many of its entries are.
local function read()
    local journal, why = leftovers.journal()
    if not journal then
        return nil, why
    end
    journal.open = 0
    for _, entry in ipairs(journal.entries) do
        say(entry)
        journal.open = journal.open + (entry.state == "open" and 1 or 0)
    end
    return journal
end

-- What is in no journal is said, and left to the operator. @return whether there is something
local function say_untracked()
    local text, why = leftovers.say_untracked()
    if text or why then
        report.say(text or "what is in no journal could not be looked for: " .. why, "yellow")
    end
    return text ~= nil
end

-- Takes over what is open; where nothing is, a journal that has no entries goes all the same (root's to remove).
local function revert(journal)
    local open = journal.open > 0 or journal.state ~= "whole"
    if open and engine.call("confirm", "Remove what is open?") ~= "1" then
        return finish(USAGE, "not agreed to: nothing was done (--yes agrees beforehand)")
    end
    local done, why = true, nil
    if open or report.options().root == "1" then
        engine.call("grant", "journal")
        done, why = engine.call("journal.adopt")
    end
    if not done and why then
        finish(REFUSED, why, "red")
    elseif not open then
        report.say("Nothing to revert.", "green")
    end
end

local function main(...)
    local ok, found, rest = pcall(options.parse, { help = "flag" }, ...)
    if not ok then
        return finish(USAGE, found)
    elseif found.help then
        return report.say(HELP)
    elseif rest[2] or (rest[1] and rest[1] ~= "revert") then
        return finish(USAGE, ("journal takes no '%s' (see --help)"):format(rest[2] or rest[1]))
    end
    local journal, why = read()
    if not journal then
        return finish(REFUSED, why, "red")
    end
    if TEXT[journal.state] then
        report.say(("%s: %s"):format(journal.file, TEXT[journal.state]), "yellow")
    end
    local untracked = say_untracked()
    if rest[1] == "revert" then
        return revert(journal)
    elseif journal.open > 0 or journal.state ~= "whole" then
        return finish(REFUSED, "'boxdrill journal revert' removes it.")
    elseif untracked then
        return engine.call("exit", REFUSED)
    end
    report.say("Nothing is left behind.", "green")
end

main(...)
