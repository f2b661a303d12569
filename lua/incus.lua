--- Incus, through the broker's typed operations (docs/requests.md): replies decoded, errors in Incus's
-- own words. Every function that asks returns nil, message, code when Incus says no: code is the HTTP
-- status (a number), or the broker's errno name when the daemon did not answer.
-- Numbers are floats here and `[]` is `{}` (Debian's lua-cjson): nothing decoded is sent back whole.
local cjson = require "cjson"

local incus = {}

local function decode(body)
    local ok, value = pcall(cjson.decode, body)
    if not ok or type(value) ~= "table" then
        return nil, "the daemon's reply is no JSON object", "EPROTO"
    end
    return value
end

-- A JSON null, or nothing, as nil.
local function value_of(value)
    if value == cjson.null then
        return nil
    end
    return value
end

-- The metadata and the ETag of an http reply. An error reply has `error` and `error_code`; a finished
-- operation is metadata of class "task" whose `status_code` is 400 and whose `err` tells, when it failed.
local function metadata(status, etag, body)
    if not status then
        return nil, etag, body
    end
    local reply, why, code = decode(body)
    if not reply then
        return nil, why, code
    end
    local http = math.tointeger(tonumber(status)) or 0
    if reply.type == "error" or http >= 400 then
        local text = value_of(reply.error)
        return nil, text and text ~= "" and text or "HTTP " .. tostring(status),
            math.tointeger(value_of(reply.error_code) or http) or http
    end
    local data = value_of(reply.metadata)
    if type(data) == "table" and data.class and data.status == "Failure" then
        return nil, value_of(data.err) or "the operation failed", math.tointeger(data.status_code) or 400
    end
    return data == nil and {} or data, etag
end

local function get(op)
    return function(...)
        return metadata(engine.call(op, ...))
    end
end

--- `GET /1.0`. @return the server's metadata
incus.server = get "server.get"

--- Instances with their state and snapshots. @param project a name, or "*" for all. @return array
incus.instances = get "instance.list"

--- The instances, of all projects, that have a NIC on a network.
-- @param network its name
-- @return array of "NAME (project P, STATUS)", sorted; or nil, message
function incus.attached(network)
    local instances, why = incus.instances("*")
    if not instances then
        return nil, "the instances: " .. why
    end
    local out = {}
    for _, instance in ipairs(instances) do
        for _, device in pairs(instance.expanded_devices or {}) do
            if device.type == "nic" and (device.network == network or device.parent == network) then
                out[#out + 1] = ("%s (project %s, %s)"):format(instance.name, instance.project, instance.status)
                break
            end
        end
    end
    table.sort(out)
    return out
end

--- One instance. @param project @param name @return metadata, ETag
incus.instance = get "instance.get"

--- One instance's state. @param project @param name @return metadata
incus.state = get "instance.state"

--- All networks, ACLs and profiles. @param project a name, or "*" for all @return array
incus.networks = get "network.list"
incus.acls = get "acl.list"
incus.profiles = get "profile.list"

--- One network. @param project @param name @return metadata, ETag
incus.network = get "network.get"

--- One network's state. @param project @param name @return metadata
incus.network_state = get "network.state"

--- One network ACL. @param project @param name @return metadata, ETag
incus.acl = get "acl.get"

--- One profile. @param project @param name @return metadata, ETag
incus.profile = get "profile.get"

--- Operations that are alive. @param project @return map of arrays by status
incus.operations = get "operation.list"

--- How many requests incusd is at work on whose clients are gone: what they ask for may still come to be, and a
-- change of a network has no operation to be seen by. incusd holds a connection until its request is done; the
-- other end is 0 once nobody holds it (seen on Incus 6.0.4).
-- @return a number; or nil, message, code
function incus.abandoned()
    local text, why, code = engine.call("host.clients")
    if not text then
        return nil, why, code
    end
    local count = 0
    for line in text:gmatch("[^\n]+") do
        count = count + (line:find("%sESTAB%s.*%* 0%s*$") and 1 or 0)
    end
    return count
end

--- Starts an instance of this run. @param project @param name @return the finished operation
incus.start = get "instance.start"

--- Stops an instance of this run, forced. @param project @param name @return the finished operation
incus.stop = get "instance.stop"

--- Deletes an instance of this run, running or not. @param project @param name
-- @return the finished operation
incus.delete = get "instance.delete"

--- Takes the program out of an instance of this run. @param project @param name
incus.unpush = get "instance.unpush"

--- Puts the program into an instance of this run.
-- @param project @param name
-- @return its path there; or nil, message, code
function incus.push(project, name)
    local status, path, body = engine.call("instance.push", project, name)
    if not status then
        return nil, path, body
    end
    local done, why, code = metadata(status, "", body)
    if not done then
        return nil, why, code
    end
    return path
end

--- Whether an error says that there is no such thing.
-- @param code as returned by the functions above
function incus.missing(code)
    return code == 404
end

-- Quadruples SECTION NAME KEY VALUE for a map of strings, in the order of its keys.
local function append_map(out, section, name, map)
    local keys = {}
    for key in pairs(map) do
        keys[#keys + 1] = key
    end
    table.sort(keys)
    for _, key in ipairs(keys) do
        for _, word in ipairs { section, name, key, map[key] } do
            out[#out + 1] = word
        end
    end
end

--- The arguments that stand for a request's body.
-- @param body { description, config = {}, devices = { NAME = {} }, profiles = {}, egress = { {} },
--   ingress = { {} } }: strings throughout; what is absent is not sent
-- @return array of texts, four for each value
function incus.body(body)
    local out = {}
    if body.description then
        append_map(out, "top", "", { description = body.description })
    end
    append_map(out, "config", "", body.config or {})
    local names = {}
    for name in pairs(body.devices or {}) do
        names[#names + 1] = name
    end
    table.sort(names)
    for _, name in ipairs(names) do
        append_map(out, "devices", name, body.devices[name])
    end
    for i, profile in ipairs(body.profiles or {}) do
        append_map(out, "profiles", tostring(i), { name = profile })
    end
    for _, section in ipairs { "egress", "ingress" } do
        for i, rule in ipairs(body[section] or {}) do
            append_map(out, section, tostring(i), rule)
        end
    end
    return out
end

--- Creates an instance of this run and waits for it. It is not started.
-- @param project
-- @param name must carry the run's id (`bd-RUN-...`)
-- @param what { type, server, alias, and the fields of incus.body }
-- @return the finished operation
function incus.create(project, name, what)
    return metadata(engine.call("instance.create", project, name, what.type, what.server, what.alias,
        table.unpack(incus.body(what))))
end

local function writer(op)
    return function(project, name, etag, body)
        return metadata(engine.call(op, project, name, etag, table.unpack(incus.body(body))))
    end
end

--- Create; replace an ACL whole; change a network's keys or a profile's devices and leave the others (the
-- description is sent along: a PATCH blanks one that is left out). @param project @param name @param etag
-- the one just read; "" when creating @param body as of incus.body
incus.create_network = writer "network.create"
incus.patch_network = writer "network.patch"
incus.create_acl = writer "acl.create"
incus.put_acl = writer "acl.put"
incus.create_profile = writer "profile.create"
incus.patch_profile = writer "profile.patch"

--- Creates a network, an ACL or a profile of this run's own; the broker tags it.
-- @param kind "network", "acl" or "profile" @param project @param name must carry the run's id
-- @param body as of incus.body
function incus.create_own(kind, project, name, body)
    return metadata(engine.call(("own.%s.create"):format(kind), project, name, table.unpack(incus.body(body))))
end

--- Replaces one of this run's own, whole. @param kind @param project @param name @param etag the one just
-- read @param body as of incus.body
function incus.put_own(kind, project, name, etag, body)
    return metadata(engine.call(("own.%s.put"):format(kind), project, name, etag, table.unpack(incus.body(body))))
end

--- Deletes one of this run's own. @param kind @param project @param name
function incus.delete_own(kind, project, name)
    return metadata(engine.call(("own.%s.delete"):format(kind), project, name))
end

--- Changes a key of the network named with --live, and puts it back as it was. @param etag, description the ones
-- just read (a PATCH blanks a description that is left out)
function incus.set_live(project, network, key, etag, description, before, after)
    return metadata(engine.call("live.set", project, network, key, etag, description, before, after))
end

function incus.unset_live(project, network, key, etag, description)
    return metadata(engine.call("live.unset", project, network, key, etag, description))
end
--- Makes an empty network of what is left of one that incusd died in the making of. @param project @param name
incus.remake_network = get "own.network.remake"

--- Gives a box of this run a NIC of its own, in place of its profile's.
-- @param project @param name the box @param device the NIC's name @param keys map of texts, whole
-- @return the finished operation
function incus.device(project, name, device, keys)
    local arguments = {}
    for key, value in pairs(keys) do
        arguments[#arguments + 1] = key
        arguments[#arguments + 1] = value
    end
    return metadata(engine.call("instance.device", project, name, device, table.unpack(arguments)))
end

-- What an exec in an instance came to.
local function exec_result(body, stdout, stderr, truncated, took)
    if not body then
        return nil, stdout, stderr
    end
    local operation, why, code = metadata("200", "", body)
    if not operation then
        return nil, why, code
    end
    local inner = value_of(operation.metadata)
    local exit = type(inner) == "table" and value_of(inner["return"])
    return {
        code = exit and math.tointeger(exit),
        stdout = stdout,
        stderr = stderr,
        truncated = truncated == "1",
        ms = tonumber(took),
    }
end

--- Runs the program's own argv in an instance of this run, over REST with recorded output.
-- @param project @param name
-- @param ms the longest it may take, in milliseconds @param cap bytes of each stream that are kept
-- @param argv array of texts, no shell
-- @return { code, stdout, stderr, truncated, ms }
function incus.exec(project, name, ms, cap, argv)
    return exec_result(engine.call("instance.exec", project, name, ms, cap, table.unpack(argv)))
end

--- Looks into an instance that need not be this run's: one of the broker's own questions (docs/requests.md).
-- @param project @param name @param what "address", "route", "names" or "internet"
-- @param ... a host's name for "names"; an IPv4 address and a port for "internet"
-- @return as incus.exec: the guest's own word
function incus.look(project, name, what, ...)
    return exec_result(engine.call("box.look", project, name, what, ...))
end

--- The `incus` client, in one of the forms the broker has (docs/requests.md): what a box CLI calls.
-- @param form @param project @param ... the form's arguments
-- @return { state, value, truncated, ms, stdout, stderr } as `exec`
function incus.client(form, project, ...)
    local state, value, truncated, ms, stdout, stderr = engine.call("client", form, project, ...)
    if not state then
        return nil, value, truncated
    end
    return {
        state = state,
        value = tonumber(value) or value,
        truncated = truncated == "1",
        ms = tonumber(ms),
        stdout = stdout,
        stderr = stderr,
    }
end

return incus
