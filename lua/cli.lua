--- The box CLI under drill, for phase B. Which one it is the broker decides (--box, else PATH), and it lets
-- through only command lines that name boxes of this run (docs/requests.md). Its texts are the contract's
-- (`cli.texts`), looked for in stdout and stderr together: CLIs split them differently.
local client = require "client"
local contract = require "contract"
local incus = require "incus"
local mint = require "mint"
local task = require "task"

local cli = {}

local CAP = 262144
local SNAPSHOT_TRIES, SNAPSHOT_MS = 10, 300
-- What the shared boxes are minted with: less than a flag, more than a template; never what the template says.
local ENV_CPU, FLAG_CPU, ENV_MEMORY = "BOX_CPU=3", "1", 768 -- MiB

--- The CLI of this run.
-- @return { path, tree (nil when it is not known) }; or nil, the reason that there is none
function cli.find()
    local path, tree = engine.call("box.path")
    if not path then
        return nil, tree
    end
    return { path = path, tree = tree ~= "" and tree or nil }
end

--- What the CLI says its version is: one line; nil when it gave none.
function cli.version()
    local data = contract.load()
    local state, value, _, _, stdout, stderr =
        engine.call("box", data.project, data.cli.call, CAP, "--version")
    if state ~= "exit" or value ~= "0" then
        return nil
    end
    return (stdout .. stderr):match("[^\n]+")
end

--- As cli.find; without a CLI SKIP is recorded: there is nothing to drill.
function cli.open(t)
    local found, why = cli.find()
    if not found then
        t:skip(why)
    end
    return found
end

--- Runs f with an instance of its own, not started, and deletes it afterwards; without a CLI SKIP is recorded.
-- @param t @param suffix, options as of mint.with @param f called with the instance's name
function cli.with(t, suffix, options, f)
    if not cli.open(t) then
        return
    end
    local done, why = mint.with(suffix, options, f)
    if not done then
        t:error(why)
    end
end

--- A text as a Lua pattern that finds it and nothing else.
function cli.literal(text)
    return (text:gsub("%p", "%%%0"))
end

--- A text that is expected, as a Lua pattern.
-- @param key of the contract's cli.texts @param values map of $word to the literal text it stands for
function cli.pattern(key, values)
    return (contract.load().cli.texts[key]:gsub("%$(%l+)", function(word)
        return values and values[word] and cli.literal(values[word])
    end))
end

--- The command line, for `by_hand`. @param words array
function cli.by_hand(words)
    local shown = {}
    for i, word in ipairs(words) do
        shown[i] = word:find("[^%w_./=-]") and ("'%s'"):format((word:gsub("'", "'\\''"))) or word
    end
    return ("box %s </dev/null"):format(table.concat(shown, " "))
end

-- What the environment is told comes before the words.
local function without_settings(words)
    local out = {}
    for _, word in ipairs(words) do
        if #out > 0 or not word:find("^BOX_%u+=") then
            out[#out + 1] = word
        end
    end
    return out
end

-- The answer of one of the broker's box operations; what is no answer is ERROR.
local function answer(t, words, state, value, truncated, ms, stdout, stderr, quiet)
    local by_hand = cli.by_hand(without_settings(words))
    if not state then
        t:error(("box %s: %s"):format(words[1], tostring(value)), { by_hand = by_hand })
        return nil
    elseif state ~= "exit" or truncated == "1" then
        t:error(("box %s: %s %s"):format(words[1], state == "exit" and "too much output" or state, value), {
            seen = stderr,
            by_hand = by_hand,
        })
        return nil
    end
    return {
        code = math.tointeger(tonumber(value)),
        stdout = stdout,
        stderr = stderr,
        text = stdout .. "\n" .. stderr,
        ms = tonumber(ms),
        quiet = tonumber(quiet),
        by_hand = by_hand,
    }
end

--- Runs the CLI.
-- @param t where a failure of the instrument is recorded
-- @param words array; BOX_NAME=VALUE before the first are its environment
-- @param ms the longest it may take; the contract's if left out
-- @return { code, stdout, stderr, text (both), ms, quiet (the longest time without output, ms), by_hand };
--   nil when it gave no answer
function cli.run(t, words, ms)
    local data = contract.load()
    return answer(t, words, engine.call("box", data.project, ms or data.cli.call, CAP, table.unpack(words)))
end

--- Runs the CLI with one template more, seen by nobody else. @param name the template's @param text its file
function cli.with_template(t, name, text, words)
    local data = contract.load()
    return answer(t, words, engine.call("box.template", data.project, name, data.cli.template_file, text,
        data.cli.call, CAP, table.unpack(words)))
end

--- A file of the CLI's tree. @param ... "VERSION", or "templates", NAME, FILE
-- @return its text; or nil, message
function cli.file(...)
    return engine.call("box.tree", ...)
end

--- What a template says: map of key to value; nil, message when it cannot be read.
function cli.template(name)
    local text, why = cli.file("templates", name, contract.load().cli.template_file)
    if not text then
        return nil, why
    end
    local out = {}
    for key, value in text:gmatch("([%u_]+)=\"?([^\"\n]*)\"?") do
        out[key] = value
    end
    return out, text
end

--- A result as text, for `seen`.
function cli.seen(result)
    return client.text(result)
end

--- PASS or FAIL on one result.
-- @param ok boolean @param what what was asked @param result as of cli.run
-- @param clause what a right answer is
function cli.expect(t, ok, what, result, clause)
    return t:expect(ok and true or false, what, { clause = clause, seen = cli.seen(result), by_hand = result.by_hand })
end

--- PASS when the CLI refused: an exit code that is not 0 (or exactly `code`), and the text.
-- @param key of cli.texts @param values as of cli.pattern @param code may be left out
function cli.refused(t, what, result, key, values, code)
    local pattern = cli.pattern(key, values)
    local right_code = code and result.code == code or not code and result.code ~= 0
    return cli.expect(t, right_code and result.text:find(pattern) ~= nil, what, result,
        ("refused with exit %s, and says %q"):format(code or "1 or 2", pattern))
end

---------------------------------------------------------------------------------------------------
-- Boxes that the CLI minted. Two are shared by all probes: minted once in a run, by whoever asks first.

local function once(t, words)
    local data = contract.load()
    return answer(t, words, engine.call("box.once", data.project, data.cli.mint, CAP, table.unpack(words)))
end

-- What the shared boxes are asked for, as a value of limits.memory: less than ENV_MEMORY on a small host.
local function asked_memory()
    return ("%dMiB"):format(math.min(mint.room().each or ENV_MEMORY, ENV_MEMORY))
end

local function env_memory()
    return "BOX_MEMORY=" .. asked_memory()
end

--- The first shared box: minted with a flag against the environment, and the environment against the
-- template. Running; probes may look at it, snapshot it (cli.take_snapshot), clone it, and change nothing else.
-- @return its name, the result of the mint; nil when the CLI gave no answer
function cli.mint_one(t)
    local name = mint.name("x-one")
    return name, once(t, { ENV_CPU, env_memory(), "new", "--name", name, "--template",
        contract.load().cli.template, "--cpu", FLAG_CPU })
end

--- The second: minted with nothing said of its processors. b.restore's own, apart from its configuration.
function cli.mint_two(t)
    local name = mint.name("x-two")
    return name, once(t, { env_memory(), "new", "--name", name, "--template", contract.load().cli.template })
end

--- What the shared boxes were asked for, for b.new. @return map
function cli.asked()
    return { flag_cpu = FLAG_CPU, env_memory = asked_memory() }
end

local function usable(t, name, result)
    if result and result.code == 0 then
        return name
    elseif result then
        t:suspect("the CLI minted no box to ask this of (b.new says why)", { seen = cli.seen(result) })
    end
    return nil
end

--- The name of the first shared box; nil, and SUSPECT or SKIP recorded, when there is none.
function cli.one(t)
    return cli.open(t) and usable(t, cli.mint_one(t))
end

--- The same of the second.
function cli.two(t)
    return cli.open(t) and usable(t, cli.mint_two(t))
end

--- Deletes the shared boxes, where they were minted. What is not seen to go is left to the end of the run.
function cli.discard()
    for _, suffix in ipairs { "x-one", "x-two" } do
        pcall(mint.delete, contract.load().project, mint.name(suffix))
    end
end

--- Deletes what a probe had the CLI make. @param ... names
function cli.delete(t, ...)
    for _, name in ipairs { ... } do
        local gone, why = mint.delete(contract.load().project, name)
        if not gone then
            t:error(why)
        end
    end
end

--- Whether Incus says that it does not exist; nil and ERROR when it cannot be known.
function cli.absent(t, name)
    local there = client.exists(t, name)
    if there == nil then
        return nil
    end
    return not there
end

--- PASS when nothing of a name came to be. @param what the refusal that was asked for
function cli.expect_absent(t, name, what)
    local absent = cli.absent(t, name)
    if absent ~= nil then
        t:expect(absent, ("%s: nothing came to be"):format(what), {
            clause = "what is refused is not done",
            seen = absent and "no such instance" or name .. " exists",
            by_hand = ("incus list %s"):format(name),
        })
    end
end

--- Takes a snapshot of a box with the incus client, so that a question does not hang on the CLI's own. Of two
-- that are taken of one box at the same time Incus refuses one: it is asked for again.
-- @return whether it was taken; if not, ERROR is recorded
function cli.take_snapshot(t, name, label)
    local result
    for _ = 1, SNAPSHOT_TRIES do
        result = client.ask(t, "snapshot", name, label)
        if not result or result.code == 0 then
            return result ~= nil
        end
        task.sleep(SNAPSHOT_MS)
    end
    t:error(("no snapshot of %s could be taken"):format(name), {
        seen = client.text(result),
        by_hand = client.by_hand("snapshot", name, label),
    })
    return false
end

--- The snapshots of an instance, as map of label to true; nil, and ERROR, when they cannot be read.
function cli.snapshots(t, name)
    local all, why = incus.instances(contract.load().project)
    for _, instance in ipairs(all or {}) do
        if instance.name == name then
            local out = {}
            for _, snapshot in ipairs(type(instance.snapshots) == "table" and instance.snapshots or {}) do
                out[snapshot.name] = true
            end
            return out
        end
    end
    t:error(("the snapshots of %s: %s"):format(name, why or "there is no such instance"))
    return nil
end

return cli
