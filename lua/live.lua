--- The network that an operator named with --live: one key after another is changed on it for a rehearsal, and
-- put back where it still holds what was set. The broker journals each before it is sent.
local incus = require "incus"

local live = {}

-- A fresh read of one key; an unset key is "". Returns value, description, ETag; or nil, message, code.
local function read(project, network, key)
    local found, etag, code = incus.network(project, network)
    if not found then
        return nil, ("network %s: %s"):format(network, etag), code
    end
    return found.config[key] or "", found.description or "", etag
end

--- Sets a key.
-- @param project @param network @param key @param after text
-- @return true; or nil, message, code: Incus's own words, and an HTTP status, where it refuses
function live.set(project, network, key, after)
    local before, description, etag = read(project, network, key)
    if not before then
        return nil, description, etag
    end
    return incus.set_live(project, network, key, etag, description, before, after)
end

--- The instances on it that are not this run's.
-- @param network
-- @return array of texts as of incus.attached; or nil, message
function live.strangers(network)
    local names, why = incus.attached(network)
    local out = {}
    for _, name in ipairs(names or {}) do
        if not name:find("bd-" .. engine.run_id .. "-", 1, true) then
            out[#out + 1] = name
        end
    end
    return names and out, why
end

--- Puts a key back.
-- @param project @param network @param key
-- @param after what this run set
-- @param before what was there
-- @return true when it holds what was there before; false, text when it holds neither: somebody else has changed
--   it since; or nil, message, code
function live.unset(project, network, key, before, after)
    local now, description, etag = read(project, network, key)
    if not now then
        return nil, description, etag
    elseif now == before then
        return true
    elseif now ~= after then
        return false, ("%s of network %s is %q now, which this run did not set: it was %q before"):format(
            key, network, now, before)
    end
    local done, why, code = incus.unset_live(project, network, key, etag, description)
    if not done then
        return nil, ("%s of network %s is still %q, and was %q: %s"):format(key, network, after, before, why), code
    end
    now = read(project, network, key)
    if now ~= before then
        return nil, ("%s of network %s is %q, and was %q"):format(key, network, tostring(now), before), "EIO"
    end
    return true
end

return live
