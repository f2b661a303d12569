--- Work side by side. Every primitive yields, so a function reads as a straight line and several of them
-- run beside each other in one worker.
local task = {}

--- Runs functions side by side and waits for all.
-- @param functions array
-- @return array of their packed results (table.pack). The first error is thrown, after all have ended
function task.all(functions)
    return engine.all(functions)
end

--- Runs f(item, index) for each item, side by side.
-- @return array of first results, in the items' order
function task.map(items, f)
    local work = {}
    for i, item in ipairs(items) do
        work[i] = function()
            return f(item, i)
        end
    end
    local out = {}
    for i, result in ipairs(engine.all(work)) do
        out[i] = result[1]
    end
    return out
end

--- Starts f beside the caller. @return a function that waits for it and returns its results
function task.spawn(f, ...)
    return engine.spawn(f, ...)
end

--- Waits. @param ms milliseconds @param what for what, as text for whoever watches; may be left out
function task.sleep(ms, what)
    engine.call("sleep", ms, what or "")
end

--- Asks again and again until f returns a true value or the time is over.
-- @param ms how long at most, in milliseconds @param every the pause between two, in milliseconds
-- @param f called at least once
-- @param what what is waited for, as text for whoever watches; may be left out
-- @return f's value, or nil when the time was over
function task.poll(ms, every, f, what)
    local give_up = engine.clock() + ms / 1000
    while true do
        local value = f()
        if value then
            return value
        elseif engine.clock() >= give_up then
            return nil
        end
        task.sleep(every, what)
    end
end

return task
