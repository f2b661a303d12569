-- A command in the box: as the template's user, its output and its exit code intact.
local box = require "box"
local cli = require "cli"
local incus = require "incus"
local task = require "task"

local CODE, TRIES = 37, 3
local SETTLE_MS, EVERY_MS = 60000, 200
-- What a shell in between would act on: two spaces, a quote, a semicolon. (Neither a line break in a word nor a
-- `$`: `sudo -i`, which such CLIs run commands by, takes the one out and does not quote the other.)
local FIRST, SECOND = "two  spaces", "it's; *"
local TEXT = FIRST .. "\n" .. SECOND .. "\n"

-- The incus client loses the output of a fast command now and then while others run (its exit code is right):
-- what is asked again is only an answer without any output.
local function ask(t, words)
    local result
    for _ = 1, TRIES do
        result = cli.run(t, words)
        if not result or result.text:find("%S") then
            break
        end
    end
    return result
end

-- The user is made by cloud-init, and whether that was waited for is b.new.settled's question.
local function wait_settled(name)
    local place = box.new(name)
    task.poll(SETTLE_MS, EVERY_MS, function()
        local result = place:exec { "test", "-e", "/run/cloud-init/result.json" }
        return result and result.state == "exit" and result.value == 0
    end)
end

local function user_of(t, name)
    local instance, why = incus.instance(t.contract.project, name)
    local user = instance and instance.config["user.box.user"]
    local template = not user and cli.template(t.contract.cli.template)
    user = template and template.BOX_USER or user
    if not user then
        t:note("which user it should be is not known: " .. tostring(why or "no user.box.user"))
    end
    return user
end

return {
    id = "b.exec",
    title = "exec runs as the template's user, output and exit code intact",
    needs = { "box.cli", "box.exec" },
    run = function(t)
        local name = cli.one(t)
        if not name then
            return
        end
        wait_settled(name)
        local user = user_of(t, name)
        local result = ask(t, { "exec", name, "--", "id", "-un" })
        if result and user then
            cli.expect(t, result.code == 0 and result.text:find("^%s*" .. cli.literal(user) .. "%s*$"),
                "id -un in the box", result, ("as the template's user: %s"):format(user))
        end
        result = ask(t, { "exec", name, "--", "printf", "%s\\n", FIRST, SECOND })
        if result then
            cli.expect(t, result.text:find(TEXT, 1, true), "printf in the box", result,
                ("its output as it is: %q"):format(TEXT))
        end
        result = cli.run(t, { "exec", name, "--", "sh", "-c", ("exit %d"):format(CODE) })
        if result then
            cli.expect(t, result.code == CODE, ("exit %d in the box"):format(CODE), result,
                ("the command's own exit code: %d"):format(CODE))
        end
    end,
}
