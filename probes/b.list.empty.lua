-- `list` on a host that has no boxes: says so, exit 0. Asked before the drill mints its own.
local cli = require "cli"
local incus = require "incus"

-- The names of instances with one of the contract's tags; nil, message when they cannot be read.
local function tagged(t)
    local all, why = incus.instances("*")
    if not all then
        return nil, why
    end
    local out = {}
    for _, instance in ipairs(all) do
        for _, tag in ipairs(t.contract.tags) do
            if instance.config and instance.config[tag.key] == tag.value then
                out[#out + 1] = instance.name
                break
            end
        end
    end
    return out
end

return {
    id = "b.list.empty",
    title = "list says so when there are no boxes",
    needs = { "box.cli" },
    early = true,
    run = function(t)
        if not cli.open(t) then
            return
        end
        local there, why = tagged(t)
        if not there then
            return t:error("the instances: " .. why)
        elseif #there > 0 then
            local some = table.concat(there, " ", 1, math.min(#there, 5))
            return t:skip(("there are boxes on this host (%s)"):format(some))
        end
        local result = cli.run(t, { "list" })
        if result then
            cli.expect(t, result.code == 0 and result.text:find(cli.pattern "no_boxes"), "list", result,
                ("exit 0, and it says %q"):format(cli.pattern "no_boxes"))
        end
    end,
}
