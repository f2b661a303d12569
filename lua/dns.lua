--- DNS messages (RFC 1035): queries written, replies read. Pure functions, no engine calls.
-- A reply comes from a box or from whoever answers it: every length is checked, a compression
-- pointer must point backwards, and nothing here throws on what it is given to decode.
local dns = {}

local TYPE = { A = 1, PTR = 12, AAAA = 28 }
local TYPE_NAME = { [1] = "A", [5] = "CNAME", [12] = "PTR", [28] = "AAAA" }
local RCODE = { [0] = "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED" }
local NAME_LIMIT = 255    -- octets of a name, RFC 1035 2.3.4
local ANSWER_LIMIT = 64   -- records looked at; a reply has no reason to hold more

--- Bytes as lower-case hexadecimal digits, as the guest program takes and prints them.
function dns.hex(bytes)
    return (bytes:gsub(".", function(c)
        return ("%02x"):format(c:byte())
    end))
end

--- The bytes of hexadecimal digits, or nil when there is anything else in them.
function dns.unhex(text)
    if #text % 2 ~= 0 or text:find("%X") then
        return nil
    end
    return (text:gsub("%x%x", function(pair)
        return string.char(tonumber(pair, 16))
    end))
end

local function encode_name(name)
    local out, size = {}, 1
    for label in name:gmatch("[^.]+") do
        if #label > 63 then
            error(("dns.query: label of %d octets"):format(#label), 3)
        end
        size = size + #label + 1
        out[#out + 1] = string.pack("s1", label)
    end
    if size > NAME_LIMIT then
        error(("dns.query: name of %d octets"):format(size), 3)
    end
    return table.concat(out) .. "\0"
end

--- A query, recursion desired.
-- @param id 0 to 65535; the reply must carry it
-- @param name the name, without or with a final dot
-- @param kind "A", "AAAA" or "PTR"
-- @return bytes, for UDP; for TCP, see dns.framed
function dns.query(id, name, kind)
    local number = TYPE[kind]
    if not number then
        error(("dns.query: unknown type %s"):format(tostring(kind)), 2)
    end
    return string.pack(">I2I2I2I2I2I2", id, 0x0100, 1, 0, 0, 0)
        .. encode_name(name) .. string.pack(">I2I2", number, 1)
end

--- A message as TCP carries it: its length first (RFC 1035 4.2.2).
function dns.framed(message)
    return string.pack(">s2", message)
end

--- The first message of what a TCP connection sent; nil, message when it is not all there.
function dns.unframed(bytes)
    if #bytes < 2 then
        return nil, "no length"
    end
    local length = string.unpack(">I2", bytes)
    if #bytes < 2 + length then
        return nil, ("cut off: %d of %d octets"):format(#bytes - 2, length)
    end
    return bytes:sub(3, 2 + length)
end

-- One label's text: only letters, digits, - and _ stay as they are (RFC 4343's \DDD otherwise).
local function escape_label(label)
    return (label:gsub("[^%w_-]", function(c)
        return ("\\%03d"):format(c:byte())
    end))
end

-- Reads the name at `at`. Returns its text and the position after it; nil, message otherwise.
local function decode_name(bytes, at)
    local labels, size, after, lowest = {}, 0, nil, at
    while true do
        local length = bytes:byte(at)
        if not length then
            return nil, "name runs past the end"
        elseif length == 0 then
            return table.concat(labels, "."), after or at + 1
        elseif length < 64 then
            if at + length > #bytes then
                return nil, "label runs past the end"
            end
            size = size + length + 1
            if size > NAME_LIMIT then
                return nil, "name longer than 255 octets"
            end
            labels[#labels + 1] = escape_label(bytes:sub(at + 1, at + length))
            at = at + length + 1
        elseif length >= 192 and at < #bytes then
            local target = (string.unpack(">I2", bytes, at) & 0x3fff) + 1
            if target >= lowest then
                return nil, "compression pointer that does not point backwards"
            end
            after = after or at + 2
            lowest, at = target, target
        else
            return nil, "malformed label"
        end
    end
end

local function decode_data(bytes, kind, at, length)
    if kind == TYPE.A and length == 4 then
        return ("%d.%d.%d.%d"):format(bytes:byte(at, at + 3))
    elseif kind == TYPE.AAAA and length == 16 then
        local groups = {}
        for i = 0, 14, 2 do
            groups[#groups + 1] = ("%x"):format((string.unpack(">I2", bytes, at + i)))
        end
        return table.concat(groups, ":")
    elseif kind == TYPE.PTR or kind == 5 then
        return (decode_name(bytes, at))
    end
    return nil
end

-- Reads one resource record at `at`. Returns it and the position after it; nil, message otherwise.
local function decode_record(bytes, at)
    local name, after = decode_name(bytes, at)
    if not name then
        return nil, after
    end
    if after + 9 > #bytes then
        return nil, "record runs past the end"
    end
    local kind, _, ttl, length = string.unpack(">I2I2I4I2", bytes, after)
    local start = after + 10
    if start + length - 1 > #bytes then
        return nil, "record data runs past the end"
    end
    return {
        name = name,
        type = TYPE_NAME[kind] or kind,
        ttl = ttl,
        data = decode_data(bytes, kind, start, length),
    }, start + length
end

local function decode_question(bytes, at)
    local name, after = decode_name(bytes, at)
    if not name then
        return nil, after
    end
    if after + 3 > #bytes then
        return nil, "question runs past the end"
    end
    return { name = name, type = TYPE_NAME[string.unpack(">I2", bytes, after)] }, after + 4
end

--- Reads a reply.
-- @param bytes what came, of any origin
-- @return { id, rcode (name or number), truncated, question = { name, type }, answers = {
--   { name, type, ttl, data } } }: data is an address or a name, nil for other types.
--   nil, message when it is no well-formed reply
function dns.decode(bytes)
    if #bytes < 12 then
        return nil, "shorter than a header"
    end
    local id, flags, questions, count = string.unpack(">I2I2I2I2", bytes)
    if flags & 0x8000 == 0 then
        return nil, "a query, not a reply"
    end
    if questions > 1 then
        return nil, "more than one question"
    end
    local reply = {
        id = id,
        rcode = RCODE[flags & 15] or flags & 15,
        truncated = flags & 0x0200 ~= 0,
        answers = {},
    }
    local at = 13
    if questions == 1 then
        local question, after = decode_question(bytes, at)
        if not question then
            return nil, after
        end
        reply.question, at = question, after
    end
    for i = 1, math.min(count, ANSWER_LIMIT) do
        local record, after = decode_record(bytes, at)
        if not record then
            return nil, ("answer %d: %s"):format(i, after)
        end
        reply.answers[i], at = record, after
    end
    return reply
end

--- Reads the reply to a query, and refuses one that answers another.
-- @param bytes what came
-- @param id, name, kind what was asked
-- @return as dns.decode
function dns.reply(bytes, id, name, kind)
    local reply, why = dns.decode(bytes)
    if not reply then
        return nil, why
    end
    if reply.id ~= id then
        return nil, "the id of another query"
    end
    local asked = reply.question
    if asked and (asked.name:lower() ~= name:lower():gsub("%.$", "") or asked.type ~= kind) then
        return nil, "the answer to another question"
    end
    return reply
end

--- The data of a reply's records of one type: addresses for "A", names for "PTR".
function dns.answers(reply, kind)
    local out = {}
    for _, record in ipairs(reply.answers) do
        if record.type == kind and record.data then
            out[#out + 1] = record.data
        end
    end
    return out
end

return dns
