#!/bin/bash
# docs/requests.md is the dispatch table: the same operations, no more and no fewer, and every grant.
set -uo pipefail
# shellcheck source=tests/engine/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.." || exit 1

sed -n '/^static const struct op table/,/^};/s/^    {"\([a-z.]*\)", .*/\1/p' engine/dispatch.c | sort >"$DIR/code"
sed -n '/^## Operations/,$s/^| \(`[a-z.]*`\(, `[a-z.]*`\)*\) |.*/\1/p' docs/requests.md |
    tr -d '` ' | tr ',' '\n' | sort >"$DIR/doc"
sed -n '/^static const struct {$/,/^};/s/^    {"\([a-z.]*\)", .*/\1/p' engine/dispatch.c >"$DIR/grants"

check "the table was found" [ "$(wc -l <"$DIR/code")" -gt 40 ]
check "the page was found" [ "$(wc -l <"$DIR/doc")" -gt 40 ]
check "the same operations" diff "$DIR/code" "$DIR/doc"
check "the grants were found" [ "$(wc -l <"$DIR/grants")" -gt 8 ]
while read -r grant; do
    check "grant $grant is on the page" grep -qE "\| [^|]*\b$grant\b[^|]* \|\$|\`$grant\`" docs/requests.md
done <"$DIR/grants"
finish
