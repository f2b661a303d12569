--- Addresses as bytes: parsing, printing and comparing IPv4 and IPv6 addresses and ranges.
-- Pure functions, no engine calls. Input may come from a box: anything that is no address is nil.
local inet = {}

local function parse4(text)
    local octets = { text:match("^(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)$") }
    if #octets ~= 4 then
        return nil
    end
    for i = 1, 4 do
        octets[i] = tonumber(octets[i], 10)
        if octets[i] > 255 then
            return nil
        end
    end
    return string.char(table.unpack(octets))
end

-- The 16-bit groups of one side of a `::`, as bytes; a dotted IPv4 tail is two groups.
local function parse_groups(text)
    if text == "" then
        return ""
    end
    local out = {}
    for group in (text .. ":"):gmatch("([^:]*):") do
        if group:find(".", 1, true) then
            out[#out + 1] = parse4(group)
            if not out[#out] or #out[#out] ~= 4 then
                return nil
            end
        elseif group:match("^%x%x?%x?%x?$") then
            out[#out + 1] = string.pack(">I2", tonumber(group, 16))
        else
            return nil
        end
    end
    return table.concat(out)
end

local function parse6(text)
    local head, tail = text:match("^(.-)::(.*)$")
    if not head then
        local bytes = parse_groups(text)
        return bytes and #bytes == 16 and bytes or nil
    end
    if tail:find("::", 1, true) then
        return nil
    end
    local left, right = parse_groups(head), parse_groups(tail)
    if not left or not right or #left + #right > 14 then
        return nil
    end
    return left .. ("\0"):rep(16 - #left - #right) .. right
end

--- The bytes of an address: 4 for IPv4, 16 for IPv6.
-- @param text the address; an IPv6 scope (`%eth0`) is ignored
-- @return bytes, or nil when it is no address
function inet.parse(text)
    if type(text) ~= "string" or #text > 80 then
        return nil
    end
    local bare = text:match("^([^%%]*)")
    return bare:find(":", 1, true) and parse6(bare) or parse4(bare)
end

--- The text of an address.
-- @param bytes 4 or 16 bytes
-- @return text; IPv6 with its longest run of zero groups shortened
function inet.text(bytes)
    if #bytes == 4 then
        return ("%d.%d.%d.%d"):format(bytes:byte(1, 4))
    end
    local groups = {}
    for i = 1, 16, 2 do
        groups[#groups + 1] = ("%x"):format((string.unpack(">I2", bytes, i)))
    end
    local best, length = nil, 1
    for i = 1, 8 do
        local n = 0
        while groups[i + n] == "0" do
            n = n + 1
        end
        if n > length then
            best, length = i, n
        end
    end
    if not best then
        return table.concat(groups, ":")
    end
    return table.concat(groups, ":", 1, best - 1) .. "::" .. table.concat(groups, ":", best + length, 8)
end

-- The first `bits` bits of `bytes`, the rest zero.
local function mask(bytes, bits)
    local out = {}
    for i = 1, #bytes do
        local keep = math.max(0, math.min(8, bits - (i - 1) * 8))
        out[i] = string.char(bytes:byte(i) & (0xff << (8 - keep)) & 0xff)
    end
    return table.concat(out)
end

-- Address bytes and prefix length of "ADDRESS/BITS" or "ADDRESS"; nil when it is neither.
local function parse_range(text)
    local address, bits = tostring(text):match("^([^/]+)/(%d%d?%d?)$")
    local bytes = inet.parse(address or text)
    if not bytes then
        return nil
    end
    bits = bits and tonumber(bits) or #bytes * 8
    if bits > #bytes * 8 then
        return nil
    end
    return bytes, bits
end

--- The network of "ADDRESS/BITS".
-- @return "NETWORK/BITS" and the address without bits, or nil when it is neither
function inet.network(text)
    local bytes, bits = parse_range(text)
    if not bytes then
        return nil
    end
    return ("%s/%d"):format(inet.text(mask(bytes, bits)), bits), inet.text(bytes)
end

--- Whether an address lies in a range.
-- @param address text
-- @param range "ADDRESS/BITS", or one address
-- @return boolean; false when either cannot be parsed or the families differ
function inet.within(address, range)
    local bytes = inet.parse(address)
    local base, bits = parse_range(range)
    if not bytes or not base or #bytes ~= #base then
        return false
    end
    return mask(bytes, bits) == mask(base, bits)
end

--- Whether an address is among some.
-- @param addresses array of { address = text } @param address text
function inet.held(addresses, address)
    for _, entry in ipairs(addresses) do
        if inet.same(entry.address, address) then
            return true
        end
    end
    return false
end

--- Whether two texts are the same address.
function inet.same(a, b)
    local left, right = inet.parse(a), inet.parse(b)
    return left ~= nil and left == right
end

--- The family of an address: 4, 6, or nil when it is none.
function inet.family(text)
    local bytes = inet.parse(text)
    return bytes and (#bytes == 4 and 4 or 6)
end

--- The name whose PTR record an address has.
-- @return name under in-addr.arpa or ip6.arpa, or nil when it is no address
function inet.reverse(text)
    local bytes = inet.parse(text)
    if not bytes then
        return nil
    end
    local labels = {}
    if #bytes == 4 then
        for i = 4, 1, -1 do
            labels[#labels + 1] = tostring(bytes:byte(i))
        end
        return table.concat(labels, ".") .. ".in-addr.arpa"
    end
    for i = 16, 1, -1 do
        local byte = bytes:byte(i)
        labels[#labels + 1] = ("%x.%x"):format(byte & 15, byte >> 4)
    end
    return table.concat(labels, ".") .. ".ip6.arpa"
end

return inet
