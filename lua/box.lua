--- A box, as a place that attempts start from: everything in it goes through the program pushed into it
-- (docs/guest.md), over REST, without a shell. What comes back is the box's word: bounded, checked for
-- completeness, and a run that is not complete is inconclusive, never silence.
local contract = require "contract"
local guest = require "guest"
local incus = require "incus"
local inet = require "inet"
local task = require "task"

local box = {}
local Box = {}
Box.__index = Box

local OUTPUT_CAP = 1048576
local GRACE = 2000

--- A box by its name.
-- @param name an instance of this run
-- @return an object with the methods below; `name` and `label` are fields of it
function box.new(name)
    return setmetatable({ name = name, label = name, project = contract.load().project, prefix = {} }, Box)
end

--- A place inside the box: the same program, started by other words.
-- @param label what it is called @param prefix array of texts: a command that runs the words behind it
-- @return an object with the box's methods
function Box:inside(label, prefix)
    return setmetatable({ label = label, prefix = prefix }, { __index = self })
end

-- The processes that live in a network namespace of their own, one a namespace: a container runtime's.
local NAMESPACES = [[
own=$(readlink /proc/1/ns/net)
for p in /proc/[0-9]*; do
    n=$(readlink "$p/ns/net") && [ "$n" != "$own" ] && echo "$n ${p#/proc/}"
done 2>/dev/null | sort -u -k 1,1
]]
local NAMESPACE_LIMIT = 16

local function has_default_route(info)
    for _, route in ipairs(info.routes) do
        if route.to == "default" and route.via then
            return true
        end
    end
    return false
end

-- Whether the box is still booting: what it starts by itself may be still to come.
local function booting(self)
    local result = self:exec { "systemctl", "is-system-running" }
    local word = result and result.stdout:match("^%l+") or ""
    return word == "initializing" or word == "starting"
end

-- A place in the first network namespace that has a way out; false, or nil and a message.
local function find_inner(self)
    local result, why = self:exec { "sh", "-c", NAMESPACES }
    if not result then
        return nil, why
    end
    local count = 0
    for pid in result.stdout:gmatch("net:%[%d+%] (%d+)\n") do
        local place = self:inside(self.label .. "'s inner process " .. pid, { "nsenter", "-t", pid, "-n" })
        local info
        info, why = place:info()
        count = count + 1
        if not info then
            return nil, ("%s: %s"):format(place.label, why)
        elseif has_default_route(info) then
            return place
        elseif count == NAMESPACE_LIMIT then
            break
        end
    end
    return false
end

--- What runs behind a bridge in the box: a place in the first network namespace there that has a way out. That
-- there is none is said after two looks into a box that has booted.
-- @return a place; false when there is none; or nil, message when the box could not be asked
function Box:inner()
    local place, why, looks = nil, nil, 0
    task.poll(contract.load().budgets.address, 500, function()
        looks = booting(self) and 0 or looks + 1
        place, why = find_inner(self) -- a process may end under the look: then once more
        return place or looks >= 2
    end)
    return place, why
end

--- Puts the program into the box, once for each worker.
-- @return its path in the box; or nil, message, code
function Box:push()
    if not self.path then
        local path, why, code = incus.push(self.project, self.name)
        if not path then
            return nil, why, code
        end
        self.path = path
    end
    return self.path
end

--- Takes the program out again.
-- @return true; or nil, message, code
function Box:unpush()
    local done, why, code = incus.unpush(self.project, self.name)
    if not done then
        return nil, why, code
    end
    self.path = nil
    return true
end

-- Runs the program: mode, nonce, arguments. Returns incus.exec's result, or nil, message, code.
function Box:run(mode, nonce, ms, cap, arguments)
    local path, why, code = self:push()
    if not path then
        return nil, "the program is not in the box: " .. tostring(why), code
    end
    local argv = table.move(self.prefix, 1, #self.prefix, 1, {})
    table.move({ path, mode, "nonce=" .. nonce }, 1, 3, #argv + 1, argv)
    table.move(arguments, 1, #arguments, #argv + 1, argv)
    return incus.exec(self.project, self.name, ms, cap, argv)
end

-- Why a run was lost, and what it said of that itself.
local function with_stderr(why, result)
    return result.stderr ~= "" and ("%s: %s"):format(why, result.stderr:sub(1, 200)) or why
end

--- Makes attempts, stage after stage, those of one stage side by side.
-- @param stages array of arrays of specs as of guest.spec
-- @return array of arrays like it: for tcp, udp, icmp and frame a seen attempt (see outcome), for listen,
--   await and stop the program's own fact; and the milliseconds at which each stage began. Where the run
--   was lost: inconclusive, throughout, and nil
function Box:attempt(stages)
    local arguments, count, budget = guest.arguments(stages)
    local nonce = guest.nonce()
    local margin = contract.load().budgets.exec
    local result, why = self:run("attempt", nonce, budget + margin, OUTPUT_CAP, arguments)
    local facts
    if not result then
        why = "exec failed: " .. tostring(why)
    elseif result.truncated then
        why = "output lost: over the cap"
    else
        facts, why = guest.parse(result.stdout, nonce, count)
        why = not facts and with_stderr(why, result) or nil
    end
    return guest.staged(facts, stages, why), facts and guest.starts(result.stdout, nonce)
end

--- Runs a command in the box: argv, never a shell; no terminal, no input; nothing of it is left over.
-- @param argv array of texts
-- @param options { ms, cap }: the deadline in milliseconds and bytes of each stream; both may be left out
-- @return { state, value, truncated, ms, stdout, stderr }: state is exit, signal, timeout or error
--   (docs/guest.md); or nil, message, code when it could not be run or its output was lost
function Box:exec(argv, options)
    local ms = options and options.ms or contract.load().budgets.exec
    local cap = options and options.cap or 65536
    local nonce = guest.nonce()
    local arguments = { ("ms=%d"):format(ms), ("grace=%d"):format(GRACE), ("cap=%d"):format(cap), "--" }
    table.move(argv, 1, #argv, #arguments + 1, arguments)
    local result, why, code = self:run("exec", nonce, ms + GRACE + 5000, cap + 4096, arguments)
    if not result then
        return nil, why, code
    end
    local state, stderr = guest.parse_exec(result.stderr, nonce)
    if not state then
        return nil, stderr, "ENODATA"
    end
    state.stdout, state.stderr = result.stdout, stderr
    return state
end

--- What the box says of itself: links, addresses, routes, machine-id, nameservers.
-- @return as of guest.parse_info; or nil, message, code
function Box:info()
    local nonce = guest.nonce()
    local result, why, code = self:run("info", nonce, contract.load().budgets.exec, OUTPUT_CAP, {})
    if not result then
        return nil, why, code
    elseif result.truncated then
        return nil, "output lost: over the cap", "ENODATA"
    end
    local info
    info, why = guest.parse_info(result.stdout, nonce)
    if not info then
        return nil, with_stderr(why, result), "ENODATA"
    end
    return info
end

--- Who the box is on its network. Its address is found by subnet, never by an interface's name.
-- @param subnet the contract's if left out
-- @return { address (nil when it has none), link, mac, machine_id, info, addresses: all it holds there (texts: of
--   that subnet, on whatever link, and the IPv6 ones of `link`) }; or nil, message, code when the box
--   could not be asked
function Box:identity(subnet)
    local info, why, code = self:info()
    if not info then
        return nil, why, code
    end
    local me = { machine_id = info["machine-id"], info = info, addresses = {} }
    for _, entry in ipairs(info.addresses) do
        if entry.family == 4 and inet.within(entry.address, subnet or contract.load().subnet) then
            me.addresses[#me.addresses + 1] = entry.address
            if not me.address then
                local link = info.links[entry.link]
                me.address, me.link, me.mac = entry.address, entry.link, link and link.mac
            end
        end
    end
    for _, entry in ipairs(info.addresses) do
        if entry.family == 6 and me.link and entry.link == me.link then
            me.addresses[#me.addresses + 1] = entry.address
        end
    end
    return me
end

-- Whether a box could send from every IPv6 address of a link.
local function is_settled(info, link)
    for _, entry in ipairs(info.addresses) do
        if entry.link == link and entry.tentative then
            return false
        end
    end
    return true
end

--- Waits until the box's IPv6 addresses are usable: a new one is not until nobody has objected to it.
-- @param link the box's link
-- @param ms how long at most
-- @return whether they are
function Box:settle(link, ms)
    return task.poll(ms, 250, function()
        local info = self:info()
        return info and is_settled(info, link) or nil
    end) == true
end

-- How an operator asks the same by hand: no terminal, no input, bounded in and outside the box.
local BY_HAND = {
    tcp = "bash -c '</dev/tcp/%s/%d'",
    udp = "bash -c 'exec 3<>/dev/udp/%s/%d && echo x >&3 && head -c 1 <&3'",
    icmp = "ping -n -c 1 -W 4 %s",
}

--- Words for a shell, bounded. @param words text
function box.bounded(words)
    return "timeout -k 2 6 " .. words
end

--- The words that ask one attempt's question by hand, from a shell where it would start.
-- @param spec as of guest.spec, no frame
function box.question(spec)
    return box.bounded(BY_HAND[spec.proto]:format(spec.to, spec.port))
end

--- The command that runs some words in a box like this one.
function Box:by_hand_text(words)
    local prefix = #self.prefix > 0 and table.concat(self.prefix, " ") .. " " or ""
    return ("incus exec %s -T -n --project %s -- %s%s"):format(self.name, self.project, prefix, words)
end

--- The command that asks what one attempt asked, in a box like this one. @param spec as of guest.spec
function Box:by_hand(spec)
    return self:by_hand_text(box.question(spec))
end

return box
