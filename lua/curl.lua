--- What curl's verbose output says of one connection, as an outcome (see outcome). Its exit code and its message do
-- not tell a refusal from no route (7 is both); the words of errno stand only behind `-v`. Pure.
local curl = {}

-- Since 7.x, since 8.16.
local CONNECTED = { "\n%* Connected to [^\n]- port %d+", "\n%* Established connection to [^\n]- port %d+" }

-- errno's words in the C locale, as strerror writes them, and what each is.
local WORDS = {
    ["Connection refused"] = { "refused", "ECONNREFUSED" },
    ["No route to host"] = { "unreachable", "EHOSTUNREACH" },
    ["Network is unreachable"] = { "unreachable", "ENETUNREACH" },
    ["Permission denied"] = { "unreachable", "EACCES" },
    ["Connection timed out"] = { "silent", "ETIMEDOUT" },
}

-- How a failed connect() is told: 7.x without the source, 8.x with it, and one that fails at once.
local FAILED = { "\n%* connect to [^\n]- failed: ([^\n]+)", "\n%* Immediate connect fail for [^\n]-: ([^\n]+)" }
local SILENT = {
    "Connection timed out after %d+ m", "Connection timeout after %d+ m",
    "Failed to connect to [^\n]-: Timeout was reached",
    "connect timeout after %d+m?s, move on",
}

local function any(text, patterns)
    for _, pattern in ipairs(patterns) do
        local found = text:match(pattern)
        if found then
            return found
        end
    end
    return nil
end

--- Reads what `curl -v -sS` wrote to stderr, run with LC_ALL=C.
-- @param stderr text, of any version; of unknown origin
-- @return { outcome, errno, why }: reachable, refused, unreachable, silent, unresolved or inconclusive; errno's
--   name where curl had its words; why with inconclusive
function curl.read(stderr)
    local text = "\n" .. stderr:gsub("\r", "")
    if any(text, CONNECTED) then
        return { outcome = "reachable" }
    elseif text:find("Could not resolve host", 1, true) or text:find("Resolving timed out", 1, true) then
        return { outcome = "unresolved" }
    end
    local words = any(text, FAILED)
    if words then
        local known = WORDS[(words:gsub("%s+$", ""))]
        if known then
            return { outcome = known[1], errno = known[2] }
        end
        return { outcome = "inconclusive", why = ("curl failed with words that are not known: %s"):format(words) }
    elseif any(text, SILENT) then
        return { outcome = "silent" }
    end
    return { outcome = "inconclusive", why = "curl said nothing of its connection" }
end

return curl
