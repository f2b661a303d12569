-- Another box: TCP, UDP and ICMP, in both directions. The sibling's port is held by our own program.
local siblings = require "siblings"

local CLAUSE = "a box cannot reach another box"

return {
    id = "c.sibling",
    title = "a box cannot reach its sibling",
    audit = "A3",
    needs = { "box.exec", "witness" },
    boxes = 2,
    run = function(t, a, b)
        local data = t.contract
        siblings.both_ways(t, a, b, CLAUSE, function(from, to, me, sibling)
            local function spec(proto, port)
                return { proto = proto, to = sibling.address, port = port, ms = data.budgets.attempt }
            end
            local answers_ping = sibling.info.icmp_echo_ignore_all == "0"
            t:isolated {
                source = from,
                sender = { addresses = me.addresses, mac = me.mac, sibling = true },
                identity = me,
                holder = siblings.holder(to, sibling, data.box.port),
                clause = CLAUSE,
                targets = {
                    { spec = spec("tcp", data.box.port), listener = true, on_link = true, up = true },
                    { spec = spec("udp", data.box.port), listener = true, on_link = true, up = true },
                    { spec = spec("icmp"), listener = answers_ping, on_link = true, up = true },
                    { spec = spec("tcp", data.box.closed_port), unjudged = true, on_link = true, up = true },
                },
            }
        end)
    end,
}
