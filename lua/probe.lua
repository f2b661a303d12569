--- A probe: one file, one returned table (docs/probes.md). Checked when it is loaded; run with a `t`.
local box = require "box"
local check = require "check"
local cjson = require "cjson"

local probe = {}

local function is_text(value)
    return type(value) == "string" and value ~= "" and #value <= 200
end

-- Each field: whether it must be there, a test, and what is expected in words.
local FIELDS = {
    id = {
        required = true,
        test = function(value)
            return is_text(value) and value:find("^%l[%l%d]*%.[%l%d._-]+$") ~= nil
        end,
        expected = "a name like \"c.sibling\"",
    },
    title = { required = true, test = is_text, expected = "a sentence of at most 200 bytes" },
    audit = {
        test = function(value)
            return type(value) == "string" and value:find("^%u%d+$") ~= nil
        end,
        expected = "an audit key like \"A3\"",
    },
    needs = {
        test = function(value)
            if type(value) ~= "table" then
                return false
            end
            for key, grant in pairs(value) do
                if math.type(key) ~= "integer" or type(grant) ~= "string" then
                    return false
                end
            end
            return true
        end,
        expected = "a list of grants",
    },
    boxes = {
        test = function(value)
            return math.type(value) == "integer" and value >= 0 and value <= 8
        end,
        expected = "a whole number from 0 to 8",
    },
    early = {
        test = function(value)
            return type(value) == "boolean"
        end,
        expected = "true or false",
    },
    run = {
        required = true,
        test = function(value)
            return type(value) == "function"
        end,
        expected = "a function",
    },
}

local ORDER = { "id", "title", "audit", "needs", "boxes", "early", "run" }

-- Checks the fields of a table, `without` one. Throws.
local function check_fields(definition, file, without)
    if type(definition) ~= "table" then
        error(("%s: a probe returns a table, not a %s"):format(file, type(definition)), 0)
    end
    for field in pairs(definition) do
        if not FIELDS[field] or field == without then
            error(("%s: %s: unknown field"):format(file, tostring(field)), 0)
        end
    end
    for _, field in ipairs(ORDER) do
        local value, rule = definition[field], FIELDS[field]
        if value == nil and rule.required and field ~= without then
            error(("%s: %s: missing; %s expected"):format(file, field, rule.expected), 0)
        elseif value ~= nil and not rule.test(value) then
            error(("%s: %s: %s expected"):format(file, field, rule.expected), 0)
        end
    end
    return definition
end

--- Checks a probe's table. Throws: the file, the field, and what was expected.
-- @param definition what the file returned
-- @param file its name
-- @return definition
function probe.validate(definition, file)
    return check_fields(definition, file)
end

--- Reads what a probe's worker says the probe is: that worker ran the probe's own code, so this is checked
-- like the probe's table.
-- @param text as of probe.metadata @param file its name
-- @return a table with id, title, audit, needs, boxes. Throws
function probe.declared(text, file)
    local ok, meta = pcall(cjson.decode, text)
    if not ok or type(meta) ~= "table" then
        error(("%s: what it declares is no JSON object"):format(file), 0)
    end
    meta.boxes = type(meta.boxes) == "number" and math.tointeger(meta.boxes) or meta.boxes
    return check_fields(meta, file, "run")
end

--- Loads a probe from its source.
-- @param source text; bytecode is refused
-- @param file its name, for errors
-- @return the probe's table. Throws, naming the file and the line or the field
function probe.load(source, file)
    local loader, why = load(source, "@" .. file, "t")
    if not loader then
        error(why:find(file, 1, true) and why or ("%s: %s"):format(file, why), 0)
    end
    return probe.validate(loader(), file)
end

--- What the drill is told about a probe, as JSON: id, title, audit, needs, boxes, early.
function probe.metadata(definition)
    local needs = definition.needs or {}
    return cjson.encode {
        id = definition.id,
        title = definition.title,
        audit = definition.audit,
        needs = #needs > 0 and needs or nil,
        boxes = definition.boxes or 0,
        early = definition.early,
    }
end

--- Runs a probe. A Lua error in it is the instrument's failure: ERROR, with file, line and the last
-- primitive.
-- @param definition as of probe.load
-- @param ... the names of its boxes; for a rehearsal, behind them, the address of its own
--   network, or "live:NETWORK"
-- @return the verdict, the evidence (a table for JSON)
function probe.run(definition, ...)
    local t = check.new(definition.id)
    local boxes = {}
    for i = 1, select("#", ...) do
        local argument = select(i, ...)
        local network = argument:match("^live:(.+)$")
        if network then
            t.live = network
        elseif argument:find("/", 1, true) then
            t.allotted = argument
        else
            boxes[i] = box.new(argument)
        end
    end
    local ok, why = xpcall(definition.run, function(message)
        return { text = tostring(message), last = engine.last() }
    end, t, table.unpack(boxes))
    if not ok then -- for want of memory Lua does not call the handler
        local handled = type(why) == "table" and type(why.text) == "string"
        t:error(handled and why.text or tostring(why), { last_primitive = handled and why.last or engine.last() })
    elseif #t.observations == 0 then
        t:error("it observed nothing, and that proves nothing")
    end
    return t:verdict(), t:evidence()
end

return probe
