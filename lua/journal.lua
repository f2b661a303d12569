--- What runs left behind, as the journal has it; `revert` removes it.
local options = require "options"
local report = require "report"

local USAGE, REFUSED = 2, 4
local HELP = [[
usage: boxdrill journal [revert] [options]

Shows what an earlier run made on this host and did not remove, because it or the host was killed;
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

-- The journal's file, its state, and its entries that are open.
local function read()
    local texts = table.pack(engine.call("journal.show"))
    if not texts[1] then
        return nil, texts[2]
    end
    local open = {}
    for i = 3, texts.n - 5, 6 do
        local entry = {
            state = texts[i], run = texts[i + 1], kind = texts[i + 2],
            project = texts[i + 3], name = texts[i + 4], time = tonumber(texts[i + 5]),
        }
        report.say(("%s  %-8s %s (project %s), made %s by run %s"):format(entry.state, entry.kind, entry.name,
            entry.project, os.date("!%Y-%m-%d %H:%M:%SZ", entry.time), entry.run))
        if entry.state == "open" then
            open[#open + 1] = entry
        end
    end
    return { file = texts[1], state = texts[2]:match("%S+"), open = open }
end

local function revert(journal)
    if #journal.open == 0 and journal.state == "whole" then
        return report.say("Nothing to revert.", "green")
    elseif engine.call("confirm", "Remove what is open?") ~= "1" then
        return finish(USAGE, "not agreed to: nothing was done (--yes agrees beforehand)")
    end
    engine.call("grant", "journal")
    local done, why = engine.call("journal.adopt")
    if not done and why then
        finish(REFUSED, why, "red")
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
    if rest[1] == "revert" then
        return revert(journal)
    elseif #journal.open > 0 or journal.state ~= "whole" then
        return finish(REFUSED, "'boxdrill journal revert' removes it.")
    end
    report.say("Nothing is left behind.", "green")
end

main(...)
