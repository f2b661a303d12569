-- Things that bear a run's tag and stand in no journal: somebody removed the journal. A tag alone does not prove that
-- it is ours to delete, so it is named; what only is a copy of one of ours (a copy keeps the tag) is its maker's.
local leftovers = require "leftovers"
local stack = require "stack"

local function tell(t, found)
    local what = ("%s %s (project %s) bears the tag of run %s and is in no journal"):format(
        found.kind, found.name, found.project, found.run)
    if found.theirs then
        return t:note(what .. ": a copy that somebody made")
    end
    stack.dirty(t, what, {
        why = "nobody will remove it, and no run starts beside it",
        mend = "look at it, then: " .. leftovers.by_hand(found.kind, found.project, found.name),
    })
end

local function tell_kept(t)
    for _, entry in ipairs(leftovers.journal().entries) do
        if entry.state == "kept" then
            t:note(("%s %s was kept on request, by run %s"):format(entry.kind, entry.name, entry.run))
        end
    end
end

return {
    id = "h.leftovers",
    title = "nothing bears a run's tag outside the journal",
    run = function(t)
        local all = stack.read(t, "what bears a run's tag", leftovers.untracked())
        if not all then
            return
        end
        for _, found in ipairs(all) do
            tell(t, found)
        end
        tell_kept(t)
        if t:verdict() ~= "FAIL" then
            t:pass("nothing does")
        end
    end,
}
