-- The first code that runs in every worker, and the only Lua that sees the raw engine functions.
-- It is called by engine/worker.c, inside the sandbox, with
--   raw.send(op, ...) -> id          write one request
--   raw.recv() -> id, status, ...    wait for one reply (blocking)
--   raw.clock() -> seconds           CLOCK_MONOTONIC
--   raw.random() -> 32 hex digits    from the kernel
--   raw.traceback(thread, message)   as debug.traceback
--   raw.cjson                        the lua-cjson module
-- It builds the environment that scripts and probes see (an allow-list with strict globals), runs
-- tasks side by side, and reports how the script or probe ended.
local raw = ...

local co_create, co_resume, co_yield = coroutine.create, coroutine.resume, coroutine.yield
local co_status, co_yieldable, co_close = coroutine.status, coroutine.isyieldable, coroutine.close
local load, pack, unpack = load, table.pack, table.unpack
local error, xpcall, tostring, type, select = error, xpcall, tostring, type, select

---------------------------------------------------------------------------------------------------
-- The scheduler. A task is a coroutine of our own; whatever it waits for is a waiter: a table whose
-- `done` becomes true and whose `task` is then made ready. Yields of the engine carry MARK, which
-- no script can get hold of, so that they pass through a script's own coroutines.

local MARK = {}
local waiting = {} -- request id -> waiter
local ready = {} -- tasks that can go on, in order
local unseen = {} -- tasks that ended in an error which nobody has been told yet
local last_op = "none"

local function wake(waiter)
    waiter.done = true
    if waiter.task then
        ready[#ready + 1] = waiter.task
        waiter.task = nil
    end
end

local function step(task)
    local result = pack(co_resume(task.co))
    if co_status(task.co) == "dead" then
        task.ok, task.result = result[1], result
        if not result[1] then
            task.result = { false, raw.traceback(task.co, tostring(result[2])) }
            unseen[task] = true
        end
        wake(task)
    elseif result[2] ~= MARK then
        task.ok, task.result = false, { false, "attempt to yield outside a coroutine" }
        co_close(task.co)
        wake(task)
    elseif result[3].done then
        ready[#ready + 1] = task
    else
        result[3].task = task
    end
end

local function receive()
    local reply = pack(raw.recv())
    local waiter = waiting[reply[1]]
    waiting[reply[1]] = nil
    if waiter then
        waiter.reply = reply
        wake(waiter)
    end
end

-- Runs tasks and takes replies until `waiter` is done. Where the running code can not yield (a sort
-- or gsub callback) it is called from there, one level deeper.
local function pump(waiter)
    while not waiter.done do
        if #ready > 0 then
            step(table.remove(ready, 1))
        else
            receive()
        end
    end
end

local function await(waiter)
    if waiter.done then
        return
    end
    if co_yieldable() then
        co_yield(MARK, waiter)
    else
        pump(waiter)
    end
end

local function spawn(f, ...)
    local args = pack(...)
    local task = {
        co = co_create(function()
            return f(unpack(args, 1, args.n))
        end),
    }
    ready[#ready + 1] = task
    return task
end

---------------------------------------------------------------------------------------------------
-- engine: what the Lua library stands on.

local engine = {}

-- Asks the broker for one operation (docs/requests.md).
-- Arguments: the operation's name and its arguments; strings, or integers that become text.
-- Returns the reply's values, or nil, message, code. Misuse (EINVAL) and a grant that is not held
-- (EPERM) are thrown.
function engine.call(op, ...)
    local args = pack(...)
    for i = 1, args.n do
        local v = args[i]
        if math.type(v) == "integer" then
            args[i] = tostring(v)
        elseif type(v) ~= "string" then
            error(("%s: argument %d is a %s, not a string or an integer"):format(op, i, type(v)), 2)
        end
    end
    last_op = op
    local waiter = {}
    waiting[raw.send(op, unpack(args, 1, args.n))] = waiter
    await(waiter)
    local reply = waiter.reply
    if reply[2] == "ok" then
        return unpack(reply, 3, reply.n)
    elseif reply[2] == "EINVAL" or reply[2] == "EPERM" then
        error(reply[3], 2)
    end
    return nil, reply[3], reply[2]
end

-- Runs the functions of a list side by side and waits for all of them.
-- Returns a list of their packed results (`table.pack`), in the list's order. The first error is
-- thrown again, after all have ended.
function engine.all(functions)
    local tasks, results = {}, {}
    for i, f in ipairs(functions) do
        tasks[i] = spawn(f)
    end
    for _, task in ipairs(tasks) do
        await(task)
    end
    for _, task in ipairs(tasks) do
        unseen[task] = nil
    end
    for i, task in ipairs(tasks) do
        if not task.ok then
            error(task.result[2], 0)
        end
        results[i] = pack(unpack(task.result, 2, task.result.n))
    end
    return results
end

-- Starts a function beside the caller and returns a function that waits for it and returns its
-- results; an error in it is thrown there.
function engine.spawn(f, ...)
    local task = spawn(f, ...)
    return function()
        await(task)
        unseen[task] = nil
        if not task.ok then
            error(task.result[2], 0)
        end
        return unpack(task.result, 2, task.result.n)
    end
end

-- Seconds of a clock that never jumps, as a float.
engine.clock = raw.clock

-- 32 fresh hexadecimal digits that nobody can guess: nonces and tokens.
engine.random = raw.random

-- The name of the last operation asked for: what an error report names.
function engine.last()
    return last_op
end

---------------------------------------------------------------------------------------------------
-- The environment of scripts, probes and library modules.

-- A script's own coroutines: a yield of the engine inside one goes on outward to the scheduler.
local sandbox_coroutine = {
    create = co_create,
    status = co_status,
    close = co_close,
    running = coroutine.running,
    isyieldable = co_yieldable,
    yield = co_yield,
}

local function through(co, result)
    while result[1] and result[2] == MARK do
        await(result[3])
        result = pack(co_resume(co))
    end
    return result
end

function sandbox_coroutine.resume(co, ...)
    local result = through(co, pack(co_resume(co, ...)))
    return unpack(result, 1, result.n)
end

function sandbox_coroutine.wrap(f)
    local co = co_create(f)
    return function(...)
        local result = through(co, pack(co_resume(co, ...)))
        if not result[1] then
            co_close(co)
            error(result[2], 0)
        end
        return unpack(result, 2, result.n)
    end
end

local function copy(from, names)
    local to = {}
    for name in names:gmatch("%S+") do
        to[name] = from[name]
    end
    return to
end

local env = copy(
    _G,
    [[assert error getmetatable ipairs next pairs pcall rawequal rawget rawlen rawset select
    setmetatable tonumber tostring type xpcall math string table utf8 _VERSION]]
)
env._G = env
env.coroutine = sandbox_coroutine
env.os = copy(os, "clock date difftime time")
env.engine = engine

function env.collectgarbage(what)
    if what ~= nil and what ~= "collect" and what ~= "count" then
        error("collectgarbage: only 'collect' and 'count'", 2)
    end
    return collectgarbage(what)
end

-- Text only: bytecode is never loaded (it can break the interpreter).
function env.load(chunk, name, _, environment)
    return load(chunk, name, "t", environment or env)
end

for _, name in ipairs({ "dofile", "loadfile", "debug", "io", "package" }) do
    env[name] = setmetatable({}, {
        __index = function(_, field)
            error(("%s.%s is not available in the sandbox"):format(name, tostring(field)), 2)
        end,
        __call = function()
            error(name .. " is not available in the sandbox", 2)
        end,
    })
end

local loaded = { cjson = raw.cjson, engine = engine }

-- Loads a module of the Lua library, once.
function env.require(name)
    if loaded[name] ~= nil then
        return loaded[name]
    end
    if type(name) ~= "string" then
        error("require: the module's name is a string", 2)
    end
    local chunk, source = engine.call("module", name)
    if not chunk then
        error(("require: no module '%s' in the library: %s"):format(name, source), 2)
    end
    local f, message = load(source, "@" .. chunk, "t", env)
    if not f then
        error(message, 0)
    end
    loaded[name] = false
    local module = f(name)
    loaded[name] = module == nil or module
    return loaded[name]
end

-- print writes through the broker, which escapes what a terminal would act on.
function env.print(...)
    local parts = {}
    for i = 1, select("#", ...) do
        parts[i] = tostring((select(i, ...)))
    end
    engine.call("print", "plain", table.concat(parts, "\t") .. "\n")
end

-- Strict globals: reading or setting one that is not there is an error.
setmetatable(env, {
    __index = function(_, name)
        error(("undefined global '%s'"):format(tostring(name)), 2)
    end,
    __newindex = function(_, name)
        error(("assignment to undeclared global '%s': use local"):format(tostring(name)), 2)
    end,
    __metatable = false,
})

---------------------------------------------------------------------------------------------------
-- What this worker is for.

-- An error in a task that was started and never waited for is an error all the same.
local function tell_unseen()
    local task = next(unseen)
    if task then
        error(task.result[2], 0)
    end
end

local function run_script(source, chunk, ...)
    local f, message = load(source, "@" .. chunk, "t", env)
    if not f then
        error(message, 0)
    end
    f(...)
end

local function run_probe(source, chunk)
    local probe = env.require("probe")
    local definition = probe.load(source, chunk)
    local needs = definition.needs or {}
    local boxes = pack(engine.call("declare", definition.id, probe.metadata(definition), unpack(needs)))
    local verdict, evidence = probe.run(definition, unpack(boxes, 1, boxes.n))
    tell_unseen()
    engine.call("verdict", verdict, raw.cjson.encode(evidence))
end

local function main()
    local self = pack(engine.call("self"))
    local kind, chunk, source = self[1], self[2], self[3]
    engine.run_id = self[4]
    if kind == "probe" then
        run_probe(source, chunk)
    else
        run_script(source, chunk, unpack(self, 5, self.n))
        tell_unseen()
    end
end

local task = spawn(function()
    local failed
    local ok, message = xpcall(main, function(message)
        failed = raw.traceback(nil, tostring(message))
        return failed
    end)
    if not ok then -- for want of memory Lua does not call the handler
        engine.call("fail", failed or tostring(message), last_op)
    end
end)
pump(task)
