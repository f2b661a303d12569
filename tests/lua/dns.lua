-- DNS messages: queries as they stand in RFC 1035, replies from whoever sends them.
-- Run by: boxdrill tests/lua/NAME.lua (in the sandbox; no Incus is needed).
local passed, failed = 0, 0

local function check(what, ok, got)
    if ok then
        passed = passed + 1
    else
        failed = failed + 1
        print(("FAILED: %s%s"):format(what, got == nil and "" or ": " .. tostring(got)))
    end
end

local dns = require "dns"

-- Parts of a message, by hand.
local function header(id, flags, questions, answers)
    return string.pack(">I2I2I2I2I2I2", id, flags, questions, answers, 0, 0)
end
local EXAMPLE = "\7example\3com\0"
local QUESTION = EXAMPLE .. string.pack(">I2I2", 1, 1)
local function answer(name, kind, data)
    return name .. string.pack(">I2I2I4s2", kind, 1, 60, data)
end
local REPLY = 0x8180

check("a query", dns.hex(dns.query(0x1234, "example.com", "A"))
    == "123401000001000000000000" .. "076578616d706c6503636f6d00" .. "00010001")
check("a final dot is no label", dns.query(1, "a.b.", "A") == dns.query(1, "a.b", "A"))
check("a label too long throws", not pcall(dns.query, 1, ("x"):rep(64), "A"))
check("a name too long throws", not pcall(dns.query, 1, ("x."):rep(140), "A"))
check("a type there is none of throws", not pcall(dns.query, 1, "x", "ANY"))
check("framed for TCP", dns.framed("abc") == "\0\3abc")
check("unframed", dns.unframed("\0\3abcd") == "abc")
check("cut off in the frame", dns.unframed("\0\9abc") == nil)
check("no frame", dns.unframed("\0") == nil)
check("hex there and back", dns.unhex(dns.hex("\0\255abc")) == "\0\255abc")
check("no hex", dns.unhex("0g") == nil and dns.unhex("abc") == nil)

local good = header(7, REPLY, 1, 2) .. QUESTION .. answer("\xc0\x0c", 5, "\3www\xc0\x0c")
    .. answer("\xc0\x0c", 1, "\10\88\0\7")
local reply = dns.reply(good, 7, "EXAMPLE.com", "A")
check("a good reply", reply and reply.rcode == "NOERROR" and #reply.answers == 2)
check("its address", reply and dns.answers(reply, "A")[1] == "10.88.0.7")
check("its alias", reply and dns.answers(reply, "CNAME")[1] == "www.example.com")
check("NXDOMAIN", dns.decode(header(7, 0x8183, 1, 0) .. QUESTION).rcode == "NXDOMAIN")
check("REFUSED without a question", dns.decode(header(7, 0x8185, 0, 0)).rcode == "REFUSED")
check("a code without a name", dns.decode(header(7, 0x818b, 0, 0)).rcode == 11)
check("truncated is told", dns.decode(header(7, 0x8380, 1, 0) .. QUESTION).truncated == true)

local function refused(what, bytes)
    local value, why = dns.decode(bytes)
    check(what, value == nil and type(why) == "string", why)
end
refused("nothing", "")
refused("half a header", header(7, REPLY, 1, 0):sub(1, 11))
refused("a query", header(7, 0x0100, 1, 0) .. QUESTION)
refused("two questions", header(7, REPLY, 2, 0) .. QUESTION .. QUESTION)
refused("a question cut off", header(7, REPLY, 1, 0) .. EXAMPLE .. "\0\1")
refused("a name cut off", header(7, REPLY, 1, 0) .. "\7exam")
refused("a name without an end", header(7, REPLY, 1, 0) .. "\1a")
refused("a name too long", header(7, REPLY, 1, 0) .. ("\1a"):rep(130) .. "\0\0\1\0\1")
refused("an extended label", header(7, REPLY, 1, 0) .. "\x41a\0\0\1\0\1")
refused("a pointer to itself", header(7, REPLY, 1, 0) .. "\xc0\x0c\0\1\0\1")
refused("a pointer forward", header(7, REPLY, 1, 1) .. QUESTION .. answer("\xc0\x30", 1, "\1\2\3\4"))
refused("two pointers at each other", header(7, REPLY, 1, 1) .. "\xc0\x0e\xc0\x0c\0\1\0\1")
refused("half a pointer", header(7, REPLY, 1, 0) .. "\xc0")
refused("answers promised and not sent", header(7, REPLY, 1, 5) .. QUESTION)
refused("data longer than the message", header(7, REPLY, 1, 1) .. QUESTION .. "\xc0\x0c"
    .. string.pack(">I2I2I4I2", 1, 1, 60, 4000) .. "\1\2\3\4")

check("an address of three bytes is none", #dns.answers(dns.decode(header(7, REPLY, 1, 1) .. QUESTION
    .. answer("\xc0\x0c", 1, "\1\2\3")), "A") == 0)
check("a PTR that loops is none", #dns.answers(dns.decode(header(7, REPLY, 1, 1) .. QUESTION
    .. answer("\xc0\x0c", 12, "\xc0\xff")), "PTR") == 0)
local nasty = dns.decode(header(7, REPLY, 0, 1) .. answer("\0", 12, "\6\27[31m\n\0"))
check("control bytes in a name are escaped", dns.answers(nasty, "PTR")[1] == "\\027\\09131m\\010",
    dns.answers(nasty, "PTR")[1])

check("the id of another query", dns.reply(good, 8, "example.com", "A") == nil)
check("the answer to another name", dns.reply(good, 7, "example.org", "A") == nil)
check("the answer to another type", dns.reply(good, 7, "example.com", "PTR") == nil)

-- Whatever comes, decoding ends, and does not throw.
local thrown = 0
for i = 1, 3000 do
    local bytes = {}
    for j = 1, math.random(0, 80) do
        bytes[j] = string.char(math.random() < 0.3 and 0xc0 or math.random(0, 255))
    end
    local text = header(7, REPLY, math.random(0, 1), math.random(0, 3)) .. table.concat(bytes)
    if not pcall(dns.decode, i % 2 == 0 and text or good:sub(1, math.random(0, #good))) then
        thrown = thrown + 1
    end
end
check("3000 random replies", thrown == 0, thrown)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
