--- What is running on this host, and what it may be waiting for: `doctor.lua --stall`.
local incus = require "incus"
local contract = require "contract"
local report = require "report"
local system = require "system"
local task = require "task"

local stall = {}

-- Each section: a title, and its lines; what cannot be asked is a line of its own.

-- What runs are in the middle of, the longest first.
local function requests()
    if report.options().root ~= "1" then
        return { "only root may see it" }
    end
    local out = {}
    for _, run in ipairs(system.runs()) do
        local lines = {}
        for file, op, ms in run.text:gmatch("(%S+) (%S+) (%d+)\n") do
            lines[#lines + 1] = { ms = tonumber(ms), text = ("%8.1f s %s of %s"):format(tonumber(ms) / 1000, op, file) }
        end
        table.sort(lines, function(a, b)
            return a.ms > b.ms
        end)
        out[#out + 1] = ("run %s, as it was %s s ago:"):format(run.run, run.age)
        for _, line in ipairs(lines) do
            out[#out + 1] = line.text
        end
    end
    return out
end

-- A worker that stands ready, or waits for the broker, is none that anybody waits for.
local function is_idle(process)
    return process.name:find("^bd:") and process.state == "S"
end

local function process_line(one)
    local where = one.namespace == "other" and " (in a box)" or ""
    local stopped = one.state:find("[Tt]") and " STOPPED" or one.state == "D" and " BLOCKED IN THE KERNEL" or ""
    return ("%7s %7s s %s %s%s%s: %s"):format(
        one.pid, one.age, one.state, one.name, where, stopped, one.command)
end

local function processes()
    local all, why = system.processes()
    if not all then
        return { why }
    end
    local out = {}
    for _, one in ipairs(all) do
        if not is_idle(one) then
            out[#out + 1] = process_line(one)
        end
    end
    return out
end

local function locks()
    local out = {}
    for _, lock in ipairs(system.locks()) do
        local who = lock.pid > 0 and ("held by process %d"):format(lock.pid)
            or lock.pid == 0 and "free" or "not yours to see"
        out[#out + 1] = ("%-32s %s"):format(lock.file, who)
    end
    return out
end

local ENDED = 200 -- Incus's status codes from there on

local function operation_line(operation)
    local about = {}
    for _, urls in pairs(type(operation.resources) == "table" and operation.resources or {}) do
        for _, url in ipairs(urls) do
            about[#about + 1] = url
        end
    end
    return ("%s %s, since %s: %s"):format(tostring(operation.status), tostring(operation.description),
        tostring(operation.created_at), table.concat(about, " "))
end

local function operations()
    local data = contract.load()
    local found, why = incus.operations(data.project)
    if not found then
        return { why }
    end
    local out = {}
    for _, list in pairs(found) do
        for _, operation in ipairs(list) do
            if (tonumber(operation.status_code) or 0) < ENDED then
                out[#out + 1] = operation_line(operation)
            end
        end
    end
    return out
end

local function resolver()
    local found, why = system.listeners(53)
    if not found then
        return { why }
    end
    local out = {}
    for _, one in ipairs(found) do
        out[#out + 1] = ("%s %s: %s %s"):format(one.proto, one.address, one.name or "not yours to see",
            one.pid and ("(process %d)"):format(one.pid) or "")
    end
    return out
end

local function log()
    local text, why = system.log()
    local out = {}
    for line in (text or why):gmatch("[^\n]+") do
        out[#out + 1] = line
    end
    return out
end

local SECTIONS = {
    { "requests", "what boxdrill's runs are in the middle of", requests },
    { "processes", "processes: id, age, state, name", processes },
    { "operations", "operations under way in Incus", operations },
    { "locks", "locks", locks },
    { "resolver", "who serves DNS on this host", resolver },
    { "log", "the daemon's last words", log },
}

--- Says all of it; in JSON an object of type "stall" for each section.
function stall.show()
    local found = task.map(SECTIONS, function(section)
        return section[3]()
    end)
    for i, section in ipairs(SECTIONS) do
        if report.is_json() then
            engine.call("print", "plain", report.json {
                type = "stall", section = section[1], lines = #found[i] > 0 and found[i] or nil,
            } .. "\n")
        else
            report.say(section[2], "bold")
            report.say(#found[i] > 0 and "  " .. table.concat(found[i], "\n  ") or "  none")
        end
    end
end

return stall
