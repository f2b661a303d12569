--- Boxes of this run: minted on the contract's profile, waited for with a bound, deleted and seen to be
-- gone. Their names carry the run's id; the broker knows them and deletes what is left at the end.
local contract = require "contract"
local host = require "host"
local incus = require "incus"
local inet = require "inet"
local orphan = require "orphan"
local task = require "task"

local mint = {}

--- The name of an instance of this run. @param suffix lower-case letters, digits and -
function mint.name(suffix)
    return ("bd-%s-%s"):format(engine.run_id, suffix)
end

--- How much memory a box of this run gets.
-- @return { each, free, wanted, least } in MiB; `each` is nil where every box can have what it wants, or where the
--   host's free memory cannot be read: then nothing is limited
function mint.room()
    local data = contract.load()
    local memory = data.memory[host.instance_type(data) == "container" and "container" or "vm"]
    local free = math.tointeger(tonumber(host.facts().free_memory))
    local share = free and free // data.memory.at_once
    return { each = share and share < memory.wanted and share or nil, free = free, wanted = memory.wanted,
        least = memory.least }
end

-- Whether a profile as Incus has it brings a root disk.
local function has_root(profile)
    for _, device in pairs(profile.devices or {}) do
        if device.type == "disk" and device.path == "/" then
            return true
        end
    end
    return false
end

--- What every box of this run is made from: asked of the host once and then passed to mint.create.
-- @param name the profile; the contract's if left out
-- @param subnet the boxes' subnet there; the contract's if left out
-- @return { type, server, alias, profiles, subnet }; or nil, message, code when the profile cannot be
--   read or brings no root disk
function mint.recipe(name, subnet)
    local data = contract.load()
    name = name or data.profile.name
    local profile, why, code = incus.profile(data.project, name)
    if not profile then
        return nil, ("profile %s: %s"):format(name, why), code
    elseif not has_root(profile) then
        return nil, ("profile %s brings no root disk (boxdrill setup.lua adds it)"):format(name), "ENODEV"
    end
    return {
        type = host.instance_type(data),
        server = data.image.server,
        alias = data.image.alias,
        profiles = { name },
        subnet = subnet or data.subnet,
    }
end

-- Tells the journal the instance's uuid: from here on it is known by more than its name.
local function note_uuid(project, name)
    local instance, why, code = incus.instance(project, name)
    if not instance then
        return nil, ("%s: %s"):format(name, why), code
    end
    local noted
    noted, why, code = engine.call("made.uuid", project, name, instance.config["volatile.uuid"])
    if why then
        return nil, why, code
    end
    return noted or true
end

--- Creates an instance; it is not started.
-- @param name as of mint.name
-- @param recipe as of mint.recipe
-- @param options { untagged = true }: without the contract's tag
-- @return true; or nil, message, code
function mint.create(name, recipe, options)
    local data = contract.load()
    local what = {}
    for key, value in pairs(recipe) do
        what[key] = value
    end
    what.config = {}
    if not (options and options.untagged) then
        what.config[data.tags[1].key] = data.tags[1].value
    end
    local each = mint.room().each
    what.config["limits.memory"] = each and ("%dMiB"):format(each)
    local done, why, code = incus.create(data.project, name, what)
    if not done then
        return nil, why, code
    end
    return note_uuid(data.project, name)
end

-- The box's IPv4 address in its subnet, as Incus's state of it says; nil while it has none.
local function address_of(name, subnet)
    local data = contract.load()
    local state = incus.state(data.project, name)
    for _, link in pairs(state and type(state.network) == "table" and state.network or {}) do
        for _, entry in ipairs(link.addresses or {}) do
            if entry.family == "inet" and inet.within(entry.address, subnet) then
                return entry.address
            end
        end
    end
    return nil
end

-- Waits until the program can be pushed: at once in a container, when its agent answers in a VM.
local function wait_ready(name, kind)
    local data = contract.load()
    local why = "no answer"
    local path = task.poll(kind == "virtual-machine" and data.budgets.agent or 1000, 250, function()
        local pushed, message = incus.push(data.project, name)
        why = message
        return pushed
    end, name .. " to take our program")
    if not path then
        return nil, tostring(why), "ETIMEDOUT"
    end
    return true
end

--- Mints one box: created, started, the program in it, and an address waited for. A box that gets no
-- address in time is minted all the same: what that means is for the probes to say.
-- @param name as of mint.name
-- @param recipe as of mint.recipe
-- @return { name, address (nil: none in time) }; or nil, message (with what had been done until then), code
function mint.box(name, recipe)
    local data = contract.load()
    local began, story = engine.clock(), {}
    local function step(what, done, why, code)
        if not done then
            local before = #story > 0 and table.concat(story, ", ") or "nothing"
            return nil, ("%s: %s (before: %s)"):format(what, why, before), code
        end
        story[#story + 1] = ("%s after %.1f s"):format(what, engine.clock() - began)
        return true
    end
    local done, why, code = step("create", mint.create(name, recipe))
    if done then
        done, why, code = step("start", incus.start(data.project, name))
    end
    if done then
        done, why, code = step("push our program", wait_ready(name, recipe.type))
    end
    if not done then
        return nil, ("%s: %s"):format(name, why), code
    end
    local address = task.poll(data.budgets.address, 200, function()
        return address_of(name, recipe.subnet)
    end, name .. " to get an address")
    return { name = name, address = address }
end

--- Mints boxes side by side.
-- @param suffixes array, as of mint.name
-- @param recipe as of mint.recipe; that of the contract's profile if left out
-- @return array of boxes as of mint.box; or nil, message, code of the first that could not be minted
function mint.boxes(suffixes, recipe)
    local why, code
    if not recipe then
        recipe, why, code = mint.recipe()
    end
    if not recipe then
        return nil, why, code
    end
    local boxes, work = {}, {}
    for i, suffix in ipairs(suffixes) do
        work[i] = function()
            return mint.box(mint.name(suffix), recipe)
        end
    end
    for i, result in ipairs(task.all(work)) do
        if not result[1] then
            return nil, result[2], result[3]
        end
        boxes[i] = result[1]
    end
    return boxes
end

--- Deletes an instance of this run and looks whether it is gone.
-- @param project @param name
-- @return true; or nil, message, code when it is still there or cannot be asked for
function mint.delete(project, name)
    orphan.remove(project, name, (incus.instance(project, name)))
    local _, why = incus.delete(project, name)
    local still, message, code = incus.instance(project, name)
    if still then
        return nil, ("%s is still there: %s"):format(name, tostring(why)), "EEXIST"
    elseif not incus.missing(code) then
        return nil, ("%s: whether it is gone cannot be seen: %s"):format(name, message), code
    end
    return true
end

--- Runs f with an instance of its own that is not started, and deletes it afterwards, come what may.
-- @param suffix as of mint.name
-- @param options as of mint.create
-- @param f called with the instance's name
-- @return true; or nil, message, code when it could not be created or deleted
function mint.with(suffix, options, f)
    local data = contract.load()
    local name = mint.name(suffix)
    local recipe, why, code = mint.recipe()
    if recipe then
        recipe, why, code = mint.create(name, recipe, options)
        why = why and ("%s: %s"):format(name, why)
    end
    if not recipe then
        return nil, why, code
    end
    local ok, trouble = pcall(f, name)
    local gone, left, left_code = mint.delete(data.project, name)
    if not ok then
        error(trouble, 0)
    end
    return gone, left, left_code
end

return mint
