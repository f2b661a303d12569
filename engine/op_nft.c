/* nft queries: the kernel's ruleset as nft's own JSON. Read-only, fixed arguments. docs/nft.md. */
#include "job.h"
#include "ops.h"

enum { READ_MS = 10000 };

void op_nft_list(struct request *r) {
    job_read(r, (char *[]){"nft", "-j", "list", "ruleset", NULL}, NULL, READ_MS);
}

static void on_checked(struct request *r, const struct exec_result *result, int error) {
    if (!result || result->state != EXEC_EXIT) {
        job_reply_output(r, result, error);
        return;
    }
    reply_begin(r);
    reply_add_text(r, result->value == 0 ? "1" : "0");
    reply_send(r);
}

/* nft.supports ibrname: whether the bridge family knows `meta ibrname` (NFT_BRIDGE_META), asked of
 * the kernel with --check, which applies nothing. */
void op_nft_supports(struct request *r) {
    static const char rules[] = "table bridge boxdrill-check {\n"
                                "  chain c { type filter hook forward priority 0; meta ibrname "
                                "\"lo\" drop; }\n}\n";
    if (slice_is(arg(r, 0), "ibrname"))
        job_run(r, (char *[]){"nft", "--check", "-f", "-", NULL}, rules, READ_MS, on_checked);
    else
        reply_error(r, "EINVAL", "nft.supports: knows only 'ibrname'");
}
