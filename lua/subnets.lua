--- Subnets that nothing on the host uses, for networks of a run's own.
local host = require "host"
local incus = require "incus"
local inet = require "inet"

local subnets = {}

local BITS = 24

-- Every address that the contract names: none of them may come to lie behind a bridge of ours.
local function named_by(data, add)
    add(data.subnet)
    for _, place in pairs(data.forbidden) do
        for _, address in ipairs(place.addresses) do
            add(address)
        end
    end
    for _, list in ipairs { data.listeners, data.allowed.addresses } do
        for _, entry in ipairs(list) do
            add(entry.address)
        end
    end
    for _, list in ipairs { data.allowed.resolvers, data.network.resolvers } do
        for _, address in ipairs(list) do
            add(address)
        end
    end
    for _, entry in ipairs(data.excluded) do
        add(entry.range)
    end
end

-- What Incus's networks have been given, up or not.
local function of_networks(project, add)
    local networks, why = incus.networks(project)
    if not networks then
        return nil, "the networks: " .. why
    end
    for _, network in ipairs(networks) do
        add(type(network.config) == "table" and network.config["ipv4.address"])
    end
    return true
end

--- What is in use on this host.
-- @param data a contract
-- @return array of "NETWORK/BITS"; or nil, message
function subnets.taken(data)
    local out = {}
    local function add(range)
        local network = range and inet.network(range)
        if network and inet.family(network:match("^[^/]+")) == 4 then
            out[#out + 1] = network
        end
    end
    local addresses, why = host.addresses()
    if not addresses then
        return nil, "the host's addresses: " .. why
    end
    for _, entry in ipairs(addresses) do
        add(("%s/%d"):format(entry.address, entry.bits))
    end
    local routes
    routes, why = host.routes()
    if not routes then
        return nil, "the host's routes: " .. why
    end
    for _, route in ipairs(routes) do
        add(route)
    end
    named_by(data, add)
    for _, project in ipairs { data.project, "default" } do
        local read
        read, why = of_networks(project, add)
        if not read then
            return nil, why
        end
    end
    return out
end

--- Whether two ranges have an address in common.
function subnets.overlap(one, two)
    return inet.within(one:match("^[^/]+"), two) or inet.within(two:match("^[^/]+"), one)
end

local function is_free(range, taken)
    for _, other in ipairs(taken) do
        if subnets.overlap(range, other) then
            return false
        end
    end
    return true
end

-- The text of a number as an address.
local function address(number)
    return inet.text(string.pack(">I4", number))
end

--- The first free subnets in some ranges. Pure.
-- @param ranges array of "NETWORK/BITS" @param taken as of subnets.taken @param n how many
-- @return array of "GATEWAY/24", as many as there are
function subnets.choose(ranges, taken, n)
    local out = {}
    for _, range in ipairs(ranges) do
        local bits = tonumber(range:match("/(%d+)$"))
        local base = string.unpack(">I4", inet.parse(inet.network(range):match("^[^/]+")))
        for number = base, base + (1 << (32 - bits)) - (1 << (32 - BITS)), 1 << (32 - BITS) do
            if #out == n then
                return out
            elseif is_free(("%s/%d"):format(address(number), BITS), taken) then
                out[#out + 1] = ("%s/%d"):format(address(number + 1), BITS)
            end
        end
    end
    return out
end

--- Free subnets on this host, in the contract's ranges for rehearsals.
-- @param data a contract @param n how many
-- @return array of "GATEWAY/24"; or nil, message
function subnets.free(data, n)
    local taken, why = subnets.taken(data)
    if not taken then
        return nil, why
    end
    local out = subnets.choose(data.rehearsal.ranges, taken, n)
    if #out < n then
        return nil, ("no %d free subnets in the contract's rehearsal.ranges"):format(n)
    end
    return out
end

return subnets
