--- Two boxes of this run, measured from both sides: who they are, the one whose port our program holds, and raw
-- frames from one, looked for on the other's link.
local box = require "box"
local dns = require "dns"
local frame = require "frame"
local frames = require "frames"
local inet = require "inet"
local task = require "task"

local siblings = {}

--- Who two boxes are. What cannot be known is recorded.
-- @param t @param a @param b boxes @param clause what the contract says
-- @return their identities; nil when there is nothing to measure
function siblings.ground(t, a, b, clause)
    local found = task.map({ a, b }, function(one)
        local me, why = one:identity()
        return me or { why = why }
    end)
    local why = found[1].why or found[2].why
    if why then
        return t:error("a box could not be asked who it is: " .. tostring(why))
    elseif not found[1].address or not found[2].address then
        return t:suspect("a box has no address on the boxes' network", { clause = clause })
    end
    return found[1], found[2]
end

--- Measures from one box to the other, and back, side by side.
-- @param t @param a @param b boxes @param clause what the contract says
-- @param one_way function(from, to, me, sibling): boxes, and their identities
function siblings.both_ways(t, a, b, clause, one_way)
    local one, two = siblings.ground(t, a, b, clause)
    if not one then
        return
    end
    task.all {
        function()
            one_way(a, b, one, two)
        end,
        function()
            one_way(b, a, two, one)
        end,
    }
end

--- The box whose port our program holds, as isolated.measure takes it.
-- @param place the box @param identity its own @param port the contract's
function siblings.holder(place, identity, port)
    return {
        box = place,
        address = identity.address,
        addresses = identity.addresses,
        mac = identity.mac,
        machine_id = identity.machine_id,
        info = identity.info,
        port = port,
    }
end

--- A box's link-local IPv6 address: its own, or the one that its MAC makes.
-- @param identity as of Box:identity
function siblings.link_local(identity)
    for _, address in ipairs(identity.addresses) do
        if inet.within(address, "fe80::/10") then
            return (address:match("^[^%%]+"))
        end
    end
    return frame.link_local(identity.mac)
end

-- The targets of isolated.measure that frames are.
local function targets_of(t, to, me, mark, list)
    local out = {}
    for i, one in ipairs(list) do
        out[i] = {
            spec = {
                proto = "frame",
                link = me.link,
                ms = t.contract.budgets.frame,
                send = dns.hex(one.bytes(frames.MAGIC .. dns.unhex(mark) .. string.char(i))),
                to = one.to,
                port = one.port,
            },
            what = ("%s: %s"):format(to.label, one.what),
            by_hand = one.by_hand and box.bounded(one.by_hand),
            mark = i,
            any = one.any,
            listener = true, -- on the link itself
            on_link = true,
            up = true,
        }
    end
    return out
end

--- Measures that none of some frames reaches a sibling's link.
-- @param t
-- @param from, to boxes @param me, sibling their identities
-- @param options
--   port: the one our program holds meanwhile in the sibling
--   clause: what the contract says
--   frames: array of { what (text), bytes (function(mark): the frame; the mark is to be in it), to, port (whom it is
--     for; may be left out), by_hand (words that ask the same from a shell in the box), any (whatever else comes
--     from the box's MAC is this one's) }; 255 at most
function siblings.frames(t, from, to, me, sibling, options)
    if not frame.mac(me.mac) or not frame.mac(sibling.mac) then
        return t:suspect("a box's link has no MAC: no frame can be sent to it", { clause = options.clause })
    end
    local mark = engine.random():sub(1, 16)
    local holder = siblings.holder(to, sibling, options.port)
    holder.link, holder.mark = sibling.link, mark
    t:isolated {
        source = from,
        sender = { addresses = me.addresses, mac = me.mac, sibling = true },
        identity = me,
        holder = holder,
        clause = options.clause,
        targets = targets_of(t, to, me, mark, options.frames),
    }
end

return siblings
