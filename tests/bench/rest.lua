-- A list of instances, and an exec in a box: over REST as boxdrill does it, and by the client; both
-- in turn, so that both see the same machine. Prints "WHAT REST-ms CLIENT-ms" (medians).
engine.call("grant", "box.mint", "box.exec", "host.exec")
local name = "bd-" .. engine.run_id .. "-bench"
local function must(status, ...)
    assert(status and tonumber(status) < 300, ...)
end
must(engine.call("instance.create", "default", name, "container", "", "debian/13/cloud", "profiles", "", "", "box-net"))
must(engine.call("instance.start", "default", name))
engine.call("sleep", 3000)

local function by_client(...)
    assert(engine.call("exec", 20000, 1000, 1 << 20, ...) == "exit")
end

local function median(times)
    table.sort(times)
    return times[#times // 2 + 1] * 1000
end

local function compare(what, rest, client)
    local a, b = {}, {}
    for i = 1, 30 do
        local t = engine.clock()
        rest()
        a[i] = engine.clock() - t
        t = engine.clock()
        client()
        b[i] = engine.clock() - t
    end
    print(("%s %.2f %.2f"):format(what, median(a), median(b)))
end

compare("list", function()
    must(engine.call("instance.list", "default"))
end, function()
    by_client("incus", "list", "--format", "json")
end)
compare("exec", function()
    assert(engine.call("instance.exec", "default", name, 5000, 1000, "true"))
end, function()
    by_client("incus", "exec", name, "-T", "-n", "--", "true")
end)
