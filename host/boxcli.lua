--- The reference box CLI: the smallest that has the surface phase B asks for (docs/box.md). It calls the
-- `incus` client, as such CLIs do, and keeps its state where they do: in tags of the instance. A box is an
-- instance with one of the contract's tags; on any other every command refuses.
--
-- For tests only: words in the file FAULTS, where it exists, make it misbehave, one way a word.
local contract = require "contract"
local host = require "host"
local inet = require "inet"
local task = require "task"

local FAULTS = "/run/box-faults"
local OK, FAILED, USAGE = 0, 1, 2
local CALL_MS, MINT_MS, COPY_MS = 60000, 600000, 300000
local GRACE_MS, CAP = 300, 1 << 20
local BEAT_MS = 4000
local DISTANCE = 2 -- a mistyped command is at most so far from the one that is meant

local tree, terminal, environment -- what the wrapper said
local data -- the contract
local faults = {}

---------------------------------------------------------------------------------------------------
-- Saying, and calling.

local function say(text)
    engine.call("print", "plain", text .. "\n")
end

local function warn(text)
    engine.call("warn", text .. "\n")
end

-- Ends the program: everything that follows a refusal is skipped.
local function leave(code)
    error({ code = code }, 0)
end

local function die(...)
    warn("box: " .. string.format(...))
    leave(FAILED)
end

local function misused(...)
    warn("box: " .. string.format(...))
    warn("try 'box help'.")
    leave(USAGE)
end

-- Runs a command. Returns its exit code (-1: it did not exit by itself), stdout, stderr.
local function run(ms, ...)
    local state, value, _, _, stdout, stderr = engine.call("exec", ms, GRACE_MS, CAP, ...)
    if not state then
        return -1, "", value
    end
    return state == "exit" and math.tointeger(tonumber(value)) or -1, stdout, stderr
end

local function incus(...)
    return run(CALL_MS, "incus", ...)
end

-- Runs the client for what must work; its own words if it does not. Returns stdout.
local function must(ms, ...)
    local code, stdout, stderr = run(ms, "incus", ...)
    if code ~= OK then
        die("incus %s failed: %s", (...), (stderr:gsub("%s+$", "")))
    end
    return stdout
end

local function lines_of(text)
    local out = {}
    for line in text:gmatch("[^\n]+") do
        out[#out + 1] = line
    end
    return out
end

---------------------------------------------------------------------------------------------------
-- Boxes.

-- Whether an instance has one of the tags.
local function is_box(name)
    for _, tag in ipairs(data.tags) do
        local code, stdout = incus("config", "get", name, tag.key)
        if code == OK and stdout == tag.value .. "\n" then
            return true
        end
    end
    return false
end

-- Refuses what is no box. @param verb for the fault that lets one through
local function need_box(name, verb)
    if not name:find("^%w[%w-]*$") or not (faults["boundary." .. verb] or is_box(name)) then
        die("no such box: %s (see 'box list')", name)
    end
    return name
end

local function state_of(name)
    local _, stdout = incus("list", ("^%s$"):format(name), "--format", "csv", "--columns", "s")
    return stdout:match("^[%u]+") or "unknown"
end

local function short_type(text)
    return text == "VIRTUAL-MACHINE" and "VM" or text == "CONTAINER" and "CT" or text
end

-- Every box as { name, state, type, snapshots }.
local function boxes()
    local out, seen = {}, {}
    for _, tag in ipairs(data.tags) do
        local filter = ("%s=%s"):format(tag.key, tag.value)
        for _, line in ipairs(lines_of(must(CALL_MS, "list", filter, "--format", "csv", "--columns", "nstS"))) do
            local name, state, kind, snapshots = line:match("^([^,]*),([^,]*),([^,]*),([^,]*)$")
            if name and not seen[name] then
                seen[name] = true
                out[#out + 1] = { name, state, short_type(kind), snapshots }
            end
        end
    end
    return out
end

local function table_of(rows)
    local widths = {}
    for _, row in ipairs(rows) do
        for i, cell in ipairs(row) do
            widths[i] = math.max(widths[i] or 0, #cell)
        end
    end
    for _, row in ipairs(rows) do
        local cells = {}
        for i, cell in ipairs(row) do
            cells[i] = cell .. (" "):rep(widths[i] - #cell)
        end
        say((table.concat(cells, "  "):gsub(" +$", "")))
    end
end

---------------------------------------------------------------------------------------------------
-- Templates: TREE/templates/NAME/box.env, lines KEY="value". None of the keys is about placement.

local KEYS = { BOX_DESCRIPTION = true, BOX_IMAGE = true, BOX_USER = true, BOX_CPU = true, BOX_MEMORY = true }

local function template_path(name, file)
    return ("%s/templates/%s/%s"):format(tree, name, file)
end

local function load_template(name)
    local code, text = run(CALL_MS, "cat", template_path(name, "box.env"))
    if code ~= OK or not name:find("^[%w][%w._-]*$") then
        die("no such template: %s (see 'box templates')", name)
    end
    local out = {}
    for _, line in ipairs(lines_of(text)) do
        local key, value = line:match("^([%u_]+)=\"?(.-)\"?$")
        if key and not KEYS[key] and not faults["template.network"] then
            die("template '%s': unknown key '%s'", name, key)
        elseif not key and not line:find("^#") then
            die("template '%s': not a KEY=\"value\" line: %s", name, line)
        elseif key then
            out[key] = value
        end
    end
    if not out.BOX_IMAGE or not out.BOX_USER then
        die("template '%s': BOX_IMAGE and BOX_USER are required", name)
    end
    return out
end

local function cmd_templates()
    local _, names = run(CALL_MS, "ls", tree .. "/templates")
    say("TEMPLATES")
    for _, name in ipairs(faults.templates and {} or lines_of(names)) do
        say(("  %-10s %s"):format(name, load_template(name).BOX_DESCRIPTION or ""))
    end
    say("\nmint one:  box new --name <box> --template <template>")
end

---------------------------------------------------------------------------------------------------
-- Minting.

-- Runs f, and says every few seconds that it is still under way. Returns f's results.
local function with_heartbeat(what, f)
    local started, done = engine.clock(), false
    local beating = task.spawn(function()
        local said = started
        while not done do
            task.sleep(100)
            if not done and not faults["new.progress"] and (engine.clock() - said) * 1000 >= BEAT_MS then
                said = engine.clock()
                say(("box: still %s (%d s)"):format(what, math.floor(said - started)))
            end
        end
    end)
    local results = table.pack(f())
    done = true
    beating()
    return table.unpack(results, 1, results.n)
end

local function wait_cloud_init(name)
    if faults["new.settled"] then
        return
    end
    say("box: waiting for cloud-init ...")
    local code, stdout, stderr = with_heartbeat("waiting for cloud-init", function()
        return run(MINT_MS, "incus", "exec", name, "-n", "-T", "--", "cloud-init", "status", "--wait")
    end)
    if code == 0 or code == 2 then -- 2: done, with complaints
        return
    elseif faults["new.narration"] then
        die("the mint failed")
    end
    warn("box: cloud-init did not finish in " .. name .. ". What was heard of it:")
    for _, line in ipairs(lines_of(stdout .. stderr)) do
        warn("  " .. line)
    end
    die("the box is not complete, and not handed over (see: box incus %s -- console --show-log)", name)
end

-- Which type: a virtual machine where the host has KVM, unless told otherwise.
local function mode_of(options)
    if options.container or host.facts().kvm ~= "1" then
        if not options.container then
            warn("box: no /dev/kvm: a container (weaker isolation)")
        end
        return "container"
    end
    return "virtual-machine"
end

-- Resources: the flag, else the environment, else the template.
local function resource(options, key, template)
    local flag, env = options[key], environment[key]
    if faults["new.resources"] then
        flag, env = env, flag
    end
    for _, value in ipairs { flag or "", env or "" } do
        if value ~= "" then
            return value
        end
    end
    return template
end

local function mint(options)
    local name, label = options.name, options.template or "blank"
    local template = load_template(label)
    local mode = mode_of(options)
    local _, user_data = run(CALL_MS, "cat", template_path(label, "user-data.yaml"))
    local words = { "init", "-q", template.BOX_IMAGE, name }
    if faults["new.profile"] then
        table.move({ "--profile", "default" }, 1, 2, #words + 1, words)
    end
    table.move({ "--profile", data.profile.name }, 1, 2, #words + 1, words)
    if mode == "virtual-machine" then
        words[#words + 1] = "--vm"
    end
    local config = {
        { data.tags[1].key, data.tags[1].value },
        { "user.box.template", label },
        { "user.box.user", faults["new.user"] and "root" or template.BOX_USER },
        { "limits.cpu", resource(options, "cpu", template.BOX_CPU) },
        { "limits.memory", resource(options, "memory", template.BOX_MEMORY) },
        { "cloud-init.user-data", user_data },
    }
    for _, pair in ipairs(config) do
        table.move({ "--config", ("%s=%s"):format(pair[1], pair[2] or "") }, 1, 2, #words + 1, words)
    end
    say(("box: minting %s from %s (%s) ..."):format(name, label, mode))
    must(MINT_MS, table.unpack(words))
    say("box: starting it ...")
    must(CALL_MS, "start", name)
    wait_cloud_init(name)
end

-- A clone must not be its source. Incus gives it a MAC of its own; the machine-id is a file in it, and the
-- DHCP client's identity comes from that. Empty, the next boot writes a new one. Only a container's files can
-- be changed while it is stopped; a virtual machine is booted, changed, and booted again.
local function new_identity(name, is_vm)
    if faults.clone then
        return must(CALL_MS, "start", name)
    elseif not is_vm then
        must(CALL_MS, "file", "push", "-q", "--mode", "0444", "/dev/null", name .. "/etc/machine-id")
        return must(CALL_MS, "start", name)
    end
    must(CALL_MS, "start", name)
    local function reset()
        return incus("exec", name, "-n", "-T", "--", "truncate", "-s", "0", "/etc/machine-id") == OK
    end
    if not with_heartbeat("waiting for the agent", function()
        return task.poll(MINT_MS, 1000, reset)
    end) then
        die("the agent of %s does not answer", name)
    end
    must(CALL_MS, "restart", "-f", name)
end

local function clone(options)
    if not faults["clone.resources"] and (options.cpu or options.memory) then
        misused("--cpu and --memory shape a fresh mint; a clone carries its source's resources")
    elseif options.template then
        misused("--from clones an existing box; its template rides along (drop --template)")
    end
    local source, label = options.from:match("^([^/]*)/?(.*)$")
    need_box(source, "from")
    local whole = label == "" and source or source .. "/" .. label
    with_heartbeat("copying", function()
        return must(COPY_MS, "copy", whole, options.name)
    end)
    local _, kind = incus("list", ("^%s$"):format(options.name), "--format", "csv", "--columns", "t")
    new_identity(options.name, kind:find("VIRTUAL", 1, true) ~= nil)
    say(("box: cloned %s — it carries over what was in it, not who it was."):format(whole))
end

local function cmd_new(_, options)
    local name = options.name
    if not name or not name:find("^%a[%w-]*$") then
        misused("usage: box new --name <box> [--template <t>] [--from <box>[/<label>]] [--cpu <n>] [--memory <size>]")
    elseif options.from then
        clone(options)
    else
        mint(options)
    end
    say(("box: ready — 'box shell %s'."):format(name))
end

---------------------------------------------------------------------------------------------------
-- The rest of the surface.

local function cmd_list(words)
    if words[1] then
        if faults["typo.list"] then
            return
        end
        misused("list takes no box — for one box, use: box info %s", words[1])
    end
    local rows = boxes()
    if #rows == 0 then
        if faults["list.empty"] then
            leave(FAILED)
        end
        return warn("box: no boxes yet — create one with: box new --name work")
    end
    table.insert(rows, 1, { "NAME", "STATE", "TYPE", "SNAPSHOTS" })
    table_of(rows)
end

-- The address on the boxes' network. The column quotes, spans lines, and holds the addresses of whatever
-- bridges the box has made inside itself, in no order.
local function address_of(name)
    local _, stdout = incus("list", ("^%s$"):format(name), "--format", "csv", "--columns", "4")
    for address in stdout:gmatch("%d+%.%d+%.%d+%.%d+") do
        if inet.within(address, data.subnet) then
            return address
        end
    end
    return "-"
end

local function snapshots_of(name)
    local out = {}
    for _, line in ipairs(lines_of(must(CALL_MS, "snapshot", "list", name, "--format", "csv"))) do
        local label, taken = line:match("^([^,]+),([^,]*)")
        if label then
            out[#out + 1] = { label, taken }
        end
    end
    return out
end

local function cmd_info(words)
    local name = words[1]
    local stdout = must(CALL_MS, "list", ("^%s$"):format(name), "--format", "csv", "--columns", "st")
    local state, kind = stdout:match("^([^,]*),([^,\n]*)")
    local address = faults["info.address"] and "-" or address_of(name)
    for _, row in ipairs { { "NAME", name }, { "STATE", state }, { "TYPE", short_type(kind) }, { "IPV4", address } } do
        say(("%-11s%s"):format(row[1], row[2]))
    end
    local snapshots = snapshots_of(name)
    if #snapshots == 0 or faults["info.snapshots"] then
        say(("\nSNAPSHOTS  (none)\n\nTake one:   box snapshot %s authed"):format(name))
        return
    end
    say("\nSNAPSHOTS")
    for _, snapshot in ipairs(snapshots) do
        say(("  %-14s%s"):format(snapshot[1], snapshot[2]))
    end
    say(("\nClone one:  box new --name <new> --from %s/%s"):format(name, snapshots[1][1]))
end

local function user_of(name)
    local _, stdout = incus("config", "get", name, "user.box.user")
    return stdout:match("^[%w_-]+") or "root"
end

local function cmd_exec(words, _, rest)
    if not rest or #rest == 0 then
        misused("usage: box exec <box> -- <command> ...")
    end
    local before = { "incus", "exec", words[1], "-n", "-T", "--" }
    if not faults["exec.user"] then
        table.move({ "sudo", "-u", user_of(words[1]), "-i", "--" }, 1, 5, #before + 1, before)
    end
    table.move(rest, 1, #rest, #before + 1, before)
    local code, stdout, stderr = run(MINT_MS, table.unpack(before))
    engine.call("print", "plain", faults["exec.output"] and stdout:sub(1, -3) or stdout)
    engine.call("warn", stderr)
    leave(code < 0 and FAILED or faults["exec.code"] and OK or code)
end

local function cmd_snapshot(words)
    local label = words[2] or ("manual-%d"):format(os.time())
    if not faults.snapshot then
        must(COPY_MS, "snapshot", "create", words[1], label)
    end
    say(label)
end

local function confirm(options, fault, what)
    if options.force or faults[fault] then
        return
    elseif terminal ~= "1" then
        misused("refusing to %s without --force (no terminal to confirm on)", what)
    end
    warn(("box: to %s cannot be undone: say it with --force"):format(what))
    leave(FAILED)
end

local function cmd_restore(words, options)
    if not words[2] then
        misused("usage: box restore <box> <label> [--force]")
    end
    confirm(options, "restore.force", ("restore %s to %s"):format(words[1], words[2]))
    if not faults.restore then
        must(COPY_MS, "snapshot", "restore", words[1], words[2])
    end
    say(("box: restored %s to %s"):format(words[1], words[2]))
end

local function cmd_rename(words)
    local old, new = words[1], words[2]
    if not new then
        misused("usage: box rename <box> <new-name>")
    end
    local state = state_of(old)
    if state ~= "STOPPED" and not faults["rename.running"] then
        die("box '%s' is %s — Incus needs it stopped for this. Stop it: box down %s", old, state, old)
    end
    if faults["rename.snapshots"] then
        for _, snapshot in ipairs(snapshots_of(old)) do
            must(CALL_MS, "snapshot", "delete", old, snapshot[1])
        end
    end
    local code, _, stderr = incus("rename", old, new)
    if code ~= OK and not faults["rename.running"] then
        die("%s", (stderr:gsub("%s+$", "")))
    end
    say(("box: renamed %s to %s"):format(old, new))
end

local function cmd_down(words)
    must(COPY_MS, "stop", "-f", words[1])
    say("box: stopped " .. words[1])
end

local function cmd_start(words)
    must(CALL_MS, "start", words[1])
    say("box: started " .. words[1])
end

local function cmd_rm(words, options)
    confirm(options, "rm.guard", ("delete %s and all its snapshots"):format(words[1]))
    if not faults.rm then
        must(COPY_MS, "delete", "-f", words[1])
    end
    say("box: removed " .. words[1])
end

local LOOSENS = { profile = true, network = true, device = true, nic = true }

local function cmd_incus(words, _, rest)
    if not rest or #rest == 0 then
        misused("usage: box incus <box> -- <incus's words> ...")
    end
    local command, placed, loosens = {}, false, false
    for i, word in ipairs(rest) do
        local filled, count = word:gsub("{}", words[1])
        command[i], placed = filled, placed or count > 0
        loosens = loosens or LOOSENS[word] or word:find("security.", 1, true) ~= nil
    end
    if not placed and not faults["hatch.instance"] then
        command[#command + 1] = words[1]
    end
    if loosens and not faults["hatch.warning"] then
        warn("box: warning: this can move the box off the isolation stack")
    end
    warn("box: incus " .. table.concat(command, " "))
    local code, stdout, stderr = run(COPY_MS, "incus", table.unpack(command))
    engine.call("print", "plain", stdout)
    engine.call("warn", stderr)
    leave(code < 0 and FAILED or code)
end

local function cmd_shell(words)
    say(("this box has no terminal to lend: incus exec %s -- sudo -u %s -i"):format(words[1], user_of(words[1])))
end

-- Each command: what it does, whether its first word is a box, and its line in the help.
local COMMANDS = {
    new = { run = cmd_new, help = "--name <box> [--template <t>] [--from <box>[/<label>]] ...   mint or clone" },
    templates = { run = cmd_templates, help = "the templates there are" },
    list = { run = cmd_list, help = "your boxes" },
    info = { run = cmd_info, box = true, help = "<box>   state, type, address, snapshots" },
    exec = { run = cmd_exec, box = true, help = "<box> -- <command> ...   as the template's user" },
    shell = { run = cmd_shell, box = true, help = "<box>   how to get one" },
    snapshot = { run = cmd_snapshot, box = true, help = "<box> [<label>]" },
    restore = { run = cmd_restore, box = true, help = "<box> <label> [--force]" },
    rename = { run = cmd_rename, box = true, help = "<box> <new-name>   of a stopped one" },
    down = { run = cmd_down, box = true, help = "<box>   stop it" },
    start = { run = cmd_start, box = true, help = "<box>" },
    rm = { run = cmd_rm, box = true, help = "<box> [--force]   with its snapshots" },
    incus = { run = cmd_incus, box = true, help = "<box> -- <words> ...   any incus command; {} is the box" },
}

local function version()
    local _, text = run(CALL_MS, "cat", tree .. "/VERSION")
    say(("box %s (%s)"):format(faults.version and "0.0.0" or text:match("^%S+") or "unknown", tree))
end

local function help()
    say("usage: box <command> ...\n")
    for _, name in ipairs(contract.sorted_keys(COMMANDS)) do
        say(("  %-10s %s"):format(name, COMMANDS[name].help))
    end
    say("\n  --help, --version\n")
    say("new: --cpu <n> --memory <size> (else BOX_CPU, BOX_MEMORY, else the template's), --container")
end

---------------------------------------------------------------------------------------------------
-- The command line.

-- How many letters have to change to make one word of the other.
local function distance(a, b)
    local row = {}
    for j = 0, #b do
        row[j] = j
    end
    for i = 1, #a do
        local last = row[0]
        row[0] = i
        for j = 1, #b do
            local cost = a:byte(i) == b:byte(j) and 0 or 1
            last, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1, last + cost)
        end
    end
    return row[#b]
end

local function unknown_command(word)
    local best, found = DISTANCE + 1, nil
    for _, name in ipairs(contract.sorted_keys(COMMANDS)) do
        local d = distance(word, name)
        if d < best then
            best, found = d, name
        end
    end
    if found and not faults["typo.verb"] then
        misused("unknown command: %s — did you mean '%s'?", word, found)
    end
    misused("unknown command: %s", word)
end

local OPTIONS = {
    ["--name"] = "name", ["--template"] = "template", ["--from"] = "from", ["--cpu"] = "cpu",
    ["--memory"] = "memory",
}
local FLAGS = { ["--container"] = "container", ["--force"] = "force", ["-f"] = "force" }

-- The words, the options, and what follows `--` (nil without one).
local function parse(verb, arguments)
    local words, options = {}, {}
    local i = 1
    while i <= #arguments do
        local word = arguments[i]
        if word == "--" then
            return words, options, table.move(arguments, i + 1, #arguments, 1, {})
        elseif FLAGS[word] then
            options[FLAGS[word]] = true
        elseif OPTIONS[word] then
            i = i + 1
            if not arguments[i] or arguments[i] == "" then
                misused("%s needs a value", word)
            end
            options[OPTIONS[word]] = arguments[i]
        elseif word:find("^%-") and not faults["typo.flag"] then
            misused("unknown option: %s (see 'box help %s')", word, verb)
        else
            words[#words + 1] = word
        end
        i = i + 1
    end
    return words, options
end

local function dispatch(verb, ...)
    if not verb or verb == "help" or verb == "--help" or verb == "-h" then
        return help()
    elseif verb == "--version" or verb == "-V" then
        return version()
    end
    local command = COMMANDS[verb] or unknown_command(verb)
    local words, options, rest = parse(verb, { ... })
    if command.box then
        need_box(words[1] or misused("usage: box %s %s", verb, command.help), verb)
    end
    command.run(words, options, rest)
end

local function main(where, is_terminal, cpu, memory, ...)
    tree, terminal, environment = where, is_terminal, { cpu = cpu, memory = memory }
    engine.call("grant", "host.exec")
    data = contract.load()
    local code, text = run(CALL_MS, "cat", FAULTS)
    for word in (code == OK and text or ""):gmatch("%S+") do
        faults[word] = true
    end
    local ok, why = pcall(dispatch, ...)
    if not ok and type(why) ~= "table" then
        error(why, 0)
    end
    engine.call("exit", ok and OK or why.code)
end

main(...)
