/* Instances of this run: made, started, executed in, deleted. Every one of these refuses an
 * instance that the run did not make, whatever the grants. */
#define _GNU_SOURCE
#include "json.h"
#include "made.h"
#include "op_incus.h"
#include "ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CREATE_MS = 600000, /* the first one may download the image */
    STATE_MS = 120000,
    FILE_MS = 30000,
    PUSH_AGAIN_MS = 20,    /* another worker's push is under way */
    EXEC_SLACK_MS = 10000, /* beyond the guest's own deadline, before we give up on it */
    GUEST_MAX = 4 << 20,
};

/* Where the program lies in a box: /var/tmp is on disk and never mounted noexec by systemd. */
static void guest_path(char out[64]) {
    snprintf(out, 64, "/var/tmp/boxdrill-%s", run_id);
}

bool box_may_touch(const struct worker *w, struct slice project, struct slice name) {
    if (!w || w->kind != KIND_PROBE || made_by("instance", project, name, w->pid))
        return true;
    if ((w->grants & GRANT_BOX_CLI) && made_by("instance", project, name, MADE_BY_CLI))
        return true;
    for (unsigned i = 0; i < w->nboxes; i++)
        if (slice_is(name, w->boxes[i]))
            return true;
    return false;
}

static bool ours(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return false;
    if (!made_instance(arg(r, 0), arg(r, 1)) && box_name_is_ours(arg(r, 1))) {
        /* A name of this run under which nothing is: never made, or seen to be gone. */
        reply_error(r, "ENOENT", "%s: instance '%.*s' is not there", r->op->name,
                    (int)arg(r, 1).len, arg(r, 1).data);
        return false;
    }
    if (!box_may_touch(r->worker, arg(r, 0), arg(r, 1))) {
        reply_error(r, "EPERM", "%s: instance '%.*s' is not one of this probe's", r->op->name,
                    (int)arg(r, 1).len, arg(r, 1).data);
        return false;
    }
    if (made_instance(arg(r, 0), arg(r, 1)))
        return true;
    reply_error(r, "EPERM", "%s: instance '%.*s' was not made by this run, and is left alone",
                r->op->name, (int)arg(r, 1).len, arg(r, 1).data);
    return false;
}

bool box_name_is_ours(struct slice name) {
    char prefix[16];
    int n = snprintf(prefix, sizeof(prefix), "bd-%s-", run_id);
    return name.len > (size_t)n && memcmp(name.data, prefix, (size_t)n) == 0;
}

static void on_changed(void *data, const struct incus_reply *reply) {
    broker_changing(-1);
    incus_reply(data, reply);
}

/* Sends a change of an instance and answers with the finished operation. */
static void change(struct request *r, const char *method, const char *path, const char *body,
                   int64_t ms) {
    char *full = incus_path(r, path);
    if (!full)
        return;
    broker_changing(1);
    incus_send(&(struct incus_request){.method = method,
                                       .path = full,
                                       .body = body,
                                       .body_len = body ? strlen(body) : 0,
                                       .timeout_ms = ms,
                                       .wait = true},
               on_changed, r);
    free(full);
}

static void add_source(struct buffer *b, struct slice server, struct slice alias) {
    buffer_add_text(b, ",\"source\":{\"type\":\"image\"");
    if (server.len) {
        buffer_add_text(b, ",\"mode\":\"pull\",\"protocol\":\"simplestreams\",\"server\":");
        json_string(b, server);
    }
    buffer_add_text(b, ",\"alias\":");
    json_string(b, alias);
    buffer_add_text(b, "},");
}

/* instance.create PROJECT NAME TYPE SERVER ALIAS BODY. The run's tag is written by us. */
void op_instance_create(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return;
    if (!box_name_is_ours(arg(r, 1))) {
        reply_error(r, "EINVAL", "instance.create: the name must begin with bd-%s-", run_id);
        return;
    }
    if (!slice_is(arg(r, 2), "container") && !slice_is(arg(r, 2), "virtual-machine")) {
        reply_error(r, "EINVAL", "instance.create: the type is container or virtual-machine");
        return;
    }
    struct buffer body = {0};
    buffer_add_text(&body, "{\"name\":");
    json_string(&body, arg(r, 1));
    buffer_add_text(&body, ",\"type\":");
    json_string(&body, arg(r, 2));
    add_source(&body, arg(r, 3), arg(r, 4));
    const struct slice tag[] = {
        {"config", 6}, {"", 0}, {"user.boxdrill", 13}, {run_id, strlen(run_id)}};
    if (incus_body(r, &body, 5, "config", tag)) {
        buffer_add(&body, "}", 2);
        int error = made_add("instance", arg(r, 0), arg(r, 1), r->worker->pid);
        if (error < 0)
            reply_errno(r, -error,
                        "instance.create: not made, since the journal cannot be written");
        else
            change(r, "POST", "/1.0/instances?%p", body.data, CREATE_MS);
    }
    buffer_free(&body);
}

static const char stop_body[] = "{\"action\":\"stop\",\"timeout\":30,\"force\":true}";

void op_instance_start(struct request *r) {
    if (ours(r))
        change(r, "PUT", "/1.0/instances/%n/state?%p", "{\"action\":\"start\",\"timeout\":60}",
               STATE_MS);
}

void op_instance_stop(struct request *r) {
    if (ours(r))
        change(r, "PUT", "/1.0/instances/%n/state?%p", stop_body, STATE_MS);
}

/* instance.device PROJECT NAME DEVICE KEY VALUE...: the box's own NIC, in place of its profile's.
 */
void op_instance_device(struct request *r) {
    if (!ours(r) || !arg_name(r, 2))
        return;
    struct buffer body = {0};
    buffer_add_text(&body, "{\"devices\":{");
    json_string(&body, arg(r, 2));
    buffer_add_text(&body, ":{");
    const char *why = (r->argc - 3) % 2 ? "a key without a value" : NULL;
    for (unsigned i = 3; i + 1 < r->argc && !why; i += 2) {
        why = own_nic_refusal(r, arg(r, i), arg(r, i + 1));
        buffer_add_text(&body, i > 3 ? "," : "");
        json_string(&body, arg(r, i));
        buffer_add_text(&body, ":");
        json_string(&body, arg(r, i + 1));
    }
    buffer_add(&body, "}}}", 4);
    if (why)
        reply_error(r, "EINVAL", "instance.device: %s", why);
    else
        change(r, "PATCH", "/1.0/instances/%n?%p", body.data, STATE_MS);
    buffer_free(&body);
}

/* The boxes that have it, or are getting it. It is written once: while one worker's exec runs it,
 * another worker's push would find it busy, or let a third run half of it. */
struct pushed {
    struct pushed *next;
    char *project, *name;
    bool done;
};
static struct pushed *pushed_list;

static struct pushed **find_pushed(const struct request *r) {
    struct pushed **p = &pushed_list;
    while (*p && !(slice_is(arg(r, 0), (*p)->project) && slice_is(arg(r, 1), (*p)->name)))
        p = &(*p)->next;
    return p;
}

static void forget_pushed(const struct request *r) {
    struct pushed **p = find_pushed(r), *gone = *p;
    if (!gone)
        return;
    *p = gone->next;
    free(gone->project);
    free(gone->name);
    free(gone);
}

static void on_stopped(void *data, const struct incus_reply *reply) {
    struct request *r = data;
    if (reply->code == CURLE_OK) { /* "already stopped" is an error of Incus's, and no matter */
        incus_remove(r, "instance", "/1.0/instances/%n?%p", forget_pushed);
        return;
    }
    broker_changing(-1);
    incus_reply(r, reply);
}

/* instance.delete PROJECT NAME: stops it with force, then deletes it. */
void op_instance_delete(struct request *r) {
    if (!ours(r))
        return;
    char *path = incus_path(r, "/1.0/instances/%n/state?%p");
    broker_changing(1);
    incus_send(&(struct incus_request){.method = "PUT",
                                       .path = path,
                                       .body = stop_body,
                                       .body_len = sizeof(stop_body) - 1,
                                       .timeout_ms = STATE_MS,
                                       .wait = true},
               on_stopped, r);
    free(path);
}

/* -- the program in the box -------------------------------------------------------------------- */

static void add_pushed(const struct request *r) {
    struct pushed *p = malloc(sizeof(*p));
    if (!p)
        abort();
    *p = (struct pushed){pushed_list, arg_text(r, 0), arg_text(r, 1), false};
    pushed_list = p;
}

static void reply_pushed(struct request *r, long status, const char *body, size_t len) {
    char path[64];
    guest_path(path);
    reply_begin(r);
    reply_add_number(r, status);
    reply_add_text(r, path);
    reply_add(r, body, len);
    reply_send(r);
}

static void on_pushed(void *data, const struct incus_reply *reply) {
    struct request *r = data;
    struct pushed *p = *find_pushed(r);
    if (p && reply->code == CURLE_OK && reply->status == 200)
        p->done = true;
    else
        forget_pushed(r);
    if (!incus_failed(r, reply))
        reply_pushed(r, reply->status, reply->body.data, reply->body.len);
}

static char *files_path(struct request *r) {
    char guest[64], path[128];
    guest_path(guest);
    snprintf(path, sizeof(path), "/1.0/instances/%%n/files?%%p&path=%s", guest);
    return incus_path(r, path);
}

static void push_again(void *data) {
    op_instance_push(data);
}

/* The content type matters: with another one Incus 6.0 makes an empty file and says 200. */
static void push_program(struct request *r, const char *program, size_t len) {
    static const char *const headers[] = {"Content-Type: application/octet-stream",
                                          "X-Incus-type: file",
                                          "X-Incus-uid: 0",
                                          "X-Incus-gid: 0",
                                          "X-Incus-mode: 0700",
                                          "X-Incus-write: overwrite",
                                          NULL};
    char *path = files_path(r);
    incus_send(&(struct incus_request){.method = "POST",
                                       .path = path,
                                       .body = program,
                                       .body_len = len,
                                       .headers = headers,
                                       .timeout_ms = FILE_MS},
               on_pushed, r);
    free(path);
}

static void on_cleared(void *data, const struct incus_reply *reply) {
    struct request *r = data;
    size_t len = 0;
    char *program = read_file(options.guest, GUEST_MAX, &len);
    (void)reply; /* mostly there was none */
    if (program) {
        push_program(r, program, len);
    } else {
        forget_pushed(r);
        reply_errno(r, errno, options.guest);
    }
    free(program);
}

/* instance.push PROJECT NAME. First what is there is taken away: a clone has its source's, perhaps
 * half of it, and the mode that is sent holds for a new file only. */
void op_instance_push(struct request *r) {
    if (!ours(r))
        return;
    const struct pushed *there = *find_pushed(r);
    if (there && there->done) {
        reply_pushed(r, 200, "{}", 2);
        return;
    }
    if (there) {
        timer_start(PUSH_AGAIN_MS, push_again, r);
        return;
    }
    char *path = files_path(r);
    add_pushed(r);
    incus_send(&(struct incus_request){.method = "DELETE", .path = path, .timeout_ms = FILE_MS},
               on_cleared, r);
    free(path);
}

void op_instance_unpush(struct request *r) {
    if (!ours(r))
        return;
    forget_pushed(r);
    char *path = files_path(r);
    incus_send(&(struct incus_request){.method = "DELETE", .path = path, .timeout_ms = FILE_MS},
               incus_reply_to, r);
    free(path);
}

/* -- exec in a box ------------------------------------------------------------------------------
 */

/* Incus records the output in two files named after the operation, without a cap and for ever:
 * they are read up to our cap, then deleted. */
struct box_exec {
    struct request *r;
    int64_t started_ms;
    size_t cap;
    char operation[40];
    struct buffer wait, out[2];
    bool truncated;
    bool lost; /* an output file could not be read */
    int left;  /* transfers under way */
};

static void exec_free(struct box_exec *e) {
    buffer_free(&e->wait);
    buffer_free(&e->out[0]);
    buffer_free(&e->out[1]);
    free(e);
}

static char *output_path(const struct box_exec *e, int stream) {
    char path[160];
    snprintf(path, sizeof(path), "/1.0/instances/%%n/logs/exec-output/exec_%s.%s?%%p", e->operation,
             stream ? "stderr" : "stdout");
    return incus_path(e->r, path);
}

static void exec_reply(struct box_exec *e) {
    struct request *r = e->r;
    if (e->lost) {
        reply_error(r, "ENODATA", "instance.exec: its recorded output was lost");
        exec_free(e);
        return;
    }
    reply_begin(r);
    reply_add(r, e->wait.data, e->wait.len);
    reply_add(r, e->out[0].data, e->out[0].len);
    reply_add(r, e->out[1].data, e->out[1].len);
    reply_add_text(r, e->truncated ? "1" : "0");
    reply_add_number(r, now_ms() - e->started_ms);
    reply_send(r);
    exec_free(e);
}

static void on_deleted(void *data, const struct incus_reply *reply) {
    (void)data;
    (void)reply; /* the box goes with what is left in it */
    broker_changing(-1);
}

/* Nobody waits for this but the end of the run. */
static void delete_outputs(const struct box_exec *e) {
    for (int stream = 0; stream < 2; stream++) {
        char *path = output_path(e, stream);
        broker_changing(1);
        incus_send(&(struct incus_request){.method = "DELETE", .path = path, .timeout_ms = FILE_MS},
                   on_deleted, NULL);
        free(path);
    }
}

static void took_output(struct box_exec *e, int stream, const struct incus_reply *reply) {
    if (reply->code == CURLE_OK && reply->status == 200)
        buffer_add(&e->out[stream], reply->body.data, reply->body.len);
    else
        e->lost = true;
    e->truncated |= reply->truncated;
    if (--e->left == 0) {
        delete_outputs(e);
        exec_reply(e);
    }
}

static void on_stdout(void *data, const struct incus_reply *reply) {
    took_output(data, 0, reply);
}

static void on_stderr(void *data, const struct incus_reply *reply) {
    took_output(data, 1, reply);
}

static void on_exec(void *data, const struct incus_reply *reply) {
    struct box_exec *e = data;
    if (reply->code != CURLE_OK || !reply->operation[0]) {
        if (reply->code == CURLE_OK) { /* refused: the body has Incus's own words */
            buffer_add(&e->wait, reply->body.data, reply->body.len);
            exec_reply(e);
        } else {
            incus_failed(e->r, reply);
            exec_free(e);
        }
        return;
    }
    snprintf(e->operation, sizeof(e->operation), "%s", reply->operation);
    buffer_add(&e->wait, reply->body.data, reply->body.len);
    e->left = 2;
    for (int stream = 0; stream < 2; stream++) {
        char *path = output_path(e, stream);
        incus_send(
            &(struct incus_request){
                .method = "GET", .path = path, .timeout_ms = FILE_MS, .cap = e->cap},
            stream ? on_stderr : on_stdout, e);
        free(path);
    }
}

static bool add_command(struct request *r, struct buffer *b, const struct slice *argv,
                        unsigned argc) {
    buffer_add_text(b, "{\"command\":[");
    for (unsigned i = 0; i < argc; i++) {
        struct slice s = argv[i];
        if (!json_is_utf8(s) || memchr(s.data, 0, s.len)) {
            reply_error(r, "EINVAL", "%s: word %u of the command is not UTF-8 text", r->op->name,
                        i + 1);
            return false;
        }
        if (i)
            buffer_add_text(b, ",");
        json_string(b, s);
    }
    buffer_add_text(b, "],\"record-output\":true,\"wait-for-websocket\":false,"
                       "\"interactive\":false,\"environment\":{\"LC_ALL\":\"C\","
                       "\"HOME\":\"/root\"}}");
    return true;
}

void box_exec(struct request *r, const struct slice *argv, unsigned argc, int64_t ms, size_t cap) {
    struct buffer body = {0};
    if (add_command(r, &body, argv, argc)) {
        struct box_exec *e = calloc(1, sizeof(*e));
        if (!e)
            abort();
        e->r = r;
        e->started_ms = now_ms();
        e->cap = cap ? cap : 1;
        char *path = incus_path(r, "/1.0/instances/%n/exec?%p");
        incus_send(&(struct incus_request){.method = "POST",
                                           .path = path,
                                           .body = body.data,
                                           .body_len = body.len,
                                           .timeout_ms = ms + EXEC_SLACK_MS,
                                           .wait = true},
                   on_exec, e);
        free(path);
    }
    buffer_free(&body);
}

/* instance.exec PROJECT NAME MS CAP ARG...: MS is the guest's own deadline; we wait a little
 * longer. There is no cancelling: Incus answers 400 to a DELETE of an exec operation. */
void op_instance_exec(struct request *r) {
    int64_t ms = 0, cap = 0;
    if (ours(r) && arg_number(r, 2, 1, 600000, &ms) && arg_number(r, 3, 0, 2 << 20, &cap))
        box_exec(r, r->argv + 4, r->argc - 4, ms, (size_t)cap);
}
