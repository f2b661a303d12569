/* What this run made: for revert.lua, which removes it, and for --keep-boxes. */
#include "made.h"
#include "ops.h"

static void add(void *r, const char *text) {
    reply_add_text(r, text);
}

void op_made_list(struct request *r) {
    reply_begin(r);
    made_list(add, r);
    reply_send(r);
}

/* made.keep: a script's word for the whole run; a probe has none. */
void op_made_keep(struct request *r) {
    if (r->worker->kind != KIND_SCRIPT) {
        reply_error(r, "EPERM", "made.keep: only the script that runs the probes decides that");
        return;
    }
    made_keep();
    reply_ok(r);
}
