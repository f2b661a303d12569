-- Without a pin the boxes' resolver asks whom the host asks: a company's resolver, or a tailnet's, that knows
-- names no box is to know, at an address no box is to reach.
local inet = require "inet"
local stack = require "stack"
local system = require "system"

local WHY = "boxes resolve the host's private names, and their lookups show there"
local MEND = "boxdrill doctor.lua --pin-dns"

-- The forbidden range that an address lies in, or nil.
local function forbidden(data, address)
    for range in pairs(data.forbidden) do
        if inet.within(address, range) then
            return range
        end
    end
    return nil
end

local function pins(network)
    local pinned, servers = false, {}
    for line in ((network.config or {})["raw.dnsmasq"] or ""):gmatch("[^\n]+") do
        pinned = pinned or line:match("^%s*no%-resolv%s*$") ~= nil
        servers[#servers + 1] = line:match("^%s*server=([%x.:]+)")
    end
    return pinned, servers
end

local function host_resolvers(data)
    local out = {}
    for i, address in ipairs(system.resolvers() or {}) do
        local range = forbidden(data, address)
        out[i] = range and ("%s (in %s)"):format(address, range) or address
    end
    return #out > 0 and table.concat(out, ", ") or "none that could be read"
end

return {
    id = "h.resolver",
    title = "boxes do not inherit the host's resolver",
    run = function(t)
        local network = stack.part(t, "network")
        if not network then
            return
        end
        local pinned, servers = pins(network)
        if not pinned then
            stack.dirty(t, ("the boxes' resolver asks the host's own: %s"):format(host_resolvers(t.contract)), {
                why = WHY,
                mend = MEND,
            })
        elseif #servers == 0 then
            stack.dirty(t, "the boxes' resolver asks nobody: no-resolv, and no server=", {
                why = "boxes resolve no name",
                mend = MEND,
            })
        end
        for _, address in ipairs(servers) do
            local range = forbidden(t.contract, address)
            if range then
                stack.dirty(t, ("the boxes' resolver asks %s, which is in %s"):format(address, range), {
                    why = WHY,
                    mend = MEND,
                })
            end
        end
        if #t.observations == 0 then
            t:pass(("they ask %s"):format(table.concat(servers, " ")))
        end
    end,
}
