--- The witness: what the host saw of a flow, on the ports of the boxes concerned, on its other links, and behind
-- its input hook (docs/witness.md). It is opened before an attempt and closed when all has settled. That
-- something arrived is proof; that it did not is one only where the source's own frame was seen to leave, and
-- every eye saw everything.
local contract = require "contract"
local frames = require "frames"
local host = require "host"
local incus = require "incus"
local inet = require "inet"
local task = require "task"

local witness = {}

--- The control that says whether there was a witness of a measurement; `seen` says why not.
witness.CONTROL = "a witness on the host watched the flows"

-- What is under way when an attempt has ended is seen within this time, in milliseconds: the last repetition, and
-- what is handed on in a queue.
local SETTLE_MS = 200

-- A host that lets a packet through asks for its neighbour in the same moment. Seconds.
local ASKED_WITHIN = 0.1

-- A "host unreachable" after this many seconds may be the end of an ARP request: those take three.
local LATE = 0.5

-- Values that an eye has in the answer of witness.close.
local EYE_VALUES = 7

-- The host-side links of an instance's NICs, as { device, link }; or nil, message.
local function ports_of(project, name)
    local instance, why = incus.instance(project, name)
    if not instance then
        return nil, ("%s: %s"):format(name, why)
    end
    local out = {}
    for _, device in ipairs(contract.sorted_keys(instance.expanded_devices or {})) do
        local link = instance.config[("volatile.%s.host_name"):format(device)]
        if instance.expanded_devices[device].type == "nic" and link then
            out[#out + 1] = { device = device, link = link }
        end
    end
    if #out == 0 then
        return nil, name .. " has no port on this host"
    end
    return out
end

-- The arguments of witness.open; nil, message when a box has no port.
local function arguments(what)
    local project = contract.load().project
    local out = { project }
    local function add(kind, name, value)
        table.move({ kind, name, value }, 1, 3, #out + 1, out)
    end
    for _, name in ipairs(what.boxes or {}) do
        local ports, why = ports_of(project, name)
        if not ports then
            return nil, why
        end
        for _, port in ipairs(ports) do
            add("port", name, ("%s=%s"):format(port.device, port.link))
        end
    end
    for _, kind in ipairs { "links", "input" } do
        if what[kind] then
            add(kind, "", "")
        end
    end
    for _, address in ipairs(what.addresses or {}) do
        add("address", inet.text(inet.parse(address)), "")
    end
    return out
end

local function open_once(what)
    local list, why = arguments(what)
    if not list then
        return nil, why
    end
    -- A grant that was not given is no error of the probe's: it is judged by the boxes' word then.
    local ok, id, message, code = pcall(engine.call, "witness.open", table.unpack(list))
    if not ok then
        return nil, tostring(id)
    end
    return id, message, code
end

--- Opens a witness.
-- @param what { boxes (array of names: their ports are watched), links (true: every other way out of this host,
--   too), input (true: what passed its input hook), addresses (array of texts: only frames from, to or about
--   these; without any everything on the ports, and nothing else) }
-- @return a witness; or nil, message
function witness.open(what)
    local id, why, code = open_once(what)
    if not id and code == "ESTALE" then -- a NIC was plugged anew meanwhile: its link has another name now
        id, why = open_once(what)
    end
    return id, why
end

--- Closes a witness.
-- @param id as of witness.open
-- @return array of eyes { role (port, link, input), box (of a port), link (its name; tcp4, udp6 and the like for
--   input), kept, lost (numbers of frames), error (nil, or errno's name), frames (as of frames.decode) }; or
--   nil, message
function witness.close(id)
    local values = table.pack(engine.call("witness.close", id))
    if not values[1] and values.n > 0 then
        return nil, tostring(values[2])
    end
    local eyes = {}
    for i = 1, values.n, EYE_VALUES do
        local role, box, link, kept, lost, err, records = table.unpack(values, i, i + EYE_VALUES - 1)
        eyes[#eyes + 1] = {
            role = role,
            box = box ~= "" and box or nil,
            link = link,
            kept = tonumber(kept),
            lost = tonumber(lost),
            error = err ~= "" and err or nil,
            frames = frames.read(records),
        }
    end
    return eyes
end

--- Runs something with a witness open around it, and waits until it has settled.
-- @param what as of witness.open @param f called in any case, with whether there is a witness
-- @return eyes as of witness.close; or nil, message where there was no witness
function witness.around(what, f)
    local id, why = witness.open(what)
    f(id ~= nil)
    if not id then
        return nil, why
    end
    task.sleep(SETTLE_MS)
    return witness.close(id)
end

-- Whether an eye is one of those meant. @param which { role, box, link }: nil is any
local function is_meant(eye, which)
    return (not which.role or eye.role == which.role) and (not which.box or eye.box == which.box)
        and (not which.link or eye.link == which.link)
end

--- The frames of some eyes that pass a test.
-- @param eyes as of witness.close
-- @param which { role, box, outgoing }: only such eyes, and frames that go that way; nil: any
-- @param test function(frame, eye); all if left out
-- @return array of frames, array of their eyes
function witness.frames(eyes, which, test)
    local out, places = {}, {}
    for _, eye in ipairs(eyes) do
        for _, frame in ipairs(is_meant(eye, which) and eye.frames or {}) do
            if (which.outgoing == nil or frame.outgoing == which.outgoing) and (not test or test(frame, eye)) then
                out[#out + 1], places[#places + 1] = frame, eye
            end
        end
    end
    return out, places
end

--- Why eyes may have missed something: nil when they saw all there was.
-- @param eyes as of witness.close @param which as of witness.frames
function witness.blindness(eyes, which)
    local found = false
    for _, eye in ipairs(eyes) do
        if is_meant(eye, which) then
            found = true
            if eye.error then
                return ("the witness was blind on %s for a time (%s)"):format(eye.link, eye.error)
            elseif eye.lost > 0 then
                return ("the witness lost %d frames on %s"):format(eye.lost, eye.link)
            end
        end
    end
    return not found and "the witness did not watch there" or nil
end

---------------------------------------------------------------------------------------------------
-- A measurement's flows (isolated.measure).

-- Where a target's flow ends: "port" (the holder's box), "input" (this host), "links" (beyond this host); nil
-- where no eye of ours would see it arrive.
local function goal(options, addresses, target)
    local holder = options.holder
    if target.mark then -- a frame of ours, which the box's own program looks for
        return nil
    elseif holder and inet.same(target.spec.to, holder.address) then
        return "port"
    elseif options.source.guards then
        return nil
    elseif inet.held(addresses, target.spec.to) then
        return "input"
    elseif target.on_link or inet.within(target.spec.to, contract.load().subnet) then
        return nil
    end
    return "links"
end

local function bits_of(route)
    return tonumber(route.to:match("/(%d+)$")) or 32
end

--- Where a packet for an address may be handed on: by the longest matching route of each table, since which table is
-- asked depends on more than the address.
-- @param routes as of host.route_list @param address text
-- @return { gateways (array of texts), doubt (text: a packet might be let through, and no link would show it) }
function witness.next_hops(routes, address)
    local best, hops = {}, { gateways = {} }
    for _, route in ipairs(routes) do
        local longest = best[route.table]
        if inet.within(address, route.to) and (not longest or bits_of(route) >= bits_of(longest[1])) then
            local same = longest and bits_of(route) == bits_of(longest[1])
            best[route.table] = same and longest or {}
            table.insert(best[route.table], route)
        end
    end
    for _, name in ipairs(contract.sorted_keys(best)) do
        for _, route in ipairs(best[name]) do
            table.move(route.gateways, 1, #route.gateways, #hops.gateways + 1, hops.gateways)
            hops.doubt = hops.doubt or route.down and ("the route to %s leads over a link that is down"):format(address)
        end
    end
    if inet.family(address) == 6 then
        hops.doubt = "the next hops of IPv6 routes are not known"
    end
    return hops
end

--- What a witness of a measurement has to watch.
-- @param options as of isolated.measure @param addresses the host's, as of host.addresses
-- @param routes the host's, as of host.route_list
-- @param arp_retry seconds from one ARP request of the host's to the next, at most; nil where that is not known
-- @return as of witness.open, and of each target `goals` and `hops` (as of witness.next_hops); nil, message where
--   nothing of it can be watched; nil alone where nothing of it is a witness's to tell
function witness.plan(options, addresses, routes, arp_retry)
    local what = { boxes = {}, addresses = {}, goals = {}, hops = {} }
    local known = {}
    local function add(address)
        local bytes = inet.parse(address)
        if bytes and not known[bytes] then
            known[bytes] = true
            table.insert(what.addresses, address)
        end
    end
    if not options.source.guards then
        what.boxes[1] = options.source.name
    end
    for i, target in ipairs(options.targets) do
        local found = goal(options, addresses, target)
        what.goals[i] = found or false
        what.hops[i] = found == "links" and witness.next_hops(routes, target.spec.to) or { gateways = {} }
        what.hops[i].arp_retry = arp_retry
        if found == "links" or found == "input" then
            what[found] = true
        end
        if found then
            add(target.spec.to)
        end
        for _, gateway in ipairs(what.hops[i].gateways) do
            add(gateway)
        end
    end
    if options.holder then
        table.insert(what.boxes, options.holder.box.name)
    end
    if #what.addresses == 0 or #what.boxes == 0 then
        return nil, not (options.holder and options.holder.mark) and "no port of theirs is known here" or nil
    end
    return what
end

-- The targets, by number, whose end a witness knows soon: somebody sees them arrive, no route is in doubt, and a host
-- that is asking for a neighbour already repeats that within the time; nil where that is not known.
local function watched(what)
    local out = {}
    for i, found in ipairs(what.goals) do
        local hops = what.hops[i]
        if found and not hops.doubt then
            if not hops.arp_retry or hops.arp_retry * 1000 >= contract.load().budgets.watched then
                return nil
            end
            out[i] = true
        end
    end
    return out
end

--- Measures with a witness around it.
-- @param options as of isolated.measure
-- @param f the measurement; called in any case, with the set of the targets' numbers whose end the witness knows soon
--   (nil where there is none)
-- @return what witness.tell takes
function witness.measured(options, f)
    local addresses, why = host.addresses()
    local routes, what
    if addresses then
        routes, why = host.route_list()
    end
    if routes then
        local arp_retry = tonumber(host.facts().arp_retry_ms)
        what, why = witness.plan(options, addresses, routes, arp_retry and arp_retry / 1000)
    end
    if not what then
        f()
        return { why = why }
    end
    local eyes
    eyes, why = witness.around(what, function(open)
        f(open and watched(what) or nil)
    end)
    return { eyes = eyes, goals = what.goals, hops = what.hops, why = why }
end

-- Whether a frame is one of a target's flow, on its way there. The marked frames of other probes, which may be
-- sent to the same address meanwhile, are none.
local function is_forward(frame, spec)
    if frame.payload and frame.payload:find(frames.MAGIC, 1, true) then
        return false
    end
    return frame.proto == spec.proto and inet.same(frame.dst, spec.to)
        and (spec.proto == "icmp" and frame.kind == "echo" or spec.port ~= nil and frame.dport == spec.port)
end

local function is_ask(frame, spec)
    return frame.kind == "ask" and inet.same(frame.target, spec.to)
end

-- A packet of a target's flow on its way back: an answer, or an ICMP error about it.
local function is_back(frame, spec)
    if frame.inner then
        return is_forward(frame.inner, spec)
    end
    return frame.proto == spec.proto and inet.same(frame.src, spec.to)
        and (frame.kind == "reply" or spec.port ~= nil and frame.sport == spec.port)
end

-- Whether a frame is of one of the measurement's flows to an address.
local function is_ours(frame, options, address)
    for _, target in ipairs(options.targets) do
        if inet.same(target.spec.to, address) and is_forward(frame, target.spec) then
            return true
        end
    end
    return false
end

-- By what the source is recognised, beyond what it says of itself: what was seen to leave its port for that address.
local function sender_of(eyes, options, spec)
    local from = { addresses = {}, macs = {}, signatures = {} }
    local said = options.sender or options.identity or {}
    for _, text in ipairs(said.addresses or {}) do
        from.addresses[inet.parse(text) or ""] = true
    end
    from.macs[said.mac or ""] = true
    local which = { role = "port", box = options.source.name, outgoing = false }
    for _, frame in ipairs(options.source.guards and {} or witness.frames(eyes, which)) do
        local towards = is_ours(frame, options, spec.to) or is_ask(frame, spec)
        from.addresses[towards and inet.parse(frame.src) or ""] = true
        from.macs[towards and frame.smac or ""] = true
        from.signatures[towards and frames.signature(frame) or ""] = true
    end
    from.addresses[""], from.macs[""], from.signatures[""] = nil, nil, nil
    return from
end

local function is_from(frame, from)
    return from.addresses[inet.parse(frame.src)] or from.macs[frame.smac] or from.signatures[frames.signature(frame)]
end

-- What left the source for a target: its frames; where none left, that it asked who has an address on its own
-- link and got no answer. (With an answer, or with frames of another of the measurement's flows to the same address,
-- its own would have followed, had they been let out. What other probes send there says nothing of this flow.)
local function departures_of(eyes, options, target)
    local which = { role = "port", box = options.source.name, outgoing = false }
    local left = witness.frames(eyes, which, function(frame)
        return is_forward(frame, target.spec)
    end)
    if #left > 0 or not target.on_link then
        return left
    end
    local back = { role = "port", box = options.source.name, outgoing = true }
    local answers = witness.frames(eyes, back, function(frame)
        return frame.kind == "answer" and inet.same(frame.proto == "arp" and frame.src or frame.target, target.spec.to)
    end)
    local others = witness.frames(eyes, which, function(frame)
        return is_ours(frame, options, target.spec.to)
    end)
    return (#answers > 0 or #others > 0) and {} or witness.frames(eyes, which, function(frame)
        return is_ask(frame, target.spec)
    end)
end

-- The frames of a flow that were handed to a box, and their eyes.
local function handed_to_box(eyes, options, spec, from)
    return witness.frames(eyes, { role = "port", box = options.holder.box.name, outgoing = true }, function(frame)
        -- The host asks for an address whenever it has anything to send: there it says nothing.
        local asks = not options.source.guards and is_ask(frame, spec)
        return (asks or is_forward(frame, spec)) and is_from(frame, from)
    end)
end

-- Whether somebody asked for a box's address at its port and has no answer yet: a packet may wait for that.
local function is_asked(eyes, box, spec)
    local asks = witness.frames(eyes, { role = "port", box = box, outgoing = true }, function(frame)
        return is_ask(frame, spec)
    end)
    local answers = witness.frames(eyes, { role = "port", box = box, outgoing = false }, function(frame)
        return frame.kind == "answer" and inet.same(frame.proto == "arp" and frame.src or frame.target, spec.to)
    end)
    return #asks > 0 and #answers == 0
end

local function passed_input(eyes, spec, from)
    return witness.frames(eyes, { role = "input" }, function(frame)
        return is_forward(frame, spec) and is_from(frame, from)
    end)
end

-- When the source's first packet to an address left, whatever its protocol; nil when none did.
local function first_departure(eyes, options, spec)
    local first
    for _, frame in ipairs(witness.frames(eyes, { role = "port", box = options.source.name, outgoing = false })) do
        if inet.same(frame.dst, spec.to) and frame.kind ~= "ask" then
            first = math.min(first or frame.time, frame.time)
        end
    end
    return first
end

-- Whether a frame asks for an address, or for a gateway on the way there.
local function is_ask_for(frame, spec, hops)
    if is_ask(frame, spec) then
        return true
    end
    for _, gateway in ipairs(hops.gateways) do
        if frame.kind == "ask" and inet.same(frame.target, gateway) then
            return true
        end
    end
    return false
end

-- The host's own question for a routed target, or for the gateway there: asked of all in the moment when the
-- source's first packet came, it says that the packet was let through. One that it asked before, or later, may be
-- for something else.
-- @return array of frames, array of eyes; and a text where such questions cannot be told
local function asked_for(eyes, options, spec, hops)
    local asks, places = witness.frames(eyes, { role = "link", outgoing = true }, function(frame)
        return is_ask_for(frame, spec, hops) and (frame.broadcast or frame.proto == "nd")
    end)
    local start = first_departure(eyes, options, spec)
    if #asks == 0 or not start then
        return {}, {}
    end
    local first = asks[1].time
    for _, frame in ipairs(asks) do
        first = math.min(first, frame.time)
    end
    if first < start or first > start + ASKED_WITHIN then
        return {}, {}, ("the host asks who has %s for reasons of its own"):format(asks[1].target)
    end
    return asks, places
end

-- A doubt, where this host said "host unreachable" to the source, and said it late only: a reject is prompt, but so
-- ends an ARP request that was under way for somebody else already. One that ends so late that its last repetition
-- fell behind the source's first packet would have been seen: no link showed any.
local function said_late(eyes, options, spec, hops)
    local start, first = first_departure(eyes, options, spec), nil
    local which = { role = "port", box = options.source.name, outgoing = true }
    for _, frame in ipairs(witness.frames(eyes, which)) do
        local unreachable = frame.icmp == (frame.family == 6 and "1/3" or "3/1")
        if unreachable and frame.inner and inet.same(frame.inner.dst, spec.to) then
            first = math.min(first or frame.time, frame.time)
        end
    end
    local late = start and first and first > start + LATE
    local seen = late and hops.arp_retry and first > start + hops.arp_retry + LATE
    return late and not seen and "it was said late that nobody answers there" or nil
end

-- What left this host for a routed target.
local function left_host(eyes, options, spec, from, hops)
    local out, places = witness.frames(eyes, { role = "link", outgoing = true }, function(frame)
        return is_forward(frame, spec) and is_from(frame, from)
    end)
    if #out > 0 then
        return out, places
    end
    local others = witness.frames(eyes, { role = "link", outgoing = true }, function(frame)
        return frame.kind ~= "ask" and inet.same(frame.dst, spec.to) and is_from(frame, from)
    end)
    if #others > 0 then -- the neighbour is known: what is let through is seen itself
        return {}, {}
    end
    local asks, at, doubt = asked_for(eyes, options, spec, hops)
    return asks, at, doubt or hops.doubt or said_late(eyes, options, spec, hops)
end

local ARRIVED = {
    port = "handed to the target's box",
    input = "passed this host's input hook",
    links = "left this host",
}

local function frame_text(frame)
    if frame.kind == "ask" then
        return ("%s request for %s"):format(frame.proto == "arp" and "ARP" or "ND", frame.target)
    elseif frame.proto == "tcp" then
        return frame.rst and "a reset" or frame.syn and frame.ack and "a SYN-ACK" or frame.syn and "a SYN" or "TCP"
    elseif frame.inner then
        return ("ICMP %s"):format(frame.icmp)
    end
    return frame.proto == "icmp" and "ICMP " .. tostring(frame.kind) or tostring(frame.proto):upper()
end

-- Whether something that was sent back had come from the target's side before.
local function came_in(eyes, options, frame, spec)
    local function same(other)
        return is_back(other, spec) and inet.same(other.src, frame.src) and frame_text(other) == frame_text(frame)
    end
    if #witness.frames(eyes, { role = "link", outgoing = false }, same) > 0 then
        return true
    end
    local box = options.holder and options.holder.box.name
    return box ~= nil and #witness.frames(eyes, { role = "port", box = box, outgoing = false }, same) > 0
end

-- What came back to the source, in words, each once.
local function back_text(eyes, options, spec, where)
    if options.source.guards then
        return nil
    end
    local parts, known = {}, {}
    local back = witness.frames(eyes, { role = "port", box = options.source.name, outgoing = true }, function(frame)
        return is_back(frame, spec)
    end)
    for _, frame in ipairs(back) do
        local maker = where ~= "input" and came_in(eyes, options, frame, spec) and "from beyond" or "made on this host"
        local text = ("%s in the name of %s, %s"):format(frame_text(frame), frame.src, maker)
        if not known[text] then
            known[text] = true
            parts[#parts + 1] = text
        end
    end
    return #parts > 0 and table.concat(parts, "; ") or "nothing"
end

local function story(eyes, options, spec, word, found)
    local parts = {}
    if not options.source.guards then
        local what = word.left and ("%s (%d)"):format(frame_text(word.left[1]), #word.left) or "nothing"
        parts[1] = ("%s left %s"):format(what, options.source.label)
    end
    parts[#parts + 1] = word.arrived or found and ("nothing of it %s"):format(ARRIVED[found]) or word.why
    local back = back_text(eyes, options, spec, found)
    parts[#parts + 1] = back and "back came " .. back
    return table.concat(parts, ", ")
end

-- The eyes that must have seen everything, that "it did not arrive" may be said.
local function needed(options, where, spec)
    local out = {}
    if not options.source.guards then
        out[1] = { role = "port", box = options.source.name }
    end
    if where == "port" then
        out[#out + 1] = { role = "port", box = options.holder.box.name }
    elseif where == "input" then
        out[#out + 1] = { role = "input", link = spec.proto .. inet.family(spec.to) }
    else
        out[#out + 1] = { role = "link" }
    end
    return out
end

local function arrivals(eyes, options, where, spec, from, hops)
    if where == "port" then
        return handed_to_box(eyes, options, spec, from)
    elseif where == "input" then
        return passed_input(eyes, spec, from)
    end
    return left_host(eyes, options, spec, from, hops)
end

-- The frame that tells most: the first that is no question for an address.
local function telling(came)
    for i, frame in ipairs(came) do
        if frame.kind ~= "ask" then
            return i
        end
    end
    return 1
end

--- Whether a witness knows the end of a flow, so that nothing more of it has to be waited for: it arrived, or it left
-- its source and did not.
-- @param word as of witness.tell
-- @return boolean
function witness.is_told(word)
    return word.column == "arrived" or word.column == "absent" and not (word.unsent or word.pending)
end

--- What the witness says of one target.
-- @param seen as of witness.measured
-- @param options as of isolated.measure
-- @param i the target's number
-- @return { column: "arrived", "absent" or nil; arrived: text, how; unsent: nothing of it left the source; pending: a
--   packet may still wait for the target's address; blind: text, why it may have missed something; why: text, why there
--   was no witness of it; story: text, what it saw }
function witness.tell(seen, options, i)
    local eyes, where = seen.eyes, seen.goals and seen.goals[i]
    local target = options.targets[i]
    if not eyes then
        return { why = seen.why }
    elseif not where then
        return { why = "nobody would see it arrive: it is on the source's own link" }
    end
    local left = options.source.guards and {} or departures_of(eyes, options, target)
    local from = sender_of(eyes, options, target.spec)
    local came, places, doubt = arrivals(eyes, options, where, target.spec, from, seen.hops[i])
    local word = { left = left[1] and left, why = doubt }
    if #came > 0 then
        local best = telling(came)
        word.column = "arrived"
        word.arrived = ("%s: %s on %s"):format(ARRIVED[where], frame_text(came[best]), places[best].link)
    end
    for _, which in ipairs(needed(options, where, target.spec)) do
        word.blind = word.blind or witness.blindness(eyes, which)
    end
    local whole = not word.column and not word.blind and not doubt
    word.pending = where == "port" and is_asked(eyes, options.holder.box.name, target.spec)
    word.unsent = whole and not left[1] and not options.source.guards
    word.column = word.column or whole and "absent" or nil
    word.story = story(eyes, options, target.spec, word, not word.blind and not doubt and where)
    return word
end

return witness
