-- Every forbidden range: private networks, link-local with the metadata address, CGNAT. A range is judged
-- where the host's witness saw what became of a packet, or where somebody is known to answer, seen from the host
-- just before.
local contract = require "contract"
local host = require "host"
local isolated = require "isolated"
local targets = require "targets"

local CLAUSE = "a box reaches no private, link-local or CGNAT address"

-- The ranges in which nothing proves anything: no witness, and nobody who answers the host on a port (that ping alone
-- is dropped there says nothing of the rest). Those of which nothing is asked are not judged, either.
local function blind_ranges(t, list)
    local asked, seen = {}, {}
    for _, target in ipairs(list) do
        asked[target.range] = true
        seen[target.range] = seen[target.range] or target.witness or target.listener and target.spec.port
    end
    for _, range in ipairs(contract.sorted_keys(t.contract.forbidden)) do
        if not asked[range] then
            t:suspect(("nothing is asked in %s"):format(range), {
                clause = CLAUSE,
                reason = "its addresses are excluded, the host's own, or none; a range that is no part of the contract "
                    .. "is taken out with `[RANGE] = false`",
            })
        elseif not seen[range] then
            t:suspect(("nobody is known to answer in %s: silence proves nothing there"):format(range), {
                clause = CLAUSE,
                reason = "name a listener there in the site's `listeners`; it must answer the host",
            })
        end
    end
end

return {
    id = "c.private",
    title = "a box cannot reach private, link-local and CGNAT ranges",
    audit = "A2",
    needs = { "box.exec", "host.connect", "witness" },
    boxes = 1,
    run = function(t, box)
        local me, addresses = isolated.ground(t, box, CLAUSE)
        if not me then
            return
        end
        local list = targets.forbidden(t.contract, addresses)
        isolated.verify(host, list, t.contract.budgets.verify)
        t:isolated { source = box, identity = me, targets = list, clause = CLAUSE }
        blind_ranges(t, list)
    end,
}
