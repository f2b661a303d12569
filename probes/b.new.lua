-- A mint: exit 0, tagged, on the contract's profile, the template's user, the resources that were asked for: a
-- flag beats the environment, and that the template.
local cli = require "cli"
local incus = require "incus"

local function config_of(t, name)
    local instance, why = incus.instance(t.contract.project, name)
    if not instance then
        t:error(("%s: %s"):format(name, why))
    end
    return instance
end

-- One key of a box, against what it has to be.
local function key_is(t, instance, key, wanted, clause)
    local value = instance.config[key]
    t:expect(value == wanted, ("%s of a new box"):format(key), {
        clause = ("%s: %s"):format(clause, wanted),
        seen = value or "not set",
        by_hand = ("incus config get %s %s"):format(instance.name, key),
    })
end

local function placed(t, instance)
    local tag, profile = t.contract.tags[1], t.contract.profile.name
    key_is(t, instance, tag.key, tag.value, "a box has the tag")
    t:expect(#instance.profiles == 1 and instance.profiles[1] == profile, "the profiles of a new box", {
        clause = ("the contract's profile and no other: %s"):format(profile),
        seen = table.concat(instance.profiles, ", "),
        by_hand = ("incus config show %s"):format(instance.name),
    })
end

local function minted(t, name, result)
    if not result then
        return nil
    end
    local right = result.code == 0 and result.text:find(cli.pattern "ready")
    cli.expect(t, right, "new", result, ("exit 0, and it says %q"):format(cli.pattern "ready"))
    return right and config_of(t, name)
end

-- What the template says, where it can be read.
local function from_template(t, one, two)
    local template, why = cli.template(t.contract.cli.template)
    if not template then
        return t:note("the template cannot be read, so what a box has from it is not judged: " .. why)
    end
    if template.BOX_USER then
        key_is(t, one, "user.box.user", template.BOX_USER, "the template's user")
    end
    if template.BOX_CPU and two then
        key_is(t, two, "limits.cpu", template.BOX_CPU, "nothing else asked for: the template's")
    end
end

return {
    id = "b.new",
    title = "a new box is tagged, placed, and has what was asked for",
    needs = { "box.cli" },
    run = function(t)
        if not cli.open(t) then
            return
        end
        local first, second
        engine.all {
            function()
                first = minted(t, cli.mint_one(t))
            end,
            function()
                second = minted(t, cli.mint_two(t))
            end,
        }
        if first then
            local asked = cli.asked()
            placed(t, first)
            key_is(t, first, "limits.cpu", asked.flag_cpu, "the flag beats the environment")
            key_is(t, first, "limits.memory", asked.env_memory, "the environment beats the template")
            from_template(t, first, second)
        end
    end,
}
