-- The lab's own facts, laid over the contract: the echo programs that answer in it, TCP and UDP.
local both = { "tcp", "udp" }

return {
    listeners = {
        -- the host: the boxes' gateway, the uplink, a bridge of somebody else's
        { address = "10.88.0.1", port = 8099, protocols = both },
        { address = "203.0.113.2", port = 8099, protocols = both },
        { address = "10.99.0.1", port = 8099, protocols = both },
        -- behind every range that a box must not reach, in the namespace "wan"
        { address = "10.0.0.1", port = 8099, protocols = both },
        { address = "10.200.0.1", port = 8099, protocols = both },
        { address = "172.16.0.1", port = 8099, protocols = both },
        { address = "172.16.9.9", port = 8099, protocols = both },
        { address = "192.168.1.1", port = 8099, protocols = both },
        { address = "169.254.169.254", port = 8099, protocols = both },
        { address = "100.64.0.9", port = 8099, protocols = both },
        { address = "100.100.100.100", port = 8099, protocols = both },
    },
}
