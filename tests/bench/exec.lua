-- exec of /bin/true, N times one after the other; prints milliseconds each.
engine.call("grant", "host.exec")
local n = math.tointeger(tonumber((...)))
local from = engine.clock()
for _ = 1, n do
    assert(engine.call("exec", 10000, 1000, 100, "true") == "exit")
end
print(("%.3f"):format((engine.clock() - from) * 1000 / n))
