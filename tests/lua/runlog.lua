-- The section of a run log: its parts, and that words of a box's are no markup in it.
-- Run by: boxdrill tests/lua/NAME.lua (in the sandbox; no Incus is needed).
local passed, failed = 0, 0

local function check(what, ok, got)
    if ok then
        passed = passed + 1
    else
        failed = failed + 1
        print(("FAILED: %s%s"):format(what, got == nil and "" or ": " .. tostring(got)))
    end
end

local runlog = require "runlog"

local function observed(verdict, what, seen)
    return { observations = { { verdict = verdict, what = what, seen = seen } } }
end

local KNOWN = { boxdrill = "9.9", hostname = "hut", kernel = "6.1", kvm = "0" }
local SERVER = { environment = { os_name = "Debian", os_version = "13", server_version = "6.0.4", storage = "dir" } }
local RESULTS = {
    { id = "c.host", phase = "C", title = "a title", audit = "A2", verdict = "FAIL",
        evidence = observed("FAIL", "to <b>|x|", "a `tick`\n# and | a line") },
    { id = "c.dns", phase = "C", title = "another", audit = "A5", verdict = "PASS", evidence = {} },
}

local function section(results, status, server)
    local summary = { status = status, phases = { "C" }, ms = 1500 }
    return runlog.section(results, summary, server, KNOWN, "2026-12-01 00:00 UTC")
end

local text = section(RESULTS, 1, SERVER)
for _, part in ipairs {
    "\n## 2026-12-01 00:00 UTC, run " .. engine.run_id .. ": the contract does not hold\n",
    "| host | hut: Debian 13, kernel 6.1, no KVM: the virtual machine boundary was not validated |\n",
    "| versions | boxdrill 9.9, Incus 6.0.4, storage dir, firewall ? |\n",
    "| phases | C, in 1.5 s |\n",
    "| verdicts | 1 PASS, 1 FAIL |\n",
    "\nFindings:\n\n- **FAIL c.host**: a title\n",
    "    - to &lt;b> x \n",
    "        - seen: `a 'tick' # and   a line`\n",
    "| A5 | c.dns | PASS | another |",
} do
    check("it has: " .. part, text:find(part, 1, true), text)
end
check("no finding stands in it that is none", not text:find("**PASS", 1, true))
text = section({ RESULTS[2] }, 0, nil)
check("no findings", text:find("\nNo findings.\n", 1, true), text)
check("Incus says nothing of itself", text:find("hut: ? ?, kernel", 1, true), text)
check("the contract holds", text:find(": the contract holds\n", 1, true), text)

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
