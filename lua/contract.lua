--- The contract as the scripts and probes see it: host/contract.lua, with a site's file laid over it,
-- checked field by field, its $words replaced.
local inet = require "inet"

local contract = {}

--- A map's keys in order, for what is shown or walked the same way each time.
function contract.sorted_keys(map)
    local keys = {}
    for key in pairs(map) do
        keys[#keys + 1] = key
    end
    table.sort(keys, function(a, b)
        return tostring(a) < tostring(b)
    end)
    return keys
end

-- A schema node is { kind, ... }; kinds are the keys of `check` below.
local function text(pattern, what)
    return { kind = "text", pattern = pattern, what = what }
end

local function number(low, high)
    return { kind = "number", low = low, high = high }
end

local function list(of)
    return { kind = "list", of = of }
end

local function dict(key, of)
    return { kind = "dict", key = key, of = of }
end

local function record(fields)
    return { kind = "record", fields = fields }
end

local function address()
    return { kind = "address" }
end

local NAME = text("^%l[%l%d-]*$", "a name of lower-case letters, digits and -")
local KEY = text("^[%l%d_.-]+$", "a configuration key")
local STRING = text("", "a string")
local PORT = number(1, 65535)
local TIME = number(1, 3600000)
local DOMAIN = text("^[%w.-]+$", "a domain name")
local PROTOCOL = text("^[tu][cd]p$", "\"tcp\" or \"udp\"")
local RANGE = { kind = "range" }

local RULE = record {
    action = text("^%l+$", "an action"),
    source = STRING,
    destination = STRING,
    protocol = STRING,
    source_port = STRING,
    destination_port = STRING,
    icmp_type = STRING,
    icmp_code = STRING,
    state = STRING,
    description = STRING,
}
RULE.optional = true

local EXCLUDE = { kind = "exclude" }

local SCHEMA = record {
    project = NAME,
    pool = NAME,
    image = record {
        server = text("^https://", "an https:// address"),
        alias = text("^[%w./_-]+$", "an image alias"),
        type = text("^%l[%l-]*$", "\"auto\", \"container\" or \"virtual-machine\""),
    },
    tags = list(record { key = text("^user%.[%l%d._-]+$", "a user.* key"), value = STRING }),
    network = record {
        name = NAME,
        description = STRING,
        address = RANGE,
        domain = DOMAIN,
        resolvers = list(address()),
        config = dict(KEY, STRING),
    },
    acl = record { name = NAME, description = STRING, egress = list(RULE), ingress = list(RULE) },
    profile = record {
        name = NAME,
        description = STRING,
        devices = dict(NAME, dict(KEY, STRING)),
    },
    firewall = record { table = NAME },
    allowed = record {
        addresses = list(record { address = address(), port = PORT }),
        names = list(DOMAIN),
        name_port = PORT,
        resolvers = list(address()),
    },
    forbidden = dict(RANGE, record { addresses = list(address()), tcp = list(PORT), udp = list(PORT) }),
    host = record { tcp = list(PORT), udp = list(PORT) },
    rehearsal = record { ranges = list(RANGE) },
    box = record { port = PORT, inbound_port = PORT, closed_port = PORT },
    listeners = list(record { address = address(), port = PORT, protocols = list(PROTOCOL) }),
    exclude = list(EXCLUDE),
    budgets = record {
        attempt = TIME,
        control = TIME,
        dns = TIME,
        exec = TIME,
        listen = TIME,
        address = TIME,
        agent = TIME,
        client = TIME,
        routed = TIME,
        severed = TIME,
        settle = TIME,
    },
}

-- "ADDRESS", "ADDRESS/BITS", "ADDRESS:PORT" or "[ADDRESS]:PORT" as { range, port }; nil otherwise.
local function parse_exclude(value)
    if inet.network(value) then
        return { range = value }
    end
    local host, port = value:match("^%[([^%]]+)%]:(%d+)$")
    if not host then
        host, port = value:match("^([%d.]+):(%d+)$")
    end
    if host and inet.parse(host) then
        return { range = host, port = tonumber(port) }
    end
    return nil
end

local function refuse(file, field, message)
    error(("%s: %s: %s"):format(file, field == "" and "the table" or field, message), 0)
end

local function joined(field, key)
    if type(key) == "number" then
        return ("%s[%d]"):format(field, key)
    elseif tostring(key):find("[^%w_]") then
        return ("%s[%q]"):format(field, tostring(key))
    end
    return field == "" and tostring(key) or field .. "." .. tostring(key)
end

local check

local function expect(value, kind, file, field)
    if type(value) ~= kind then
        refuse(file, field, ("%s expected, %s found"):format(kind, type(value)))
    end
end

local CHECK = {
    text = function(node, value, file, field)
        expect(value, "string", file, field)
        if not value:find(node.pattern) then
            refuse(file, field, ("%q is not %s"):format(value, node.what))
        end
    end,
    number = function(node, value, file, field)
        if math.type(value) ~= "integer" or value < node.low or value > node.high then
            refuse(file, field, ("a whole number from %d to %d expected"):format(node.low, node.high))
        end
    end,
    address = function(_, value, file, field)
        if not inet.parse(value) then
            refuse(file, field, "an address expected")
        end
    end,
    range = function(_, value, file, field)
        if type(value) ~= "string" or not value:find("/", 1, true) or not inet.network(value) then
            refuse(file, field, "ADDRESS/BITS expected")
        end
    end,
    exclude = function(_, value, file, field)
        if type(value) ~= "string" or not parse_exclude(value) then
            refuse(file, field, "ADDRESS, ADDRESS/BITS or ADDRESS:PORT expected")
        end
    end,
    list = function(node, value, file, field, partial)
        expect(value, "table", file, field)
        for key in pairs(value) do
            if math.type(key) ~= "integer" or key < 1 or key > #value then
                refuse(file, field, ("an array: unknown key %s"):format(tostring(key)))
            end
        end
        for i, entry in ipairs(value) do
            -- Arrays are replaced whole, so their records are whole even in a site's file.
            check(node.of, entry, file, joined(field, i), partial and "entry")
        end
    end,
    dict = function(node, value, file, field, partial)
        expect(value, "table", file, field)
        for _, key in ipairs(contract.sorted_keys(value)) do
            local name, entry = joined(field, key), value[key]
            check(node.key, key, file, name .. " (the key)", partial)
            if not (partial and entry == false) then
                check(node.of, entry, file, name, partial)
            end
        end
    end,
    record = function(node, value, file, field, partial)
        expect(value, "table", file, field)
        for _, key in ipairs(contract.sorted_keys(value)) do
            local inner = node.fields[key]
            if not inner then
                refuse(file, joined(field, key), "unknown key")
            end
            check(inner, value[key], file, joined(field, key), partial)
        end
        for _, key in ipairs(contract.sorted_keys(node.fields)) do
            if value[key] == nil and not node.optional and partial ~= true then
                refuse(file, joined(field, key), "missing")
            end
        end
    end,
}

-- `partial`: true in a site's file, where a record may leave keys out and a dict's entry may be
-- `false` (take it away); "entry" inside one of its arrays, where records are whole.
check = function(node, value, file, field, partial)
    CHECK[node.kind](node, value, file, field, partial)
end

local function evaluate(source, chunk)
    local loader, why = load(source, "@" .. chunk, "t", {})
    if not loader then
        error(("%s: %s"):format(chunk, why), 0)
    end
    local ok, value = pcall(loader)
    if not ok then
        error(("%s: %s"):format(chunk, tostring(value)), 0)
    end
    if type(value) ~= "table" then
        error(("%s: a table expected, %s returned"):format(chunk, type(value)), 0)
    end
    return value
end

-- `over` laid on `base`, both of schema `node`.
local function merge(node, base, over)
    if node.kind ~= "record" and node.kind ~= "dict" or base == nil then
        return over
    end
    local out = {}
    for key, value in pairs(base) do
        out[key] = value
    end
    for key, value in pairs(over) do
        if value == false then
            out[key] = nil
        else
            out[key] = merge(node.kind == "record" and node.fields[key] or node.of, base[key], value)
        end
    end
    return out
end

-- `value` with the $words in its strings replaced.
local function expand(value, words)
    if type(value) == "string" then
        return (value:gsub("%$(%l+)", words))
    elseif type(value) ~= "table" then
        return value
    end
    local out = {}
    for key, entry in pairs(value) do
        out[key] = expand(entry, words)
    end
    return out
end

local function finish(data, file)
    local subnet, gateway = inet.network(data.network.address)
    if not gateway or inet.family(gateway) ~= 4 then
        refuse(file, "network.address", "an IPv4 ADDRESS/BITS expected")
    end
    if #data.tags == 0 then
        refuse(file, "tags", "at least one tag expected")
    end
    local servers = {}
    for i, resolver in ipairs(data.network.resolvers) do
        servers[i] = "server=" .. resolver
    end
    local words = {
        network = data.network.name,
        acl = data.acl.name,
        pool = data.pool,
        gateway = gateway,
        subnet = subnet,
        resolvers = table.concat(servers, "\n"),
    }
    data.network.config = expand(data.network.config, words)
    data.network.config["ipv4.address"] = data.network.address
    data.acl = expand(data.acl, words)
    data.profile.devices = expand(data.profile.devices, words)
    data.gateway, data.subnet = gateway, subnet
    data.excluded = {}
    for i, value in ipairs(data.exclude) do
        data.excluded[i] = parse_exclude(value)
    end
    return data
end

--- The contract of two sources. Throws on a file that does not hold to the shape, naming the file and the
-- field.
-- @param source, chunk the contract's own file
-- @param site_source, site_chunk a site's file; "" when there is none
-- @return the table of host/contract.lua, and besides: gateway, subnet (texts), excluded
function contract.build(source, chunk, site_source, site_chunk)
    local base = evaluate(source, chunk)
    check(SCHEMA, base, chunk, "", false)
    local file = chunk
    if site_source ~= "" then
        file = site_chunk
        local site = evaluate(site_source, site_chunk)
        check(SCHEMA, site, site_chunk, "", true)
        base = merge(SCHEMA, base, site)
        check(SCHEMA, base, site_chunk, "", false)
    end
    return finish(base, file)
end

local loaded

--- The contract of this run: read from the broker once, then kept.
-- @return as contract.build
function contract.load()
    if not loaded then
        local source, site_chunk, site_source = engine.call("contract")
        if not source then
            error("the contract cannot be read: " .. site_chunk, 0)
        end
        loaded = contract.build(source, "host/contract.lua", site_source, site_chunk)
    end
    return loaded
end

--- Whether the contract's `exclude` keeps packets from an address, or from one port of it.
-- @param data a contract
-- @param destination the address, text
-- @param port a number, or nil for ICMP
function contract.excluded(data, destination, port)
    for _, entry in ipairs(data.excluded) do
        if inet.within(destination, entry.range) and (not entry.port or entry.port == port) then
            return true
        end
    end
    return false
end

--- The ports of known listeners at an address.
-- @param protocol "tcp" or "udp"
-- @return array of numbers
function contract.listener_ports(data, destination, protocol)
    local out = {}
    for _, listener in ipairs(data.listeners) do
        for _, spoken in ipairs(listener.protocols) do
            if spoken == protocol and inet.same(listener.address, destination) then
                out[#out + 1] = listener.port
            end
        end
    end
    return out
end

return contract
