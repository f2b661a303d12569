-- `list --format csv --columns nstS`: four fields that a naive reader of CSV can split.
local client = require "client"

local COLUMNS = "nstS"

-- The fields of one CSV line without quotes, and whether it was one.
local function fields_of(text)
    local line = text:match("^([^\n]*)\n$")
    if not line or line:find('"', 1, true) then
        return {}, false
    end
    local fields = {}
    for field in (line .. ","):gmatch("([^,]*),") do
        fields[#fields + 1] = field
    end
    return fields, true
end

local function clean(fields, name)
    return #fields == 4 and fields[1] == name and fields[2]:find("^%u+$") ~= nil
        and fields[3]:find("^%u[%u -]*$") ~= nil and fields[4]:find("^%d+$") ~= nil
end

return {
    id = "a.columns",
    title = "name, state, type and snapshots are four clean CSV fields",
    needs = { "client" },
    boxes = 1,
    run = function(t, box)
        local result = client.must(t, "list-columns", box.name, COLUMNS)
        if not result then
            return
        end
        local fields, plain = fields_of(result.stdout)
        t:expect(plain and clean(fields, box.name), ("list --columns %s"):format(COLUMNS), {
            clause = "NAME,STATE,TYPE,SNAPSHOTS on one line, nothing quoted",
            seen = client.text(result),
            by_hand = client.by_hand("list-columns", box.name, COLUMNS),
        })
    end,
}
