-- Things that bear a run's tag and stand in no journal: somebody removed the journal, or copied one of ours (a
-- copy keeps the tag). A tag alone does not prove that it is ours to delete, so it is named.
local incus = require "incus"
local own = require "own"
local stack = require "stack"

local READ = {
    { kind = "instance", list = incus.instances, delete = "incus delete -f %s --project %s" },
    { kind = "network", list = incus.networks, delete = "incus network delete %s --project %s" },
    { kind = "acl", list = incus.acls, delete = "incus network acl delete %s --project %s" },
    { kind = "profile", list = incus.profiles, delete = "incus profile delete %s --project %s" },
}

-- What the journal knows, "KIND PROJECT NAME": the state of each.
local function journaled()
    local texts, out = table.pack(engine.call("journal.show")), {}
    if not texts[1] then
        return nil, texts[3] == "EACCES" and "only root may read it" or texts[2]
    end
    for i = 3, texts.n - 5, 6 do
        out[("%s %s %s"):format(texts[i + 2], texts[i + 3], texts[i + 4])] = texts[i]
    end
    return out
end

local function look(t, known, one)
    local found = stack.read(t, ("each %s"):format(one.kind), one.list("*"))
    if not found then
        return false
    end
    for _, thing in ipairs(found) do
        local run = (thing.config or {})[own.TAG]
        local project = thing.project or "default"
        local state = known[("%s %s %s"):format(one.kind, project, thing.name)]
        if run and not state then
            stack.dirty(t, ("%s %s (project %s) bears the tag of run %s and is in no journal"):format(
                one.kind, thing.name, project, run), {
                why = "nobody will remove it, and it may be a copy that is somebody's",
                mend = "look at it, then: " .. one.delete:format(thing.name, project),
            })
        elseif state == "kept" then
            t:note(("%s %s was kept on request, by run %s"):format(one.kind, thing.name, run))
        end
    end
    return true
end

return {
    id = "h.leftovers",
    title = "nothing bears a run's tag outside the journal",
    run = function(t)
        local known, why = journaled()
        if not known then
            return stack.unasked(t, "the journal", why)
        end
        local all = true
        for _, one in ipairs(READ) do
            all = look(t, known, one) and all
            if not all then
                return
            end
        end
        if t:verdict() ~= "FAIL" then
            t:pass("none does")
        end
    end,
}
