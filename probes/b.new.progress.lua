-- A mint that takes long says something at least every few seconds, and one that fails shows what it heard.
-- The mint is made slow from inside: cloud-init is stopped in the new box as soon as it runs. Then the box is
-- stopped as well, so that the mint fails.
local box = require "box"
local cli = require "cli"
local incus = require "incus"
local mint = require "mint"
local task = require "task"

local START_MS, EVERY_MS = 60000, 50
local SLACK_MS = 1000   -- beyond the heartbeat, before a silence counts
local HOLD_MS = 2500    -- a hold is so much longer than a silence may be
local GIVE_UP_MS = 20000 -- after the box was stopped

-- Stops cloud-init's own process as soon as there is one; `cloud-init status`, which the CLI may run, is let be.
local STOP = [[
i=0
while [ $i -lt 200 ]; do
    for p in /proc/[0-9]*; do
        read -r name <$p/comm || continue
        [ "$name" = cloud-init ] || continue
        case $(tr '\0' ' ' <$p/cmdline) in *' status'*) continue ;; esac
        kill -STOP "${p#/proc/}" && exit 0
    done 2>/dev/null
    sleep 0.05
    i=$((i + 1))
done
exit 1
]]

local function running(project, name)
    local state = incus.state(project, name)
    return state and state.status == "Running"
end

-- Holds the mint of a box, then stops it. Returns true, or nil, message.
local function hold_and_stop(t, name, ms)
    local project = t.contract.project
    if not task.poll(START_MS, EVERY_MS, function()
        return running(project, name)
    end) then
        return nil, "the box did not come to run"
    end
    local place = box.new(name)
    local result, why = place:exec { "sh", "-c", STOP }
    if not result then
        return nil, why
    elseif result.state ~= "exit" or result.value ~= 0 then
        return nil, "cloud-init was not seen running in it"
    end
    task.sleep(ms)
    local done
    done, why = incus.stop(project, name)
    return done and true, why
end

local function judge(t, result, name, hold)
    local limit = t.contract.cli.heartbeat + SLACK_MS
    if result.ms < hold then
        return t:suspect("the CLI did not wait for the box, so its mint could not be made slow",
            { seen = cli.seen(result), by_hand = result.by_hand })
    end
    t:expect(result.quiet <= limit, "a slow mint is heard of", {
        clause = ("something is said at least every %d ms"):format(t.contract.cli.heartbeat),
        seen = ("%d ms without a word, in %d ms"):format(result.quiet, result.ms),
        by_hand = result.by_hand,
    })
    cli.refused(t, "a mint that fails shows what it heard", result, "mint_failed", { name = name })
end

return {
    id = "b.new.progress",
    title = "a slow mint is heard of, a failed one shows why",
    needs = { "box.cli", "box.exec", "box.mint" },
    run = function(t)
        if not cli.open(t) then
            return
        end
        local name, data = mint.name("x-slow"), t.contract.cli
        local hold = data.heartbeat + SLACK_MS + HOLD_MS
        local minting = task.spawn(cli.run, t, { "new", "--name", name, "--template", data.template, "--cpu", "1" },
            START_MS + hold + GIVE_UP_MS)
        local held, why = hold_and_stop(t, name, hold)
        local result = minting()
        if not held then
            t:suspect("the mint could not be made slow and then fail: " .. tostring(why),
                { seen = result and cli.seen(result) })
        elseif result then
            judge(t, result, name, hold)
        end
        cli.delete(t, name)
    end,
}
