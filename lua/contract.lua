--- The contract as the scripts and probes see it: host/contract.lua, with a site's file laid over it,
-- checked field by field, its $words replaced.
local inet = require "inet"

local contract = {}

local DNS = 53

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

-- Addresses that packets are sent to (`asked`), or none are.
local function address(asked)
    return { kind = "address", asked = asked }
end

-- One of some words.
local function one_of(...)
    local words, shown = {}, {}
    for i, word in ipairs { ... } do
        words[word], shown[i] = true, ("%q"):format(word)
    end
    return { kind = "word", words = words, shown = table.concat(shown, ", ") }
end

local function filled(node)
    node.filled = true
    return node
end

local NAME = text("^%l[%l%d-]*$", "a name of lower-case letters, digits and -")
local KEY = text("^[%l%d_.-]+$", "a configuration key")
local STRING = text("", "a string")
local PORT = number(1, 65535)
local MIB = number(1, 1 << 30)
local DOMAIN = { kind = "domain" }
local PROTOCOL = one_of("tcp", "udp")
local RANGE = { kind = "range" }

local RULE = record {
    action = one_of("allow", "allow-stateless", "drop", "reject"),
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
RULE.optional, RULE.needs = true, { "action" }

local EXCLUDE = { kind = "exclude" }

local SCHEMA = record {
    project = NAME,
    pool = NAME,
    image = record {
        server = text("^https://", "an https:// address"),
        alias = text("^[%w./_-]+$", "an image alias"),
        type = one_of("auto", "container", "virtual-machine"),
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
        addresses = filled(list(record { address = address(true), port = PORT })),
        names = filled(list(DOMAIN)),
        name_port = PORT,
        resolvers = filled(list(address(true))),
    },
    forbidden = dict(RANGE, record { addresses = list(address(true)), tcp = list(PORT), udp = list(PORT) }),
    host = record { tcp = list(PORT), udp = list(PORT) },
    rehearsal = record { ranges = list(RANGE) },
    box = record { port = PORT, inbound_port = PORT, closed_port = PORT, link_port = PORT, raw_port = PORT },
    groups = list(record { name = text("^%w[%w .-]*$", "a name"), address = address(), port = PORT }),
    broadcast = address(),
    memory = record {
        container = record { wanted = MIB, least = MIB },
        vm = record { wanted = MIB, least = MIB },
        at_once = number(1, 64),
    },
    cli = record {
        template = NAME,
        template_file = text("^[%w][%w._-]*$", "a file's name"),
        call = number(1000, 600000),
        mint = number(1000, 600000),
        heartbeat = number(100, 600000),
        programs = list(record { template = NAME, program = text("^[%w][%w._/-]*$", "a program") }),
        texts = record {
            no_boxes = STRING,
            list_header = STRING,
            templates = STRING,
            no_template = STRING,
            unknown_key = STRING,
            ready = STRING,
            mint_failed = STRING,
            cloned = STRING,
            clone_resources = STRING,
            info_row = STRING,
            info_clone = STRING,
            running = STRING,
            renamed = STRING,
            hatch = STRING,
            hatch_warning = STRING,
            not_forced = STRING,
            did_you_mean = STRING,
            unknown_option = STRING,
            points_at_info = STRING,
            no_such_box = STRING,
        },
    },
    listeners = list(record { address = address(true), port = PORT, protocols = filled(list(PROTOCOL)) }),
    exclude = list(EXCLUDE),
    -- What one run of the program in a box may take adds up to less than ten minutes, an engine's limit.
    budgets = record {
        attempt = number(3500, 60000), -- nobody answering ARP shows after 3.07 s
        watched = number(1100, 60000), -- an ARP request under way is repeated within a second
        control = number(1000, 60000),
        verify = number(3100, 60000),
        dns = number(1000, 60000),
        exec = number(1000, 120000),
        listen = number(5500, 300000),
        address = number(1, 600000),
        agent = number(1, 600000),
        client = number(1, 600000),
        routed = number(1, 2500), -- a failed ARP shows after that
        severed = number(1000, 60000),
        settle = number(1000, 300000),
        frame = number(250, 10000),
    },
}

-- Whether an IPv6 address could as well be a shorter one with a port: fd00::1:80.
local function is_ambiguous(value)
    local head = value:match("^(.+):%d+$")
    return head ~= nil and inet.family(value) == 6 and inet.parse(head) ~= nil
end

-- "ADDRESS", "ADDRESS/BITS", "ADDRESS:PORT" or "[ADDRESS]:PORT" as { range, port }; nil, what is wrong with it.
local function parse_exclude(value)
    if value:find("%", 1, true) then
        return nil, "an address without a scope expected"
    elseif is_ambiguous(value) then
        return nil, ("ambiguous: write %s/128, or [%s]:%s"):format(value, value:match("^(.+):(%d+)$"))
    elseif inet.network(value) then
        return { range = value }
    end
    local host, port = value:match("^%[([^%]]+)%]:(%d+)$")
    if not host then
        host, port = value:match("^([%d.]+):(%d+)$")
    end
    if not host or not inet.parse(host) then
        return nil, "ADDRESS, ADDRESS/BITS or ADDRESS:PORT expected"
    end
    port = math.tointeger(tonumber(port))
    if not port or port < 1 or port > 65535 then
        return nil, "a port from 1 to 65535 expected"
    end
    return { range = host, port = port }
end

-- What no packet is sent to as to one machine: this network, loopback, multicast, reserved.
local NO_UNICAST = { "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "ff00::/8" }

local function is_unicast(value)
    for _, range in ipairs(NO_UNICAST) do
        if inet.within(value, range) then
            return false
        end
    end
    return true
end

-- Labels of 1 to 63 letters, digits and -, 253 bytes in all.
local function is_domain(value)
    if #value > 253 then
        return false
    end
    for label in (value .. "."):gmatch("([^.]*)%.") do
        if #label > 63 or not label:find("^%w[%w-]*$") then
            return false
        end
    end
    return true
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
    word = function(node, value, file, field)
        if type(value) ~= "string" or not node.words[value] then
            refuse(file, field, ("%s is none of %s"):format(
                type(value) == "string" and ("%q"):format(value) or "a " .. type(value), node.shown))
        end
    end,
    domain = function(_, value, file, field)
        expect(value, "string", file, field)
        if not is_domain(value) then
            refuse(file, field, ("%q is no domain name"):format(value))
        end
    end,
    address = function(node, value, file, field)
        if not inet.parse(value) or value:find("%", 1, true) then
            refuse(file, field, "an address without a scope expected")
        elseif node.asked and not is_unicast(value) then
            refuse(file, field, ("%s is no address of one machine"):format(value))
        end
    end,
    range = function(_, value, file, field)
        if type(value) ~= "string" or not value:find("/", 1, true) or not inet.network(value) then
            refuse(file, field, "ADDRESS/BITS expected")
        end
    end,
    exclude = function(_, value, file, field)
        expect(value, "string", file, field)
        local entry, why = parse_exclude(value)
        if not entry then
            refuse(file, field, why)
        end
    end,
    list = function(node, value, file, field, partial)
        expect(value, "table", file, field)
        for key in pairs(value) do
            if math.type(key) ~= "integer" or key < 1 or key > #value then
                refuse(file, field, ("an array: unknown key %s"):format(tostring(key)))
            end
        end
        if node.filled and #value == 0 then
            refuse(file, field, "at least one expected")
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
        for _, key in ipairs(node.needs or {}) do
            if value[key] == nil then
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

-- The boxes' subnet and their gateway.
local function derive_subnet(data, file)
    local subnet, gateway = inet.network(data.network.address)
    local bits = tonumber(data.network.address:match("/(%d+)$"))
    if not gateway or inet.family(gateway) ~= 4 then
        refuse(file, "network.address", "an IPv4 ADDRESS/BITS expected")
    elseif bits < 8 or bits > 30 then
        refuse(file, "network.address", "8 to 30 bits expected")
    end
    local value = string.unpack(">I4", inet.parse(gateway))
    local host_bits = (1 << (32 - bits)) - 1
    if value & host_bits == 0 or value & host_bits == host_bits or not is_unicast(gateway) then
        refuse(file, "network.address", ("%s is no host's address in %s"):format(gateway, subnet))
    end
    data.gateway, data.subnet = gateway, subnet
end

local function are_distinct(ports)
    local seen = {}
    for _, port in pairs(ports) do
        if seen[port] then
            return false
        end
        seen[port] = true
    end
    return true
end

-- What single fields cannot say of themselves.
local function check_together(data, file)
    local box, budgets = data.box, data.budgets
    if #data.tags == 0 then
        refuse(file, "tags", "at least one tag expected")
    elseif not are_distinct(box) then
        refuse(file, "box", "different ports expected")
    elseif budgets.listen < budgets.attempt + 2 * budgets.control then
        refuse(file, "budgets.listen", "at least attempt and twice control expected")
    end
    for _, kind in ipairs { "container", "vm" } do
        if data.memory[kind].least > data.memory[kind].wanted then
            refuse(file, ("memory.%s.least"):format(kind), "no more than `wanted` expected")
        end
    end
    for _, range in ipairs(contract.sorted_keys(data.forbidden)) do
        for i, value in ipairs(data.forbidden[range].addresses) do
            if not inet.within(value, range) then
                refuse(file, joined(joined("forbidden", range) .. ".addresses", i), ("%s is not in it"):format(value))
            end
        end
    end
    for i, place in ipairs(data.allowed.addresses) do
        if inet.within(place.address, data.subnet) then
            refuse(file, joined("allowed.addresses", i), "on the boxes' own network, not on the public internet")
        end
    end
end

-- Takes what is excluded out of a list that must not end up empty.
local function without_excluded(data, file, field, entries, parts)
    local out = {}
    for _, entry in ipairs(entries) do
        if not contract.excluded(data, parts(entry)) then
            out[#out + 1] = entry
        end
    end
    if #out == 0 then
        refuse(file, "exclude", ("it leaves nothing of %s"):format(field))
    end
    return out
end

-- The exclusions hold for what the drill leans on, too.
local function apply_exclude(data, file)
    data.excluded = {}
    for i, value in ipairs(data.exclude) do
        data.excluded[i] = parse_exclude(value)
    end
    local allowed = data.allowed
    allowed.addresses = without_excluded(data, file, "allowed.addresses", allowed.addresses, function(place)
        return place.address, place.port
    end)
    allowed.resolvers = without_excluded(data, file, "allowed.resolvers", allowed.resolvers, function(resolver)
        return resolver, DNS
    end)
    if contract.excluded(data, data.gateway, DNS) then
        refuse(file, "exclude", ("it covers the boxes' own gateway, %s, whose resolver is asked"):format(data.gateway))
    end
end

local function finish(data, file)
    derive_subnet(data, file)
    check_together(data, file)
    local gateway, subnet = data.gateway, data.subnet
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
    apply_exclude(data, file)
    return data
end

--- The contract of two sources. Throws on a file that does not hold to the shape, naming the file and the
-- field.
-- @param source, chunk the contract's own file
-- @param site_source, site_chunk a site's file; "" when there is none
-- @return the table of host/contract.lua, without the public places that it excludes, and besides: gateway,
--   subnet (texts), excluded
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
