-- A box's port takes nothing but its own MAC and address: filtering, as an override on our own box's NIC.
local question = require "question"
local rehearse = require "rehearse"

return rehearse {
    id = "d.l2",
    title = "MAC and IPv4 filtering stops spoofing and breaks nothing else",
    audit = "B5",
    boxes = 1,
    change = {
        what = "security.mac_filtering and security.ipv4_filtering on a box's NIC",
        device = { ["security.mac_filtering"] = "true", ["security.ipv4_filtering"] = "true" },
    },
    breaks = { question.spoofed_address(), question.spoofed_mac() },
    keeps = { question.egress(), question.names(), question.inner_runtime() },
}
