--- What the host's system says, for the doctor: bridge ports, limits, resolvers, programs, processes, locks.
-- Every function returns nil, message, code when it cannot be asked.
local system = {}

-- The values of a request as records, one for every so many of them.
local function records(fields, ...)
    local values, out = table.pack(...), {}
    if values[1] == nil and values.n > 1 then
        return nil, values[2], values[3]
    end
    for i = 1, values.n - #fields + 1, #fields do
        local record = {}
        for k, field in ipairs(fields) do
            record[field] = values[i + k - 1]
        end
        out[#out + 1] = record
    end
    return out
end

--- The ports of a bridge, from the kernel. @param bridge its name
-- @return array of { port, isolated }: "1", "0", or "" where the kernel did not say
function system.ports(bridge)
    return records({ "port", "isolated" }, engine.call("host.ports", bridge))
end

--- How many more inotify instances this user can have. @return the limit, how many more (64 at most), numbers
function system.inotify()
    local limit, left, code = engine.call("host.inotify")
    if not limit then
        return nil, left, code
    end
    return tonumber(limit), tonumber(left)
end

--- The resolvers that the host itself asks: those of systemd-resolved behind its stub, too.
-- @return array of addresses, each once
function system.resolvers()
    local files, why, code = records({ "file", "text" }, engine.call("host.resolvers"))
    if not files then
        return nil, why, code
    end
    local out, seen = {}, {}
    for _, one in ipairs(files) do
        for address in ("\n" .. one.text):gmatch("\n%s*nameserver%s+(%S+)") do
            if not seen[address] then
                seen[address] = true
                out[#out + 1] = address
            end
        end
    end
    return out
end

--- Who holds a port on the host. @param port a number
-- @return array of { proto, address, name, pid }; name and pid are nil where they are not ours to see
function system.listeners(port)
    local text, why, code = engine.call("host.listeners", port)
    if not text then
        return nil, why, code
    end
    local out = {}
    for line in text:gmatch("[^\n]+") do
        local proto, address = line:match("^(%l+)%s+%S+%s+%d+%s+%d+%s+(%S+):%d+%s")
        if proto then
            local name, pid = line:match('%(%("(.-)",pid=(%d+)')
            address = address:gsub("%%.*$", ""):gsub("^%[(.*)%]$", "%1")
            out[#out + 1] = { proto = proto, address = address, name = name, pid = tonumber(pid) }
        end
    end
    return out
end

--- Where programs are. @return map of incus, incusd, nft, dnsmasq, ip, ss to a path; "" where it is missing
function system.programs()
    local out = {}
    for _, one in ipairs(records({ "name", "path" }, engine.call("host.programs"))) do
        out[one.name] = one.path
    end
    return out
end

--- The processes that a drill may be waiting for.
-- @return array of { pid, parent, state, age (seconds; texts), namespace ("own", "other" for one in a box, ""),
--   name, command }
function system.processes()
    return records({ "pid", "parent", "state", "age", "namespace", "name", "command" },
        engine.call("host.processes"))
end

--- What other runs are in the middle of: only root sees it.
-- @return array of { run, age, text }: age in seconds since it was written; a line "FILE OPERATION MS" a request
function system.runs()
    return records({ "run", "age", "text" }, engine.call("host.runs"))
end

--- Files whose locks hold others up. @return array of { file, pid }: 0 nobody holds it, -1 it is not ours to see
function system.locks()
    local out, why, code = records({ "file", "pid" }, engine.call("host.locks"))
    for _, one in ipairs(out or {}) do
        one.pid = math.tointeger(tonumber(one.pid))
    end
    return out, why, code
end

--- The daemon's last log lines. @return text
function system.log()
    return engine.call("host.log")
end

--- The daemon's socket. @return { path, group, trouble }: trouble is an errno's name, "" when it can be used
function system.socket()
    return records({ "path", "group", "trouble" }, engine.call("server.socket"))[1]
end

return system
