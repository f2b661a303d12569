-- The host to a box: an open port, held by our own program, a closed one, and ICMP. Nothing arrives.
local host = require "host"
local isolated = require "isolated"

local CLAUSE = "the host cannot open a connection into a box"

return {
    id = "c.inbound",
    title = "the host cannot reach into a box",
    audit = "A7",
    needs = { "box.exec", "host.connect", "witness" },
    boxes = 1,
    run = function(t, box)
        local data = t.contract
        local me, addresses = isolated.ground(t, box, CLAUSE)
        if not me then
            return
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
