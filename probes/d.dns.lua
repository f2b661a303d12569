-- The network's resolver stops naming its boxes: dns.mode from managed to none.
local question = require "question"
local rehearse = require "rehearse"

return rehearse {
    id = "d.dns",
    title = "dns.mode=none hides a box's siblings and breaks nothing else",
    audit = "B3",
    before = { network = { ["dns.mode"] = "managed" } },
    change = { what = "dns.mode: managed -> none", network = { ["dns.mode"] = "none" } },
    breaks = { question.sibling_name() },
    keeps = { question.names(), question.egress() },
}
