--- The host, as a place that attempts start from and as a target. Its attempts are made by the same
-- program as a box's, run on the host by the broker.
local box = require "box"
local cjson = require "cjson"
local guest = require "guest"
local outcome = require "outcome"

-- `guards`: its own kernel is the wall around the boxes.
local host = { label = "the host", guards = true }

--- One TCP connection from the host, by libcurl.
-- @param address text @param port number @param ms the budget
-- @return a seen attempt
function host.connect(address, port, ms)
    return outcome.of_connect(engine.call("host.connect", address, port, ms))
end

-- Makes one stage's attempts by the program, on the host.
local function by_program(specs)
    local arguments, count = guest.arguments { specs }
    local output, why = engine.call("host.attempt", table.unpack(arguments))
    local facts
    if output then
        -- The broker chose the nonce, and no box has a hand in this output.
        facts, why = guest.parse(output, output:match("^(%x+) ") or "-", count)
    end
    return guest.staged(facts, { specs }, why)[1]
end

-- libcurl connects to a plain address, and does no more.
local function by_libcurl(spec)
    return spec.proto == "tcp" and not spec.from and not spec.send and not spec.to:find("%", 1, true)
end

-- One stage: TCP by libcurl, the rest by the program, all side by side.
local function stage_seen(stage)
    local seen, rest, places, work = {}, {}, {}, {}
    for i, spec in ipairs(stage) do
        if by_libcurl(spec) then
            work[#work + 1] = function()
                seen[i] = host.connect(spec.to, spec.port, spec.ms)
            end
        else
            rest[#rest + 1], places[#places + 1] = spec, i
        end
    end
    if #rest > 0 then
        work[#work + 1] = function()
            for j, one in ipairs(by_program(rest)) do
                seen[places[j]] = one
            end
        end
    end
    engine.all(work)
    return seen
end

--- Makes attempts from the host: as Box:attempt, but for tcp, udp and icmp only.
function host.attempt(_, stages)
    local out = {}
    for i, stage in ipairs(stages) do
        out[i] = stage_seen(stage)
    end
    return out
end

--- The command that asks the same from a shell on the host.
function host.by_hand(_, spec)
    return box.question(spec)
end

-- What a program printed as JSON.
local function decoded(op)
    local output, why, code = engine.call(op)
    if not output then
        return nil, why, code
    end
    local ok, value = pcall(cjson.decode, output)
    if not ok then
        return nil, op .. ": no JSON", "EPROTO"
    end
    return value
end

--- The host's links, as `ip -j address` has them. @return array; or nil, message, code
function host.links()
    return decoded "host.addresses"
end

--- The addresses that the host holds.
-- @return array of { address, bits, link, family, scope, master }: master is the bridge that the link is a
--   port of, or nil; or nil, message, code
function host.addresses()
    local links, why, code = host.links()
    if not links then
        return nil, why, code
    end
    local out = {}
    for _, link in ipairs(links) do
        for _, entry in ipairs(link.addr_info or {}) do
            if entry["local"] then
                out[#out + 1] = {
                    address = entry["local"],
                    bits = math.tointeger(entry.prefixlen),
                    link = link.ifname,
                    mac = link.address,
                    family = entry.family == "inet" and 4 or 6,
                    scope = entry.scope,
                    master = link.master,
                }
            end
        end
    end
    return out
end

--- The IPv4 routes of the host, of every table, as `ip -j route` has them: dst, gateway, dev, table (none: main).
-- @return array; or nil, message, code
function host.all_routes()
    return decoded "host.routes"
end

--- The link of the host's default route. @return its name; nil where there is none
function host.uplink()
    for _, route in ipairs(host.all_routes() or {}) do
        if route.dst == "default" and (route.table == nil or route.table == "main") then
            return route.dev
        end
    end
    return nil
end

-- The gateways of a route as ip has it: its own, or those of its next hops.
local function gateways_of(route)
    local out = {}
    for _, hop in ipairs(route.nexthops or { route }) do
        out[#out + 1] = hop.gateway or hop.via and hop.via.host
    end
    return out
end

local function is_down(route)
    for _, flag in ipairs(route.flags or {}) do
        if flag == "linkdown" or flag == "dead" then
            return true
        end
    end
    return false
end

--- The IPv4 routes of the host, of every table, for what asks where a packet would go.
-- @return array of { to ("ADDRESS/BITS" or "ADDRESS"; the default route's is "0.0.0.0/0"), table (text), gateways
--   (array of addresses), down (its link has no carrier) }; or nil, message, code
function host.route_list()
    local routes, why, code = host.all_routes()
    if not routes then
        return nil, why, code
    end
    local out = {}
    for i, route in ipairs(routes) do
        out[i] = {
            to = route.dst == "default" and "0.0.0.0/0" or route.dst,
            table = tostring(route.table or "main"),
            gateways = gateways_of(route),
            down = is_down(route),
        }
    end
    return out
end

--- Where the IPv4 routes of the host lead, of every table, default routes left out.
-- @return array of "ADDRESS/BITS" or "ADDRESS"; or nil, message, code
function host.routes()
    local list, why, code = host.route_list()
    if not list then
        return nil, why, code
    end
    local out = {}
    for _, route in ipairs(list) do
        if route.to ~= "0.0.0.0/0" then
            out[#out + 1] = route.to
        end
    end
    return out
end

--- Facts of the host.
-- @return map of texts, "" for what cannot be read: boxdrill (its version), hostname, kernel, kvm, ip_forward,
--   icmp_echo_ignore_all, arp_retry_ms (the longest time from one ARP request to the next, on any link), free_memory
--   (MiB that were available when this run first asked)
function host.facts()
    local values = table.pack(engine.call("host.facts"))
    local out = {}
    for i = 1, values.n - 1, 2 do
        out[values[i]] = values[i + 1]
    end
    return out
end

--- Which type of instance the contract's image means on this host.
-- @param data a contract
-- @return "virtual-machine" or "container"
function host.instance_type(data)
    if data.image.type ~= "auto" then
        return data.image.type
    end
    return host.facts().kvm == "1" and "virtual-machine" or "container"
end

return host
