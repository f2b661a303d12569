-- The state column of a running instance.
local client = require "client"

return {
    id = "a.state",
    title = "the state of a running instance reads RUNNING",
    needs = { "client" },
    boxes = 1,
    run = function(t, box)
        if not client.running(t, box) then
            return
        end
        local result = client.must(t, "list-columns", box.name, "s")
        if result then
            t:expect(result.stdout == "RUNNING\n", "list --columns s", {
                clause = "RUNNING",
                seen = client.text(result),
                by_hand = client.by_hand("list-columns", box.name, "s"),
            })
        end
    end,
}
