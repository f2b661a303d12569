--- Networks, ACLs and profiles of this run's own: made for a rehearsal, changed in it, removed and seen to be
-- gone. The broker tags them with the run and refuses everybody else's.
local incus = require "incus"
local task = require "task"

local own = {}

--- Where the broker writes which run made it.
own.TAG = "user.boxdrill"
-- A bridge's name has at most 15 characters, and `bd-RUN-` takes twelve.
local PART = 3
local RETRY_MS, RETRY_EVERY_MS = 10000, 500
local PUT_TRIES = 4

--- The kinds, and how each is read.
own.KINDS = { network = incus.network, acl = incus.acl, profile = incus.profile }

--- The part of a probe's id that names what it makes: "dns" for "d.dns".
function own.part(id)
    local part = id:gsub("^[^.]*%.", ""):gsub("[^%l%d]", ""):sub(1, PART)
    return part ~= "" and part or "x"
end

--- The name of a thing of this run. @param part as of own.part
function own.name(part)
    return ("bd-%s-%s"):format(engine.run_id, part)
end

--- Makes one. @param kind @param project @param name @param body as of incus.body
-- @return true; or nil, message, code
function own.create(kind, project, name, body)
    local done, why, code = incus.create_own(kind, project, name, body)
    if not done then
        return nil, ("%s %s: %s"):format(kind, name, why), code
    end
    return true
end

local function copy(map)
    local out = {}
    for key, value in pairs(map or {}) do
        out[key] = type(value) == "table" and copy(value) or value
    end
    return out
end

-- Whether Incus (6.0.4) stumbled over a link: it lists a bridge's ports and asks each, and the port of a box that was
-- deleted a moment before is gone by then. That says nothing of what was asked for.
local function stumbled(why)
    return tostring(why):find('Device "veth%x+" does not exist') ~= nil
end

-- Writes one back, again where Incus stumbled.
local function put(kind, project, name, etag, body)
    local done, why, code
    for try = 1, PUT_TRIES do
        if try > 1 then
            task.sleep(RETRY_EVERY_MS)
            etag = select(2, own.KINDS[kind](project, name))
        end
        done, why, code = incus.put_own(kind, project, name, etag or "", body)
        if done or not stumbled(why) then
            break
        end
    end
    return done, why, code
end

--- Changes one: a fresh read, whole, and written back guarded by its ETag.
-- @param kind @param project @param name
-- @param edit called with the body (description, config, devices, egress, ingress), which it changes
-- @return the body as it was; or nil, message, code: Incus's own words, and an HTTP status, where it refuses
function own.edit(kind, project, name, edit)
    local found, etag, code = own.KINDS[kind](project, name)
    if not found then
        return nil, etag, code
    end
    local body, before = {}, {}
    for _, section in ipairs { "config", "devices", "egress", "ingress" } do
        body[section], before[section] = copy(found[section]), copy(found[section])
    end
    body.config[own.TAG], before.config[own.TAG] = nil, nil -- the broker's to write
    body.description, before.description = found.description, found.description
    edit(body)
    local done, why
    done, why, code = put(kind, project, name, etag, body)
    if not done then
        return nil, why, code
    end
    return before
end

-- Whether it is gone; nil, message, code where that cannot be said.
local function gone(kind, project, name)
    local found, why, code = own.KINDS[kind](project, name)
    if found then
        return false
    elseif not incus.missing(code) then
        return nil, ("%s %s: whether it is gone cannot be seen: %s"):format(kind, name, why), code
    end
    return true
end

local function remove(kind, project, name)
    local found = own.KINDS[kind](project, name)
    if found and (found.config or {})[own.TAG] ~= engine.run_id then
        return nil, ("%s %s does not carry this run's tag, and is left alone"):format(kind, name), "EPERM"
    end
    local why = found and select(2, incus.delete_own(kind, project, name)) -- what is missing, the end of the run notes
    local done, message, code = gone(kind, project, name)
    if done == false then
        return nil, ("%s %s is still there: %s"):format(kind, name, tostring(why)), "EEXIST"
    elseif not done then
        return nil, message, code
    end
    return true
end

--- Deletes one and looks whether it is gone; tried again for a while, since Incus (6.0.4) fails a network's
-- deletion when the port of a box that was just deleted vanishes meanwhile ("Failed to delete bridge children
-- interfaces"). One that does not carry the run's tag is somebody else's.
-- @return true; or nil, message, code
function own.remove(kind, project, name)
    local done, why, code
    task.poll(RETRY_MS, RETRY_EVERY_MS, function()
        done, why, code = remove(kind, project, name)
        return done or code == "EPERM"
    end)
    return done, why, code
end

return own
