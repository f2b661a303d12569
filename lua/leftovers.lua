--- What earlier runs left on this host: by the journal, and by the tag that everything of a run carries.
local incus = require "incus"
local own = require "own"
local report = require "report"
local start = require "start"

local leftovers = {}

local REFUSED = 4

-- The kinds of things that are tagged: how all of them are read, and what removes one by hand. What uses another
-- comes before it, so that the commands can be given in this order.
local KINDS = {
    { kind = "instance", all = incus.instances, remove = "incus delete -f --project %s %s" },
    { kind = "profile", all = incus.profiles, remove = "incus profile delete --project %s %s" },
    { kind = "network", all = incus.networks, remove = "incus network delete --project %s %s" },
    { kind = "acl", all = incus.acls, remove = "incus network acl delete --project %s %s" },
}

--- What the journal has.
-- @return { file, state (docs/requests.md), entries = array of { state = "open" or "kept", run, kind, project, name,
--   time (seconds since the epoch) } }; or nil, message, code
function leftovers.journal()
    local texts, entries = table.pack(engine.call("journal.show")), {}
    if not texts[1] then
        return nil, texts[3] == "EACCES" and "the journal: only root may read it" or texts[2], texts[3]
    end
    for i = 3, texts.n - 5, 6 do
        entries[#entries + 1] = {
            state = texts[i], run = texts[i + 1], kind = texts[i + 2],
            project = texts[i + 3], name = texts[i + 4], time = tonumber(texts[i + 5]),
        }
    end
    return { file = texts[1], state = texts[2]:match("%S+"), entries = entries }
end

--- The command that removes one by hand. @param kind @param project @param name
function leftovers.by_hand(kind, project, name)
    for _, one in ipairs(KINDS) do
        if one.kind == kind then
            return one.remove:format(project, name)
        end
    end
    return nil
end

local function key_of(kind, project, name)
    return table.concat({ kind, project, name }, " ")
end

-- A thing with the tag of a run that the journal does not know. It is that run's when its name says so as well: a
-- copy keeps the tag and not the name, and is its maker's.
local function untracked(kind, thing, known)
    local run = type(thing.config) == "table" and thing.config[own.TAG]
    if not run or run == engine.run_id or known[key_of(kind, thing.project, thing.name)] then
        return nil
    end
    return {
        kind = kind, project = thing.project, name = thing.name, run = run,
        theirs = not (run:find("^%x+$") and thing.name:find("bd-" .. run .. "-", 1, true) == 1),
    }
end

--- What carries a run's tag, in any project, and is in no journal.
-- @return array of { kind, project, name, run, theirs: a copy that somebody made }; or nil, message, code
function leftovers.untracked()
    local journal, why, code = leftovers.journal()
    if not journal then
        return nil, why, code
    end
    local known, out = {}, {}
    for _, entry in ipairs(journal.entries) do
        known[key_of(entry.kind, entry.project, entry.name)] = true
    end
    for _, one in ipairs(KINDS) do
        local things
        things, why, code = one.all("*")
        if not things then
            return nil, ("%ss: %s"):format(one.kind, why), code
        end
        for _, thing in ipairs(things) do
            out[#out + 1] = untracked(one.kind, thing, known)
        end
    end
    return out
end

local function say_copy(found)
    report.say(("note: %s %s (project %s) is a copy of something of run %s, somebody's own: left alone"):format(
        found.kind, found.name, found.project, found.run), "dim")
end

--- Says what is untracked: copies in a line each, the rest with what removes it.
-- @return how to remove what is no copy, as text; nil when there is none; or nil, message where that cannot be seen
function leftovers.say_untracked()
    local all, why = leftovers.untracked()
    if not all then
        return nil, why
    end
    local lines = {}
    for _, found in ipairs(all) do
        if found.theirs then
            say_copy(found)
        else
            lines[#lines + 1] = "  " .. leftovers.by_hand(found.kind, found.project, found.name)
        end
    end
    return #lines > 0 and ("these carry the tag of an earlier run and no journal knows them; remove them:\n%s\n"
        .. "  (or take the key %s off what is yours)"):format(
        table.concat(lines, "\n"), own.TAG) or nil
end

--- Ends the script (exit status 4) where something untracked is left: a run does not start on it. Called with the
-- host's lock held.
-- @return whether the script may go on
function leftovers.may_start()
    local text, why = leftovers.say_untracked()
    if text then
        start.stop(REFUSED, "refused: " .. text)
    elseif why then
        start.stop(REFUSED, "refused: whether an earlier run left something cannot be seen: " .. why)
    end
    return not text and not why
end

return leftovers
