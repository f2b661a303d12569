--- The `incus` client, as a box CLI calls it: for phase A, which asks what such a CLI may assume of it. A
-- result that is no answer (it did not start, did not end, or wrote too much) is ERROR, and recorded.
local contract = require "contract"
local incus = require "incus"

local client = {}

-- What each form is on a command line; the broker has the same table (docs/requests.md).
local WORDS = {
    get = "config get %s %s",
    ["list-filter"] = "list %s --format csv --columns n",
    ["list-columns"] = "list %s --format csv --columns %s",
    rename = "rename %s %s",
    snapshot = "snapshot create %s %s",
    ["snapshot-list"] = "snapshot list %s --format csv",
    copy = "copy %s %s",
    delete = "delete -f",
}

--- The command that asks the same by hand. @param form @param ... its arguments
function client.by_hand(form, ...)
    local words = WORDS[form]
    if form == "delete" then
        words = words .. " " .. table.concat({ ... }, " ")
    else
        words = words:format(...)
    end
    return ("incus --project %s %s </dev/null"):format(contract.load().project, words)
end

--- Runs the client.
-- @param t where a failure of the instrument is recorded
-- @param form @param ... its arguments
-- @return { code, stdout, stderr }; nil when it gave no answer
function client.ask(t, form, ...)
    local result, why = incus.client(form, contract.load().project, ...)
    if not result then
        t:error(("the incus client (%s): %s"):format(form, tostring(why)))
        return nil
    elseif result.state ~= "exit" or result.truncated then
        t:error(("the incus client (%s): %s %s"):format(form, result.state, tostring(result.value)), {
            seen = result.stderr,
            by_hand = client.by_hand(form, ...),
        })
        return nil
    end
    return { code = math.tointeger(result.value), stdout = result.stdout, stderr = result.stderr }
end

--- A result as text, for `seen`.
function client.text(result)
    local out = ("exit %d"):format(result.code)
    for _, stream in ipairs { "stdout", "stderr" } do
        if result[stream] ~= "" then
            out = ("%s, %s %q"):format(out, stream, result[stream]:sub(1, 400))
        end
    end
    return out
end

--- Runs the client for something that is no question but must work for one to be asked.
-- @return the result; nil (and ERROR recorded) when it did not exit with 0
function client.must(t, form, ...)
    local result = client.ask(t, form, ...)
    if result and result.code ~= 0 then
        t:error(("the incus client (%s) failed"):format(form), {
            seen = client.text(result),
            by_hand = client.by_hand(form, ...),
        })
        return nil
    end
    return result
end

--- Whether Incus says, over REST, that an instance exists. Where it cannot be known, ERROR is recorded.
-- @return true or false; nil when it cannot be known
function client.exists(t, name)
    local found, why, code = incus.instance(contract.load().project, name)
    if found then
        return true
    elseif incus.missing(code) then
        return false
    end
    t:error(("%s: %s"):format(name, why))
    return nil
end

--- Whether a box runs; if not, SUSPECT is recorded: a question about a running instance needs one.
function client.running(t, box)
    local state, why = incus.state(box.project, box.name)
    if state and state.status == "Running" then
        return true
    end
    t:suspect(("%s is not running: %s"):format(box.label, state and state.status or tostring(why)))
    return false
end

return client
