--- The section that a drill appends to a run log (--log FILE), in the form of RUNS.md: where it ran, what it
-- counted, what it found, the audit's answers.
local host = require "host"
local report = require "report"

local runlog = {}

-- The verdicts that are findings, and stand in the log with their evidence.
local FINDINGS = { FAIL = true, VETO = true, SUSPECT = true, ERROR = true }
local WORDS = { [0] = "the contract holds", [1] = "the contract does not hold", [3] = "not everything could be judged" }

-- Words of unknown origin, as code: they can be no other markup.
local function code(text)
    return ("`%s`"):format((report.cell(text):gsub("`", "'"):gsub("&lt;", "<")))
end

local function row(out, label, ...)
    out[#out + 1] = ("| %s | %s |"):format(label, report.cell(string.format(...)))
end

-- Incus's own word on itself and its host, where it gave one.
local function environment(server)
    local found = server and type(server.environment) == "table" and server.environment or {}
    return setmetatable({}, {
        __index = function(_, key)
            return type(found[key]) == "string" and found[key] ~= "" and found[key] or "?"
        end,
    })
end

local function facts(out, results, summary, server, known)
    local incus = environment(server)
    out[#out + 1] = "| | |\n|---|---|"
    row(out, "host", "%s: %s %s, kernel %s, %s", known.hostname, incus.os_name, incus.os_version, known.kernel,
        known.kvm == "1" and "KVM" or "no KVM: the virtual machine boundary was not validated")
    row(out, "versions", "boxdrill %s, Incus %s, storage %s, firewall %s", known.boxdrill, incus.server_version,
        incus.storage, incus.firewall)
    row(out, "box CLI", "%s", summary.cli or summary.without_cli or "not drilled")
    row(out, "phases", "%s, in %.1f s", table.concat(summary.phases, ", "), summary.ms / 1000)
    row(out, "verdicts", "%s", report.counts_text(report.counts(results)))
end

local function finding(out, result)
    out[#out + 1] = ("- **%s %s**: %s"):format(result.verdict, report.cell(result.id), report.cell(result.title))
    for _, one in ipairs(report.telling(result)) do
        out[#out + 1] = "    - " .. report.cell(one.what)
        for _, field in ipairs { "clause", "seen", "reason", "by_hand" } do
            if one[field] then
                out[#out + 1] = ("        - %s: %s"):format(field:gsub("_", " "), code(one[field]))
            end
        end
    end
end

--- A run's section, as Markdown. Pure.
-- @param results as of report.verdict @param summary as of report.summary
-- @param server as of incus.server, or nil @param known as of host.facts @param when text
function runlog.section(results, summary, server, known, when)
    local out = { ("\n## %s, run %s: %s\n"):format(when, engine.run_id, WORDS[summary.status] or summary.status) }
    facts(out, results, summary, server, known)
    local found = #out
    for _, result in ipairs(results) do
        if FINDINGS[result.verdict] then
            out[#out + 1] = #out == found and "\nFindings:\n" or nil
            finding(out, result)
        end
    end
    if #out == found then
        out[#out + 1] = "\nNo findings."
    end
    local audit = summary.audit ~= false and report.audit(results) or {}
    if #audit > 0 then
        out[#out + 1] = "\n" .. table.concat(audit, "\n")
    end
    return table.concat(out, "\n") .. "\n"
end

--- Appends a run's section to the file of --log, where one was given.
-- @param results, summary, server as of runlog.section
-- @return true; or nil, message
function runlog.append(results, summary, server)
    if report.options().log ~= "1" then
        return true
    end
    local text = runlog.section(results, summary, server, host.facts(), os.date("!%Y-%m-%d %H:%M UTC"))
    local ok, thrown, why = pcall(engine.call, "log.append", text)
    why = why or not ok and tostring(thrown) or nil
    return not why or nil, why
end

return runlog
