-- Listing by tag: selects a tagged instance, and not one without the tag.
local client = require "client"
local mint = require "mint"

local function has_line(text, line)
    return ("\n" .. text):find("\n" .. line .. "\n", 1, true) ~= nil
end

local function ask(t, box, untagged)
    local tag = t.contract.tags[1]
    local filter = ("%s=%s"):format(tag.key, tag.value)
    local result = client.must(t, "list-filter", filter)
    if not result then
        return
    end
    local details = { seen = client.text(result), by_hand = client.by_hand("list-filter", filter) }
    details.clause = "the tagged instance is listed"
    t:expect(has_line(result.stdout, box.name), ("list %s names %s"):format(filter, box.name), details)
    details.clause = "an instance without the tag is not listed"
    t:expect(not has_line(result.stdout, untagged), ("list %s leaves out %s"):format(filter, untagged), details)
end

return {
    id = "a.filter",
    title = "listing by tag selects ours and no other",
    needs = { "client", "box.mint" },
    boxes = 1,
    run = function(t, box)
        local done, why = mint.with("x-filter", { untagged = true }, function(name)
            if client.exists(t, name) then
                ask(t, box, name)
            else
                t:suspect("there is no untagged instance to leave out")
            end
        end)
        if not done then
            t:error(why)
        end
    end,
}
