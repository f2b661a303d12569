/* A link that incusd left behind when it died while it started a box: a veth pair of which neither
 * end was plugged in anywhere yet. Nobody but its MAC, which is the box's, knows whose it is. */
#define _GNU_SOURCE
#include "job.h"
#include "made.h"
#include "ops.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DELETE_MS = 10000 };

/* Whether the link's MAC is this one, and it is plugged in nowhere. */
static bool is_orphan(const char *link, struct slice mac) {
    char path[64];
    size_t len = 0;
    snprintf(path, sizeof(path), "/sys/class/net/%.15s/address", link);
    char *text = read_file(path, 64, &len);
    bool same = text && len == mac.len + 1 && memcmp(text, mac.data, mac.len) == 0;
    free(text);
    snprintf(path, sizeof(path), "/sys/class/net/%.15s/master", link);
    return same && access(path, F_OK) < 0 && errno == ENOENT;
}

static void on_deleted(struct request *r, const struct exec_result *result, int error) {
    (void)result; /* whether it is gone, who asked looks */
    broker_changing(-1);
    if (error)
        reply_errno(r, error, "ip");
    else
        reply_ok(r);
}

/* orphan.delete PROJECT NAME LINK MAC */
void op_orphan_delete(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1) || !arg_name(r, 2))
        return;
    char *link = arg_text(r, 2);
    bool ours = made_instance(arg(r, 0), arg(r, 1)) &&
                (r->worker->kind == KIND_REVERT || box_may_touch(r->worker, arg(r, 0), arg(r, 1)));
    if (!ours || strncmp(link, "veth", 4) != 0 || strlen(link) >= IFNAMSIZ ||
        !is_orphan(link, arg(r, 3))) {
        reply_error(r, "EPERM", "orphan.delete: '%s' is no unplugged link of a box of this run",
                    link);
    } else {
        job_make_folder();
        broker_changing(1);
        job_run(r, (char *[]){"ip", "link", "delete", link, "type", "veth", NULL}, NULL, DELETE_MS,
                on_deleted);
        r->cancel = NULL;
    }
    free(link);
}
