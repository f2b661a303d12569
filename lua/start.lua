--- How every script begins: its options read, the contract of this run checked. What the operator gave and
-- cannot be used ends it with one line on stderr and exit status 2; in JSON it is an object of type "error", too.
local contract = require "contract"
local options = require "options"
local report = require "report"

local start = {}

local USAGE = 2

--- Ends a script, before it did anything, for what the operator gave. The caller returns.
-- @param message text
function start.refuse(message)
    start.stop(USAGE, message)
end

--- Ends a script with a line on stderr and an exit status. The caller returns.
-- @param status a number @param message text
function start.stop(status, message)
    if report.is_json() then
        report.refuse(message)
    end
    engine.call("refuse", message)
    engine.call("exit", status)
end

--- Reads a script's options and the contract.
-- @param name the script's, for messages
-- @param known as of options.parse; `help` is added
-- @param help the text of --help
-- @param ... the script's arguments
-- @return map of options, array of other arguments; nil where the script is to end: help was asked for, or
--   something refused
function start.options(name, known, help, ...)
    known.help = "flag"
    local ok, found, rest = pcall(options.parse, known, ...)
    if not ok then
        return start.refuse(("%s: %s"):format(name, found))
    elseif found.help then
        return report.say(help)
    end
    local why
    ok, why = pcall(contract.load)
    if not ok then
        return start.refuse((tostring(why):gsub("%s+", " ")))
    end
    return found, rest
end

--- As start.options, for a script that takes no other arguments: one is refused.
function start.only_options(name, known, help, ...)
    local found, rest = start.options(name, known, help, ...)
    if found and rest[1] then
        return start.refuse(("%s takes no '%s' (see --help)"):format(name, rest[1]))
    end
    return found
end

return start
