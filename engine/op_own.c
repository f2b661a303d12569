/* Networks, ACLs and profiles of this run's own, for rehearsals: named and tagged after the run,
 * noted before they are asked for, and removed at its end. Anybody else's is refused by name. */
#include "json.h"
#include "made.h"
#include "op_incus.h"
#include "ops.h"

#include <stdlib.h>
#include <string.h>

enum { WRITE_MS = 60000, LINK_NAME = 15 };

/* The KIND of "own.KIND.VERB". */
static const char *kind_of(const struct request *r) {
    static const char *const kinds[] = {"network", "acl", "profile"};
    const char *rest = r->op->name + strlen("own.");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strncmp(rest, kinds[i], strlen(kinds[i])) == 0)
            return kinds[i];
    return "";
}

static void on_written(void *data, const struct incus_reply *reply) {
    broker_changing(-1);
    incus_reply(data, reply);
}

static void send_change(struct request *r, const char *method, const struct buffer *body,
                        const char *etag) {
    char *path = incus_path(r, r->op->path);
    if (!path)
        return;
    broker_changing(1);
    incus_send(&(struct incus_request){.method = method,
                                       .path = path,
                                       .body = body ? body->data : NULL,
                                       .body_len = body ? body->len : 0,
                                       .if_match = etag,
                                       .timeout_ms = WRITE_MS,
                                       .wait = true},
               on_written, r);
    free(path);
}

/* The body's members from the arguments from `first` on, with the run's tag. */
static bool add_body(struct request *r, struct buffer *body, unsigned first) {
    const struct slice tag[] = {
        {"config", 6}, {"", 0}, {"user.boxdrill", 13}, {run_id, strlen(run_id)}};
    if (!incus_body(r, body, first, r->op->body, tag))
        return false;
    buffer_add_text(body, "}");
    return true;
}

/* own.KIND.create PROJECT NAME BODY */
void op_own_create(struct request *r) {
    const char *kind = kind_of(r);
    bool network = strcmp(kind, "network") == 0;
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return;
    if (!box_name_is_ours(arg(r, 1)) || (network && arg(r, 1).len > LINK_NAME)) {
        reply_error(r, "EINVAL", "%s: the name must begin with bd-%s-%s", r->op->name, run_id,
                    network ? ", and be at most 15 long" : "");
        return;
    }
    if (made_has(kind, arg(r, 0), arg(r, 1))) {
        reply_error(r, "EEXIST", "%s: this run has made '%.*s' already", r->op->name,
                    (int)arg(r, 1).len, arg(r, 1).data);
        return;
    }
    struct buffer body = {0};
    buffer_add_text(&body, network ? "{\"type\":\"bridge\",\"name\":" : "{\"name\":");
    json_string(&body, arg(r, 1));
    buffer_add_text(&body, ",");
    if (add_body(r, &body, 2)) {
        int error = made_add(kind, arg(r, 0), arg(r, 1), r->worker->pid);
        if (error < 0)
            reply_errno(r, -error, "own: not made, since the journal cannot be written");
        else
            send_change(r, "POST", &body, NULL);
    }
    buffer_free(&body);
}

bool own_may_touch(const struct worker *w, const char *kind, struct slice project,
                   struct slice name) {
    return w->kind == KIND_PROBE ? made_by(kind, project, name, w->pid)
                                 : made_has(kind, project, name);
}

static bool ours(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return false;
    if (own_may_touch(r->worker, kind_of(r), arg(r, 0), arg(r, 1)))
        return true;
    reply_error(r, "EPERM", "%s: '%.*s' was not made by this run, and is left alone", r->op->name,
                (int)arg(r, 1).len, arg(r, 1).data);
    return false;
}

/* own.KIND.put PROJECT NAME ETAG BODY: the whole body, guarded by the ETag. */
void op_own_put(struct request *r) {
    if (!ours(r) || !incus_etag_ok(r, 2))
        return;
    struct buffer body = {0};
    buffer_add_text(&body, "{");
    char *etag = arg_text(r, 2);
    if (add_body(r, &body, 3))
        send_change(r, "PUT", &body, etag);
    free(etag);
    buffer_free(&body);
}

/* own.KIND.delete PROJECT NAME */
void op_own_delete(struct request *r) {
    if (!ours(r))
        return;
    broker_changing(1);
    incus_remove(r, kind_of(r), r->op->path, NULL);
}
