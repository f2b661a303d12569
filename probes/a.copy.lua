-- `incus copy` of a tagged instance keeps every user.* key.
local client = require "client"
local incus = require "incus"
local mint = require "mint"

-- The user.* keys of an instance; nil, message when it cannot be read.
local function user_keys(project, name)
    local instance, why = incus.instance(project, name)
    if not instance then
        return nil, ("%s: %s"):format(name, why)
    end
    local out, count = {}, 0
    for key, value in pairs(instance.config) do
        if key:find("^user%.") then
            out[key], count = value, count + 1
        end
    end
    return out, count
end

local function compare(t, project, name, copy)
    local before, count = user_keys(project, name)
    local after, why = user_keys(project, copy)
    if not before or not after then
        return t:error(before and why or count)
    elseif count == 0 then
        return t:suspect("the original has no user.* key to keep")
    end
    local lost = {}
    for key, value in pairs(before) do
        if after[key] ~= value then
            lost[#lost + 1] = ("%s: %s -> %s"):format(key, value, tostring(after[key]))
        end
    end
    t:expect(#lost == 0, ("the copy keeps %d user.* keys"):format(count), {
        clause = "every user.* key is kept",
        seen = #lost == 0 and ("%d kept"):format(count) or table.concat(lost, ", "),
        by_hand = client.by_hand("copy", name, copy),
    })
end

return {
    id = "a.copy",
    title = "a copy keeps every user.* key",
    audit = "B2",
    needs = { "client", "box.mint" },
    run = function(t)
        local project, copy = t.contract.project, mint.name("x-copied")
        local done, why = mint.with("x-original", nil, function(name)
            if client.must(t, "copy", name, copy) then
                compare(t, project, name, copy)
            end
        end)
        if not done then
            t:error(why)
        end
        done, why = mint.delete(project, copy)
        if not done then
            t:error(why)
        end
    end,
}
