-- The bridge in the kernel: a configuration that did not take, or an address somebody added, shows only there.
local host = require "host"
local incus = require "incus"
local stack = require "stack"

local REAPPLY = "incus network set %s ipv4.dhcp.expiry=61m && incus network unset %s ipv4.dhcp.expiry "
    .. "(a real change makes Incus set the bridge up again)"

local function link_of(links, name)
    for _, link in ipairs(links) do
        if link.ifname == name then
            return link
        end
    end
    return nil
end

local function addresses(link)
    local out = { inet = {}, inet6 = {} }
    for _, entry in ipairs(link.addr_info or {}) do
        if out[entry.family] and entry.scope ~= "link" and entry["local"] then
            table.insert(out[entry.family], ("%s/%d"):format(entry["local"], math.tointeger(entry.prefixlen)))
        end
    end
    return out
end

local function is_up(link)
    for _, flag in ipairs(link.flags or {}) do
        if flag == "UP" then
            return true
        end
    end
    return false
end

local function compare(t, link, wanted)
    local name, held = t.contract.network.name, addresses(link)
    local reapply = REAPPLY:format(name, name)
    local seen = #held.inet > 0 and table.concat(held.inet, " ") or "no IPv4 address"
    if seen ~= wanted then
        stack.dirty(t, ("bridge %s has %s, its network says %s"):format(name, seen, wanted), {
            why = "boxes are told a gateway and a resolver that are not there, or more than one is",
            mend = reapply,
        })
    end
    if #held.inet6 > 0 and t.contract.network.config["ipv6.address"] == "none" then
        stack.dirty(t, ("bridge %s has %s"):format(name, table.concat(held.inet6, " ")), {
            why = "the ACL and the firewall wall off IPv4: IPv6 is a way around them",
            mend = ("incus network set %s ipv6.address=none; ip -6 address flush dev %s scope global"):format(
                name, name),
        })
    end
    if not is_up(link) then
        stack.dirty(t, ("bridge %s is down"):format(name), {
            why = "no box reaches anything",
            mend = ("ip link set %s up"):format(name),
        })
    end
end

return {
    id = "h.bridge",
    title = "the bridge's real address is the configured one",
    run = function(t)
        local data = t.contract
        local links, why = host.links()
        if not links then
            return stack.unasked(t, "the host's links", why)
        end
        local link = link_of(links, data.network.name)
        local network = incus.network(data.project, data.network.name)
        if link then
            compare(t, link, network and (network.config or {})["ipv4.address"] or data.network.address)
        elseif stack.part(t, "network") then
            stack.dirty(t, ("there is no bridge %s, though its network is configured"):format(data.network.name), {
                why = "no box reaches anything",
                mend = REAPPLY:format(data.network.name, data.network.name),
            })
        end
        if #t.observations == 0 then
            t:pass("it is")
        end
    end,
}
