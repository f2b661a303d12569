-- Another box: TCP, UDP and ICMP, in both directions. The sibling's port is held by our own program.
local task = require "task"

local CLAUSE = "a box cannot reach another box"

-- From a to b. `from` and `to` are their identities.
local function one_way(t, a, b, from, to)
    local data = t.contract
    local function spec(proto, port)
        return { proto = proto, to = to.address, port = port, ms = data.budgets.attempt }
    end
    local answers_ping = to.info.icmp_echo_ignore_all == "0"
    t:isolated {
        source = a,
        sender = { addresses = from.addresses, mac = from.mac, sibling = true },
        identity = from,
        holder = {
            box = b,
            address = to.address,
            addresses = to.addresses,
            mac = to.mac,
            machine_id = to.machine_id,
            info = to.info,
            port = data.box.port,
        },
        clause = CLAUSE,
        targets = {
            { spec = spec("tcp", data.box.port), listener = true, on_link = true, up = true },
            { spec = spec("udp", data.box.port), listener = true, on_link = true, up = true },
            { spec = spec("icmp"), listener = answers_ping, on_link = true, up = true },
            { spec = spec("tcp", data.box.closed_port), unjudged = true, on_link = true, up = true },
        },
    }
end

return {
    id = "c.sibling",
    title = "a box cannot reach its sibling",
    audit = "A3",
    needs = { "box.exec", "witness" },
    boxes = 2,
    run = function(t, a, b)
        local one, two
        local why_one, why_two
        task.all {
            function()
                one, why_one = a:identity()
            end,
            function()
                two, why_two = b:identity()
            end,
        }
        if not one or not two then
            return t:error("a box could not be asked who it is: " .. tostring(why_one or why_two))
        elseif not one.address or not two.address then
            return t:suspect("a box has no address on the boxes' network", { clause = CLAUSE })
        end
        task.all {
            function()
                one_way(t, a, b, one, two)
            end,
            function()
                one_way(t, b, a, two, one)
            end,
        }
    end,
}
