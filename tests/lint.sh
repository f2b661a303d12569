#!/bin/bash
# One linter over the whole tree: lint.sh clang-format|clang-tidy|cppcheck|luacheck|shellcheck BUILD
set -euo pipefail
tool=$1 build=$2

# files PATTERN...: tracked and new ones alike, so that a new file is not missed.
files() { git ls-files --cached --others --exclude-standard -- "$@"; }
mapfile -t c < <(files '*.c' '*.h')
mapfile -t sources < <(files 'engine/*.c' 'tests/unit/*.c')
mapfile -t lua < <(files '*.lua')
mapfile -t shell < <(files '*.sh' | xargs grep -lE '' && files | xargs grep -lE -m1 '^#!.*(bash|/sh)' | grep -v '\.sh$')
if [ "${#c[@]}" = 0 ] || [ "${#lua[@]}" = 0 ] || [ "${#shell[@]}" = 0 ]; then
    echo "lint: no files"
    exit 1
fi

case $tool in
clang-format) clang-format --dry-run -Werror "${c[@]}" ;;
clang-tidy) printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build" 2>/dev/null ;;
cppcheck) cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability --inline-suppr \
    --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches -I engine "${sources[@]}" ;;
luacheck) luacheck --quiet "${lua[@]}" ;;
shellcheck) shellcheck -x "${shell[@]}" ;;
*) echo "lint: no tool '$tool'" >&2 && exit 2 ;;
esac
