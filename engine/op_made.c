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

/* made.gone KIND PROJECT NAME */
void op_made_gone(struct request *r) {
    if (made_gone(arg(r, 0), arg(r, 1), arg(r, 2)) < 0)
        reply_error(r, "ENOENT", "made.gone: this run made no such thing");
    else
        reply_ok(r);
}

void op_made_keep(struct request *r) {
    made_keep();
    reply_ok(r);
}
