-- A script's own command line.
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

local options = require "options"

local KNOWN = { phase = "value", force = "flag" }
local found, rest = options.parse(KNOWN, "--force", "x", "--phase", "A,C", "y")
check("flags, values and the rest", found.force == true and found.phase == "A,C" and rest[1] == "x" and rest[2] == "y")
check("--option=value", options.parse(KNOWN, "--phase=A").phase == "A")
check("nothing", next((options.parse(KNOWN))) == nil)
check("an unknown option", not pcall(options.parse, KNOWN, "--frob"))
check("-h is --help", options.parse({ help = "flag" }, "-h").help == true)
check("an unknown short option", not pcall(options.parse, KNOWN, "-x") and not pcall(options.parse, KNOWN, "-"))
check("a flag with a value", not pcall(options.parse, KNOWN, "--force=1"))
check("a value missing", not pcall(options.parse, KNOWN, "--phase") and not pcall(options.parse, KNOWN, "--phase="))
check("a comma list", table.concat(options.words("A, C,"), " ") == "A C")

print(("%d passed, %d failed"):format(passed, failed))
engine.call("exit", failed == 0 and passed > 0 and 0 or 1)
