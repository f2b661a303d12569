#!/bin/bash
# box.look asks four questions and no others, and a check has a deadline of its own.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"
says() { grep -qF -- "$1" "$DIR/out"; }

check "without the grant: refused" run 0 "$(script ungranted <<'END'
print(pcall(engine.call, "box.look", "default", "work", "address"))
END
)"
check "it names the grant" says "box.look"

looks=$(script looks <<'END'
engine.call("grant", "box.look")
for _, words in ipairs {
    { "shell" }, { "address", "x" }, { "names" }, { "names", "-x" }, { "names", "a b" }, { "names", "$(id)" },
    { "names", "x;y" }, { "names", "" }, { "internet", "1.1.1.1" }, { "internet", "one.one", 80 },
    { "internet", "1.1.1.1", 0 }, { "internet", "1.1.1.1", 65536 }, { "internet", "1.1.1.1/@x", 80 },
    { "internet", "::1", 80 }, { "internet", "file:///etc", 80 },
} do
    assert(not pcall(engine.call, "box.look", "default", "work", table.unpack(words)), table.concat(words, " "))
end
assert(not pcall(engine.call, "box.look", "default", "../x", "address"))
print("all refused")
END
)
check "what is none of the four questions" run 0 --grant box.look "$looks"
check "every one is refused" says "all refused"
check "a bridge's name is no path" run 0 "$(script ports <<'END'
assert(not pcall(engine.call, "host.ports", "../../x"))
local ports, _, code = engine.call("host.ports", "nosuch0")
assert(not ports and code == "ENOENT")
END
)"

slow=$(script slow <<'END'
return { id = "x.slow", title = "waits", run = function(t) require("task").sleep(20000) t:pass("x") end }
END
)
check "a probe over its own limit is ERROR: exit 3" run 3 "$(script limits <<'END'
engine.call("grant", "probes")
local file = ...
assert(engine.call("probe.load", file))
assert(not pcall(engine.call, "probe.limit", file, 0))
engine.call("probe.limit", file, 300)
local began = engine.clock()
print(engine.call("probe.run", file))
assert(engine.clock() - began < 5)
END
)" "$slow"
check "and says so" says "ERROR"
finish
