-- `@internal` as a drop destination in the network's ACL. A bridge network's ACL knows no such subject: Incus
-- refuses it, so a hardening that leans on it must name the subnets. Its words are recorded.
local question = require "question"
local rehearse = require "rehearse"

return rehearse {
    id = "d.internal",
    title = "Incus rejects @internal in a bridge's ACL, and breaks nothing",
    audit = "B1",
    boxes = 1,
    change = {
        what = "a rule that drops @internal, in the ACL of a bridge network",
        egress = { { action = "drop", destination = "@internal" } },
    },
    refused = true,
    keeps = { question.egress(), question.names() },
}
