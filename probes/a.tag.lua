-- Reading the tag of an instance that we tagged: a box CLI does this before every command, and a wrong answer
-- means that every one of them fails closed.
local client = require "client"

return {
    id = "a.tag",
    title = "the tag of a tagged instance reads as it was set",
    needs = { "client" },
    boxes = 1,
    run = function(t, box)
        local tag = t.contract.tags[1]
        local result = client.ask(t, "get", box.name, tag.key)
        if not result then
            return
        end
        t:expect(result.code == 0 and result.stdout == tag.value .. "\n", ("config get %s"):format(tag.key), {
            clause = ("exactly %q, exit 0"):format(tag.value),
            seen = client.text(result),
            by_hand = client.by_hand("get", box.name, tag.key),
        })
    end,
}
