-- The host to a box: an open port, held by our own program, a closed one, and ICMP. Nothing arrives.
local host = require "host"

local CLAUSE = "the host cannot open a connection into a box"

return {
    id = "c.inbound",
    title = "the host cannot reach into a box",
    audit = "A7",
    needs = { "box.exec", "host.connect" },
    boxes = 1,
    run = function(t, box)
        local data = t.contract
        local me, why = box:identity()
        if not me then
            return t:error(box.label .. " could not be asked who it is: " .. why)
        elseif not me.address then
            return t:suspect(box.label .. " has no address on the boxes' network", { clause = CLAUSE })
        end
        local addresses
        addresses, why = host.addresses()
        if not addresses then
            return t:error("the host's addresses: " .. why)
        end
        local mine = {}
        for i, entry in ipairs(addresses) do
            mine[i] = entry.address
        end
        local function spec(proto, port)
            return { proto = proto, to = me.address, port = port, ms = data.budgets.attempt }
        end
        local answers_ping = me.info.icmp_echo_ignore_all == "0"
        t:isolated {
            source = host,
            sender = { addresses = mine },
            holder = { box = box, address = me.address, info = me.info, port = data.box.inbound_port },
            clause = CLAUSE,
            targets = {
                { spec = spec("tcp", data.box.inbound_port), listener = true, on_link = true, up = true },
                { spec = spec("udp", data.box.inbound_port), listener = true, on_link = true, up = true },
                { spec = spec("icmp"), listener = answers_ping, on_link = true, up = true },
                { spec = spec("tcp", data.box.closed_port), unjudged = true, on_link = true, up = true },
            },
        }
    end,
}
