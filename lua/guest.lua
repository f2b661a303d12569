--- The program in the box, from outside: its arguments written, its lines read (docs/guest.md).
-- What it prints went through a box: only lines that begin with the run's own nonce count, and a run is
-- believed only when it is complete. Pure functions, but for the nonce.
local outcome = require "outcome"

local guest = {}

local ORDER = { "to", "port", "ms", "from", "send", "recv", "ttl", "bind", "token", "link", "mark", "framed" }
-- What a frame is for stands in the frame itself.
local NOT_FOR_FRAMES = { to = true, port = true }
-- Attempts: what they come to is an outcome. The others report facts of their own.
local ATTEMPTS = { tcp = true, udp = true, icmp = true, frame = true }
local LINE_LIMIT = 16000

--- Fresh hexadecimal digits: a run's nonce, a listener's token.
function guest.nonce()
    return engine.random()
end

--- One SPEC argument.
-- @param spec { proto, to, port, ms, from, send, recv, ttl, bind, token, link, mark, framed }
function guest.spec(spec)
    local out = { "proto=" .. spec.proto }
    for _, key in ipairs(ORDER) do
        if spec[key] ~= nil and not (spec.proto == "frame" and NOT_FOR_FRAMES[key]) then
            out[#out + 1] = key .. "=" .. tostring(spec[key])
        end
    end
    return table.concat(out, ",")
end

--- The SPEC arguments of stages, with `--` between them.
-- @param stages array of arrays of specs; none may be empty
-- @return array of texts, the number of SPECs, the sum of the stages' budgets in ms
function guest.arguments(stages)
    local out, count, budget = {}, 0, 0
    for i, stage in ipairs(stages) do
        if #stage == 0 then
            error(("guest: stage %d is empty"):format(i), 2)
        end
        if i > 1 then
            out[#out + 1] = "--"
        end
        local longest = 0
        for _, spec in ipairs(stage) do
            out[#out + 1] = guest.spec(spec)
            longest = math.max(longest, spec.ms or 1000)
            count = count + 1
        end
        budget = budget + longest
    end
    return out, count, budget
end

-- The keys and values of one line, without its nonce; nil when a word is no key=value.
local function parse_words(line)
    local fields = {}
    for word in line:gmatch("%S+") do
        local key, value = word:match("^([%l%d_-]+)=(.*)$")
        if not key then
            return nil
        end
        fields[key] = value
    end
    return fields
end

-- The run's own lines in order, each as its fields.
local function own_lines(output, nonce)
    local lines = {}
    local prefix = nonce .. " "
    for line in output:gmatch("([^\n]*)\n") do
        if line:sub(1, #prefix) == prefix and #line <= LINE_LIMIT then
            local fields = parse_words(line:sub(#prefix + 1))
            if not fields then
                return nil, "a malformed line"
            end
            lines[#lines + 1] = fields
        end
    end
    return lines
end

-- Checks that the last line ends the run, and takes it off. Returns its count, or nil, message.
local function take_end(lines)
    local last = lines[#lines]
    local count = last and tonumber(last["end"])
    if not count then
        return nil, #lines == 0 and "no output" or "output lost: no end line"
    end
    lines[#lines] = nil
    return count
end

--- Reads what `attempt` printed.
-- @param output its stdout
-- @param nonce the run's nonce
-- @param count how many SPECs were asked
-- @return array of facts (a table of texts) by SPEC; or nil, message when anything is missing, twice,
--   or malformed: then nothing of it is believed
function guest.parse(output, nonce, count)
    local lines, why = own_lines(output, nonce)
    if not lines then
        return nil, why
    end
    local ended
    ended, why = take_end(lines)
    if not ended then
        return nil, why
    end
    local facts, found = {}, 0
    for _, fields in ipairs(lines) do
        if fields["end"] then
            return nil, "two end lines"
        elseif fields.n then
            local n = math.tointeger(tonumber(fields.n))
            if not n or n < 1 or n > count or facts[n] then
                return nil, "a result that was not asked for"
            end
            facts[n], found = fields, found + 1
        end
    end
    if ended ~= count or found ~= count then
        return nil, ("output lost: %d of %d results"):format(found, count)
    end
    return facts
end

--- When each stage of a run began.
-- @param output, nonce as of guest.parse
-- @return array of milliseconds since the run began
function guest.starts(output, nonce)
    local out = {}
    for _, fields in ipairs(own_lines(output, nonce) or {}) do
        local stage = fields.at and math.tointeger(tonumber(fields.stage))
        if stage then
            out[stage] = tonumber(fields.at)
        end
    end
    return out
end

--- Sorts facts by stage.
-- @param facts as of guest.parse; nil when the run was lost
-- @param stages what was asked
-- @param why text, where the run was lost
-- @return array of arrays like `stages`: for tcp, udp, icmp and frame a seen attempt (inconclusive, where the
--   run was lost), for listen, await and stop the fact itself, or { result = "lost", why }
function guest.staged(facts, stages, why)
    local out, n = {}, 0
    for i, stage in ipairs(stages) do
        out[i] = {}
        for j, spec in ipairs(stage) do
            n = n + 1
            if ATTEMPTS[spec.proto] then
                out[i][j] = facts and outcome.of_fact(facts[n]) or outcome.inconclusive(why)
            else
                out[i][j] = facts and facts[n] or { result = "lost", why = why }
            end
        end
    end
    return out
end

--- The last line of stderr in `exec` mode, and what the command itself wrote there.
-- @param stderr as it came
-- @param nonce the run's nonce
-- @return { state, value, truncated, ms }, the command's stderr; or nil, message when it was lost
function guest.parse_exec(stderr, nonce)
    local line = stderr:match("([^\n]*)\n$")
    if not line or line:sub(1, #nonce + 1) ~= nonce .. " " then
        return nil, "output lost: no state line"
    end
    local fields = parse_words(line:sub(#nonce + 2))
    if not fields or not fields.state then
        return nil, "a malformed state line"
    end
    local before = stderr:sub(1, #stderr - #line - 1)
    return {
        state = fields.state,
        value = tonumber(fields.value) or fields.value,
        truncated = fields.truncated == "1",
        ms = tonumber(fields.ms),
    }, (before:gsub("\n$", ""))
end

local function unescape(value)
    return value and (value:gsub("%%(%x%x)", function(pair)
        return string.char(tonumber(pair, 16))
    end))
end

local SINGLE = { "hostname", "kernel", "machine-id", "boot-id", "icmp_echo_ignore_all" }

-- Adds one line of `info` to `info`.
local function add_info(info, fields)
    for _, key in ipairs(SINGLE) do
        if fields[key] then
            info[key] = unescape(fields[key])
        end
    end
    if fields.nameserver and fields.nameserver ~= "" then
        table.insert(info.nameservers, fields.nameserver)
    elseif fields.addr then
        local address, bits = fields.addr:match("^([^/]+)/(%d+)$")
        table.insert(info.addresses, {
            address = address or fields.addr,
            bits = tonumber(bits),
            link = unescape(fields.link),
            family = tonumber(fields.family),
            scope = fields.scope,
            tentative = fields.tentative == "1",
        })
    elseif fields.route then
        table.insert(info.routes, {
            to = fields.route,
            via = fields.via,
            link = unescape(fields.link),
            family = tonumber(fields.family),
        })
    elseif fields.link and fields.link ~= "" then
        info.links[unescape(fields.link)] = { mac = fields.mac, up = fields.up == "1" }
    end
end

--- Reads what `info` printed.
-- @param output its stdout
-- @param nonce the run's nonce
-- @return { hostname, kernel, ["machine-id"], ["boot-id"], icmp_echo_ignore_all, links = { NAME = { mac, up } },
--   addresses = { { address, bits, link, family, scope, tentative } }, routes = { { to, via, link, family } },
--   nameservers = { address } }: texts of the box's own making; or nil, message when it was lost
function guest.parse_info(output, nonce)
    local lines, why = own_lines(output, nonce)
    if not lines then
        return nil, why
    end
    local ended
    ended, why = take_end(lines)
    if not ended then
        return nil, why
    elseif ended ~= #lines then
        return nil, ("output lost: %d of %d lines"):format(#lines, ended)
    end
    local info = { links = {}, addresses = {}, routes = {}, nameservers = {} }
    for _, fields in ipairs(lines) do
        add_info(info, fields)
    end
    return info
end

return guest
