#!/bin/bash
# The box CLI under drill: which one it is, and that the broker lets no command line through that could reach an
# instance of somebody else's. The CLI here only says what it was called with.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir -p "$DIR/tree/bin" "$DIR/tree/templates/blank"
cat >"$DIR/tree/bin/box" <<'END'
#!/bin/sh
echo "cpu=${BOX_CPU-} $*"
END
chmod 755 "$DIR/tree/bin/box"
echo 1.2.3 >"$DIR/tree/VERSION"
echo 'BOX_USER="u"' >"$DIR/tree/templates/blank/box.env"
cli=$DIR/tree/bin/box

# Each line of the script is a command line; NAME stands for a name of this run. It says what came of each.
lines=$(script lines <<'END'
local name = "bd-" .. engine.run_id .. "-t"
local function ask(text)
    local words = {}
    for word in text:gmatch("%S+") do
        words[#words + 1] = (word:gsub("NAME", name))
    end
    local ok, state, _, _, _, stdout = pcall(engine.call, "box", "default", 5000, 1000, table.unpack(words))
    print(text .. " => " .. (ok and state == "exit" and "ran: " .. stdout:gsub((name:gsub("%-", "%%-")), "NAME"):gsub("\n", "") or "refused"))
end
for _, text in ipairs {
    "list", "list NAME", "rm NAME --force", "exec NAME -- rm work", "BOX_CPU=3 info NAME", "incus NAME -- config show",
    "rm work", "rm --force work", "new --name work", "new --name NAME --from work/x", "rename NAME work", "list work",
    "snapshot NAME --name work", "incus NAME -- delete -f work", "incus work -- config show", "exec -- x work",
    "incus NAME -- config show work", "teardown-host", "migrate-host --all-boxes", "list --remote x",
    "rm NAME work", "LD_PRELOAD=/x list", "PATH=/x list", "new --name=work", "info ../work", "BOX_CPU=1",
} do
    ask(text)
end
END
)
ran() { grep -qxF "$1 => ran: $2" "$DIR/out"; }
refused() { grep -qxF "$1 => refused" "$DIR/out"; }

check "the lines are asked" run 0 --box "$cli" --grant box.cli "$lines"
check "a line without names" ran "list" "cpu= list"
check "a name of this run" ran "list NAME" "cpu= list NAME"
check "with an option" ran "rm NAME --force" "cpu= rm NAME --force"
check "a command in the box is its own matter" ran "exec NAME -- rm work" "cpu= exec NAME -- rm work"
check "its environment" ran "BOX_CPU=3 info NAME" "cpu=3 info NAME"
check "a reading command of the hatch" ran "incus NAME -- config show" "cpu= incus NAME -- config show"
while IFS= read -r text; do
    check "refused: $text" refused "$text"
done <<'END'
rm work
rm --force work
new --name work
new --name NAME --from work/x
rename NAME work
list work
incus NAME -- delete -f work
incus work -- config show
exec -- x work
incus NAME -- config show work
teardown-host
migrate-host --all-boxes
list --remote x
rm NAME work
snapshot NAME --name work
LD_PRELOAD=/x list
PATH=/x list
new --name=work
info ../work
BOX_CPU=1
END

facts=$(script facts <<'END'
print("path", engine.call("box.path"))
print("version", (engine.call("box.tree", "VERSION")))
print("template", (engine.call("box.tree", "templates", "blank", "box.env")))
print("outside", pcall(engine.call, "box.tree", "templates", "..", "VERSION"))
local a = engine.call("box.once", "default", 5000, 1000, "list")
print("once", a)
END
)
check "the facts are asked" run 0 --box "$cli" --grant box.cli "$facts"
check "the CLI's path and its tree" says "$cli	$DIR/tree"
check "the tree's version" says "version	1.2.3"
check "a template of it" says 'BOX_USER="u"'
check "nothing outside of it" says "outside	false"
check "without the grant the lines are asked" run 0 --box "$cli" "$lines"
check "and all are refused" [ "$(grep -c 'ran:' "$DIR/out")" = 0 ]
finish
