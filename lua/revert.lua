--- Removes what a run made and left, newest first: the last thing a run does, whatever ended it. Each step
-- is on a fresh read and verified by one; the broker runs this in a worker of its own.
local incus = require "incus"
local live = require "live"
local orphan = require "orphan"
local own = require "own"
local task = require "task"

local SETTLE_MS, EVERY_MS = 120000, 100
-- incusd may be restarting (a package upgrade): how long one thing is tried again.
local RETRY_MS, RETRY_EVERY_MS = 60000, 1000
-- What goes with its box: a forced stop ends it, so nobody waits for it.
local EXEC = "Executing command"
-- The host's clock against incusd's, when a creation is compared with its journal entry, in seconds.
local CLOCK_SLACK = 5

-- What is to be removed: { kind, project, name, run, uuid (or "-"), time (seconds since the epoch) }.
local function made()
    local texts, out = table.pack(engine.call("made.list")), {}
    for i = 1, texts.n - 5, 6 do
        out[#out + 1] = {
            kind = texts[i], project = texts[i + 1], name = texts[i + 2],
            run = texts[i + 3], uuid = texts[i + 4], time = tonumber(texts[i + 5]),
        }
    end
    return out
end

-- Whether an operation works on something that is to be removed. A client that was killed does not take
-- its operation with it: a copy goes on in incusd and comes to be after it was looked for.
local function is_about(operation, runs)
    if operation.description == EXEC or type(operation.resources) ~= "table" then
        return false
    end
    for _, urls in pairs(operation.resources) do
        for _, url in ipairs(urls) do
            if runs[url:match("/bd%-(%x+)%-")] then
                return true
            end
        end
    end
    return false
end

-- Whether nothing of these runs is under way in incusd any more: no request of a client that is gone, no operation.
-- What cannot be read is no proof.
local function settled(project, runs)
    if incus.abandoned() ~= 0 then
        return false
    end
    local states = incus.operations(project)
    for _, operations in pairs(states or {}) do
        for _, operation in ipairs(operations) do
            if is_about(operation, runs) and operation.status_code < 200 then
                return false
            end
        end
    end
    return states ~= nil
end

local function wait_until_settled(entries)
    local runs, projects = {}, {}
    for _, entry in ipairs(entries) do
        runs[entry.run], projects[entry.project] = true, true
    end
    for project in pairs(projects) do
        task.poll(SETTLE_MS, EVERY_MS, function()
            return settled(project, runs)
        end, "incusd to end what the run began")
    end
end

-- Seconds since the epoch of Incus's "2026-11-30T22:57:26.46Z"; nil when it is no such text.
local function seconds(text)
    local y, mo, d, h, mi, s = tostring(text):match("^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)")
    return y and os.time { year = y, month = mo, day = d, hour = h, min = mi, sec = s }
end

-- Whether an instance is the one that was journaled: by its uuid; before that was known, by a name that
-- carries the run's id, and by having been created after the entry. (A copy keeps the tag, not the uuid.)
local function is_ours(instance, entry)
    if entry.uuid ~= "-" then
        return instance.config["volatile.uuid"] == entry.uuid
    end
    local created = seconds(instance.created_at)
    return entry.name:find("bd-" .. entry.run .. "-", 1, true) == 1
        and created ~= nil and created >= entry.time - CLOCK_SLACK
end

-- Removes one instance. Returns true when it is gone, or is not ours; else nil, message.
local function remove_instance(entry)
    local instance, why, code = incus.instance(entry.project, entry.name)
    if not instance and not incus.missing(code) then
        return nil, ("%s: %s"):format(entry.name, why)
    elseif instance and not is_ours(instance, entry) then
        engine.call("made.foreign", entry.kind, entry.project, entry.name)
        return true
    end
    orphan.remove(entry.project, entry.name, instance)
    local _, trouble = incus.delete(entry.project, entry.name) -- also when it is missing: the broker looks
    if not incus.missing(select(3, incus.instance(entry.project, entry.name))) then
        return nil, ("%s is still there: %s"):format(entry.name, tostring(trouble))
    end
    return true
end

-- What of a network, an ACL or a profile is there. Where incusd died in the making of a network, its bridge is there,
-- and is none of Incus's: it is made one of them again, to be deleted by Incus with all that belongs to it.
local function read_own(entry)
    local found, why, code = own.KINDS[entry.kind](entry.project, entry.name)
    if entry.kind == "network" and found and found.managed == false then
        local remade
        remade, why, code = incus.remake_network(entry.project, entry.name)
        if not remade then
            return nil, why, code
        end
        return incus.network(entry.project, entry.name)
    end
    return found, why, code
end

-- Removes a network, an ACL or a profile: ours when it carries the tag of the run that made it. The same returns.
local function remove_own(entry)
    local found, why, code = read_own(entry)
    if not found and not incus.missing(code) then
        return nil, ("%s %s: %s"):format(entry.kind, entry.name, why)
    elseif found and (found.config or {})[own.TAG] ~= entry.run then
        engine.call("made.foreign", entry.kind, entry.project, entry.name)
        return true
    end
    local _, trouble = incus.delete_own(entry.kind, entry.project, entry.name) -- also when it is missing
    if not incus.missing(select(3, own.KINDS[entry.kind](entry.project, entry.name))) then
        return nil, ("%s %s is still there: %s"):format(entry.kind, entry.name, tostring(trouble))
    end
    return true
end

-- Puts back a key of a network that is not ours. One that holds neither value was changed by somebody since: it
-- is named, and left. The same returns.
local function put_back(entry)
    local network, key = entry.name:match("^([^/]+)/(.+)$")
    local before, after = entry.uuid:match("^([^>]*)>(.*)$")
    local back, why, code = live.unset(entry.project, network, key, before, after)
    if back == nil and not incus.missing(code) then
        return nil, why
    elseif not back then
        engine.call("warn", ("boxdrill: left as it is: %s\n"):format(why))
    end
    engine.call("made.foreign", entry.kind, entry.project, entry.name)
    return true
end

local WAYS = {
    instance = remove_instance,
    network = remove_own,
    acl = remove_own,
    profile = remove_own,
    key = put_back,
}

local function remove(entry)
    local remove_one = WAYS[entry.kind]
    if not remove_one then
        return nil, ("%s %s: there is no way to remove such a thing"):format(entry.kind, entry.name)
    end
    local why
    local gone = task.poll(RETRY_MS, RETRY_EVERY_MS, function()
        local done
        done, why = remove_one(entry)
        return done
    end)
    return gone, why
end

local function main()
    local entries, left = made(), {}
    wait_until_settled(entries)
    for _, entry in ipairs(entries) do
        local gone, why = remove(entry)
        if not gone then
            left[#left + 1] = why
        end
    end
    if #left > 0 then
        error("not removed:\n  " .. table.concat(left, "\n  "), 0)
    end
end

main()
