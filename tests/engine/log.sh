#!/bin/bash
# --log FILE: appended whole or not at all, nothing followed, nothing but that file touched; and its text is
# nobody's markup.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"

append=$(script append <<'END'
print(engine.call("log.append", (...)))
END
)
LOG=$DIR/folder/log.md
mkdir "$DIR/folder"
alone() { [ "$(ls -A "$DIR/folder")" = "$*" ]; }
holds() { [ "$(cat "$LOG")" = "$1" ]; }

check "a new file" run 0 --log "$LOG" "$append" one
check "it holds the text" holds one
check "it is anybody's to read" [ "$(stat -c %a "$LOG")" = 644 ]
printf 'no newline' >"$LOG"
chmod 640 "$LOG"
chown 65534:65534 "$LOG"
check "appended behind a line of its own" run 0 --log="$LOG" "$append" two
check "it holds both" holds $'no newline\ntwo'
check "mode and owner stay" [ "$(stat -c %a:%u:%g "$LOG")" = 640:65534:65534 ]
check "nothing else is left" alone log.md
check "control characters are shown, not obeyed" run 0 --log "$LOG" "$append" $'\033[31mred\007'
check "they are" grep -qv $'[\033\007]' "$LOG"
check "without --log" run 0 "$append" three
check "it is said" says "ENOENT"
check "a relative name" eval '(cd "$DIR/folder" && run 0 --log log.md "$append" four) && grep -qx four "$LOG"'

# What cannot be written is refused before anything begins.
refused() {
    check "refused: $1" run 2 --log "$2" "$append" x
    check "in one line: $1" one_line
    check "which says why: $1" complains "$3"
}
ln -s log.md "$DIR/folder/link.md"
refused "a symbolic link" "$DIR/folder/link.md" "a symbolic link is not followed"
refused "a folder" "$DIR/folder" "Is a directory"
refused "no such folder" "$DIR/none/log.md" "No such file or directory"
refused "a device" /dev/null "Invalid argument"
mkdir "$DIR/ro"
mount -t tmpfs -o ro none "$DIR/ro"
refused "a file system that is only read" "$DIR/ro/log.md" "Read-only file system"
umount "$DIR/ro"
refused "nothing" "" "Invalid argument"
rm "$DIR/folder/link.md"

# Put in the way while it runs.
swap=$(script swap <<END
engine.call("exec", 5000, 100, 1000, "ln", "-sf", "$DIR/elsewhere", "$LOG")
print(engine.call("log.append", "five"))
END
)
echo kept >"$DIR/elsewhere"
check "a link put in the way meanwhile" run 0 --grant host.exec --log "$LOG" "$swap"
check "is not followed" says "ELOOP"
check "what it points to is kept" [ "$(cat "$DIR/elsewhere")" = kept ]
check "nothing of ours is left" alone log.md

# A device that is full: the old text stays.
mkdir "$DIR/small"
mount -t tmpfs -o size=64k none "$DIR/small"
trap 'umount "$DIR/small"; rm -rf "$DIR"' EXIT
head -c 40000 /dev/zero | tr '\0' a >"$DIR/small/log.md"
check "a full device" run 0 --log "$DIR/small/log.md" "$append" six
check "is said" says "ENOSPC"
check "the old text is whole" [ "$(stat -c %s "$DIR/small/log.md")" = 40000 ]
check "and alone" [ "$(ls -A "$DIR/small")" = log.md ]
finish
