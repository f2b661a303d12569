--- A script's own command line, after the script's name.
local options = {}

--- Reads arguments.
-- @param known map of option to its kind: "flag", or "value" (`--option VALUE` or `--option=VALUE`)
-- @param ... the script's arguments
-- @return map of option (without the dashes) to true or its value, array of the other arguments; -h is
--   --help. Throws a usage message on an option that is not known
function options.parse(known, ...)
    local found, rest = {}, {}
    local arguments = table.pack(...)
    local i = 1
    while i <= arguments.n do
        local word = arguments[i] == "-h" and "--help" or arguments[i]
        local name, value = word:match("^%-%-([%l-]+)=?(.*)$")
        if not name and word:find("^%-") then
            error(("unknown option %s (see --help)"):format(word), 0)
        elseif not name then
            rest[#rest + 1] = arguments[i]
        elseif not known[name] then
            error(("unknown option --%s (see --help)"):format(name), 0)
        elseif known[name] == "flag" and word:find("=", 1, true) then
            error(("--%s takes no value (see --help)"):format(name), 0)
        elseif known[name] == "flag" then
            found[name] = true
        else
            if not arguments[i]:find("=", 1, true) then
                i = i + 1
                value = arguments[i]
            end
            if not value or value == "" then
                error(("--%s wants a value (see --help)"):format(name), 0)
            end
            found[name] = value
        end
        i = i + 1
    end
    return found, rest
end

--- The words of a comma list. @return array
function options.words(text)
    local out = {}
    for word in text:gmatch("[^,%s]+") do
        out[#out + 1] = word
    end
    return out
end

return options
