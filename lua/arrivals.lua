--- What a listener in a box says of who came (docs/guest.md, listen): to its sockets, and, before any
-- firewall of the box's own, to its link. Pure functions.
--
-- It is the box's word. So it only ever adds that something arrived; that nothing did is no proof by itself.
local arrivals = {}

local KINDS = { "tcp", "udp", "icmp", "arp", "nd", "other" }

-- Why the link's silence is no silence: nil where everything that came to it was seen.
local function blindness(fact)
    if fact["frames-errno"] then
        return "it could not watch its link: " .. fact["frames-errno"]
    elseif not fact.frames then
        return "it did not say what reached its link"
    elseif fact.watched == "0" then
        return "saw no frame at all, not even the answers to its own"
    elseif fact["frames-more"] or fact["frames-lost"] then
        return "more reached its link than it could count"
    end
    return nil
end

--- Reads a listener's line.
-- @param fact its keys and values, texts
-- @return { tcp, udp, icmp, arp, nd, other, marked, blind }: each kind a set of the addresses and MACs it came
--   from; `marked`, with a mark, by number the MAC that a marked frame came from; `blind` says why others may have
--   come besides, nil where it knows of all
function arrivals.read(fact)
    local out = { blind = blindness(fact), marked = {} }
    for _, kind in ipairs(KINDS) do
        out[kind] = {}
    end
    for entry in (fact.seen or ""):gmatch("[^;]+") do
        local proto, address = entry:match("^(%l+):%[?([^%]]-)%]?:%d+")
        if out[proto] then
            out[proto][address] = true
        end
    end
    for entry in (fact["frames-seen"] or ""):gmatch("[^;]+") do
        local kind, address, mac = entry:match("^(%l+):([^@]+)@([%x:-]+)")
        if out[kind] then
            out[kind][address] = true
            out[kind][mac] = true
        end
    end
    for number, mac in (fact.marked or ""):gmatch("(%d+)@([%x:]+)") do
        local n = tonumber(number)
        out.marked[n] = out.marked[n] or mac -- what came later may be an answer that quotes it
    end
    return out
end

--- Whether a frame arrived.
-- @param came as of arrivals.read @param target { mark, any }: its number; whether any other frame from its box
--   counts for it as well
-- @param from as of arrivals.of
-- @return what came, in words, or nil
function arrivals.of_frame(came, target, from)
    if came.marked[target.mark] then
        return "the frame itself, from " .. came.marked[target.mark]
    end
    for _, kind in ipairs(target.any and from.mac and KINDS or {}) do
        if came[kind][from.mac] then
            return kind
        end
    end
    return nil
end

--- Whether something of an attempt arrived.
-- @param came as of arrivals.read
-- @param proto the attempt's: tcp, udp or icmp
-- @param from { addresses (array of texts), mac (nil: none of its own), sibling }: whose attempt it was.
--   That a sibling asks for the address arrived as well: who passes that passes frames. The host asks for it
--   whenever it has anything to send, so there it says nothing
-- @return the kind of frame (tcp, udp, icmp, arp, nd), or nil
function arrivals.of(came, proto, from)
    for _, kind in ipairs(from.sibling and { proto, "arp", "nd" } or { proto }) do
        local set = came[kind] or {}
        if from.mac and set[from.mac] then
            return kind
        end
        for _, address in ipairs(from.addresses) do
            if set[address] then
                return kind
            end
        end
    end
    return nil
end

return arrivals
