/* What this run made, and what an earlier one left: for revert.lua, which removes it, for
 * `boxdrill journal`, and for --keep-boxes. */
#include "journal.h"
#include "made.h"
#include "ops.h"
#include "output.h"

#include <errno.h>
#include <stdio.h>

static void add(void *r, const char *text) {
    reply_add_text(r, text);
}

/* made.list: kind, project, name, run, uuid, time of each, newest first. */
void op_made_list(struct request *r) {
    reply_begin(r);
    made_list(add, r);
    reply_send(r);
}

/* made.uuid PROJECT NAME UUID: from here on the instance is known by more than its name. */
void op_made_uuid(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1) || !arg_name(r, 2))
        return;
    int error = arg(r, 2).len == 36 ? made_uuid(arg(r, 0), arg(r, 1), arg(r, 2)) : -EINVAL;
    if (error < 0)
        reply_errno(r, -error, "made.uuid");
    else
        reply_ok(r);
}

/* made.foreign KIND PROJECT NAME: what has that name now is somebody else's, and is left alone; the
 * operator is told. */
void op_made_foreign(struct request *r) {
    output_message("%.*s %.*s (project %.*s) is not what the run made, and is left alone",
                   (int)arg(r, 0).len, arg(r, 0).data, (int)arg(r, 2).len, arg(r, 2).data,
                   (int)arg(r, 1).len, arg(r, 1).data);
    if (made_gone(arg(r, 0), arg(r, 1), arg(r, 2)) < 0)
        reply_error(r, "ENOENT", "made.foreign: this run made no such thing");
    else
        reply_ok(r);
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

static const char *state_name(int state) {
    return state == JOURNAL_WHOLE     ? "whole"
           : state == JOURNAL_CUT     ? "cut"
           : state == JOURNAL_DAMAGED ? "damaged"
                                      : "version";
}

/* journal.show: the file's state, then state, run, kind, project, name, time of each entry. */
void op_journal_show(struct request *r) {
    reply_begin(r);
    reply_add_text(r, JOURNAL_FILE);
    size_t at = r->reply.len;
    reply_add_text(r, "whole  ");
    int state = made_show(add, r);
    if (state < 0) {
        reply_errno(r, -state, JOURNAL_FILE);
        return;
    }
    /* The state is known only now: the same seven bytes, padded. */
    char padded[8];
    snprintf(padded, sizeof(padded), "%-7s", state_name(state));
    for (size_t i = 0; i < 7; i++)
        r->reply.data[at + 4 + i] = padded[i];
    reply_send(r);
}

/* Takes over what an earlier run left; false, and answered, where that cannot be. */
static bool adopt(struct request *r) {
    pid_t holder = 0;
    int found = made_adopt(&holder);
    if (found == MADE_LOCKED)
        reply_error(r, "EBUSY", "process %d is changing this host: wait for it", (int)holder);
    else if (found == MADE_UNREADABLE)
        reply_error(r, "EPROTO",
                    "%s cannot be read whole: what could be read is removed; look for what else is "
                    "named bd-..., then delete the file",
                    JOURNAL_FILE);
    else if (found < 0)
        reply_errno(r, -found, JOURNAL_FILE);
    else
        return true;
    return false;
}

/* journal.adopt: what an earlier run left is removed at the end of this one. */
void op_journal_adopt(struct request *r) {
    if (adopt(r))
        reply_ok(r);
}

/* journal.revert: it is removed now, by the same code. */
void op_journal_revert(struct request *r) {
    if (adopt(r))
        broker_revert(r);
}
