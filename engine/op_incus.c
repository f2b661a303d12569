#define _GNU_SOURCE
#include "op_incus.h"

#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_MS = 10000, WRITE_MS = 60000, QUAD = 4 };

static void add_name(struct buffer *b, struct slice name) {
    buffer_add(b, name.data, name.len);
}

char *incus_path(struct request *r, const char *path) {
    bool all = slice_is(arg(r, 0), "*") && strstr(path, "%a");
    if (r->argc >= 1 && !all && !arg_name(r, 0))
        return NULL;
    if (strstr(path, "%n") && !arg_name(r, 1))
        return NULL;
    struct buffer b = {0};
    for (const char *at = path; *at; at++) {
        if (*at != '%') {
            buffer_add(&b, at, 1);
            continue;
        }
        at++;
        if (*at == 'n')
            add_name(&b, arg(r, 1));
        else if (all)
            buffer_add_text(&b, "all-projects=true");
        else if (*at == 'a' || *at == 'p') {
            buffer_add_text(&b, "project=");
            add_name(&b, arg(r, 0));
        }
    }
    buffer_add(&b, "", 1);
    return b.data;
}

bool incus_failed(struct request *r, const struct incus_reply *reply) {
    if (reply->code == CURLE_OK)
        return false;
    if (reply->code == CURLE_OPERATION_TIMEDOUT)
        reply_error(r, "ETIMEDOUT", "%s: incusd did not answer in time", r->op->name);
    else if (reply->error)
        reply_error(r, strerrorname_np(reply->error), "%s: cannot reach incusd at %s: %s",
                    r->op->name, incus_socket(), strerror(reply->error));
    else
        reply_error(r, "EIO", "%s: cannot reach incusd at %s: %s", r->op->name, incus_socket(),
                    curl_easy_strerror(reply->code));
    return true;
}

void incus_reply(struct request *r, const struct incus_reply *reply) {
    if (incus_failed(r, reply))
        return;
    if (reply->truncated) {
        reply_error(r, "EMSGSIZE", "%s: incusd's answer is larger than a frame may be",
                    r->op->name);
        return;
    }
    reply_begin(r);
    reply_add_number(r, reply->status);
    reply_add_text(r, reply->etag);
    reply_add(r, reply->body.data, reply->body.len);
    reply_send(r);
}

static void on_reply(void *data, const struct incus_reply *reply) {
    incus_reply(data, reply);
}

void incus_read(struct request *r) {
    char *path = incus_path(r, r->op->path);
    if (!path)
        return;
    incus_send(&(struct incus_request){.method = "GET", .path = path, .timeout_ms = READ_MS},
               on_reply, r);
    free(path);
}

/* -- bodies ---------------------------------------------------------------------------------- */

/* raw.dnsmasq goes into dnsmasq's configuration, where a line can run a program as root
 * (dhcp-script=): only these lines are let through. */
static bool safe_dnsmasq(struct slice value) {
    char *text = slice_dup(value), *save = NULL;
    bool ok = text != NULL;
    for (char *line = ok ? strtok_r(text, "\n", &save) : NULL; line && ok;
         line = strtok_r(NULL, "\n", &save)) {
        const char *rest = strncmp(line, "server=", 7) == 0 ? line + 7 : NULL;
        ok = strcmp(line, "no-resolv") == 0 || strcmp(line, "dhcp-ignore-names") == 0 ||
             (rest && *rest && rest[strspn(rest, "0123456789abcdefABCDEF.:/#")] == 0);
    }
    free(text);
    return ok;
}

static bool starts(struct slice s, const char *prefix) {
    return s.len >= strlen(prefix) && memcmp(s.data, prefix, strlen(prefix)) == 0;
}

/* What no body of ours may hold: a way out of the container, a path of the host, a program. */
static const char *forbidden_key(struct slice section, struct slice key, struct slice value) {
    static const char *const prefixes[] = {
        "raw.",   "security.privileged", "security.nesting", "security.syscalls", "bridge.external",
        "linux.", "cloud-init.",         "environment.",     "boot.host_"};
    if (slice_is(section, "config") && slice_is(key, "raw.dnsmasq"))
        return safe_dnsmasq(value)
                   ? NULL
                   : "raw.dnsmasq may hold no-resolv, dhcp-ignore-names and server= lines only";
    for (size_t i = 0; slice_is(section, "config") && i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (starts(key, prefixes[i]))
            return "that key is not set by boxdrill";
    if (!slice_is(section, "devices"))
        return NULL;
    if (slice_is(key, "source"))
        return "a device with a source is not made by boxdrill";
    if (slice_is(key, "type") && !slice_is(value, "nic") && !slice_is(value, "disk"))
        return "devices are NICs and the root disk only";
    return slice_is(key, "path") && !slice_is(value, "/") ? "the only disk is the root disk" : NULL;
}

/* A comma list holds the word. */
static bool allows(const char *list, struct slice word) {
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        if (n == word.len && memcmp(at, word.data, n) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static bool body_allowed(struct request *r, struct quads q) {
    for (unsigned i = 0; i < q.count; i += QUAD) {
        const struct slice *s = q.strings + i;
        const char *why = allows(r->op->body, s[0]) ? forbidden_key(s[0], s[2], s[3])
                                                    : "that section is not allowed here";
        if (why) {
            reply_error(r, "EINVAL", "%s: %.*s %.*s: %s", r->op->name, (int)s[0].len, s[0].data,
                        (int)s[2].len, s[2].data, why);
            return false;
        }
    }
    return true;
}

bool incus_body(struct request *r, struct buffer *b, unsigned first, const char *always,
                const struct slice *tag) {
    struct quads q = {r->argv + first, r->argc > first ? r->argc - first : 0};
    if (q.count % QUAD) {
        reply_error(r, "EINVAL", "usage: %s %s", r->op->name, r->op->usage);
        return false;
    }
    if (!body_allowed(r, q))
        return false;
    struct slice *all = calloc(q.count + QUAD, sizeof(*all));
    if (!all)
        abort();
    memcpy(all, q.strings, q.count * sizeof(*all));
    if (tag)
        memcpy(all + q.count, tag, QUAD * sizeof(*all));
    json_body(b, (struct quads){all, q.count + (tag ? QUAD : 0)}, always);
    free(all);
    return true;
}

static void on_written(void *data, const struct incus_reply *reply) {
    broker_changing(-1);
    incus_reply(data, reply);
}

/* Rows "POST /1.0/networks…" (the body gets the name) and "PUT /1.0/networks/%n…" (the whole
 * body, guarded by the ETag): argument 2 is the ETag, the body follows. */
void incus_write(struct request *r) {
    bool create = starts((struct slice){r->op->path, strlen(r->op->path)}, "POST ");
    if (create && !arg_name(r, 1))
        return;
    struct buffer body = {0};
    buffer_add_text(&body, "{");
    if (create) {
        buffer_add_text(&body, "\"name\":");
        json_string(&body, arg(r, 1));
        buffer_add_text(&body, ",");
    }
    const char *rest = strchr(r->op->path, ' ') + 1;
    char *etag = arg_text(r, 2);
    char *path = incus_path(r, rest);
    if (path && incus_body(r, &body, 3, r->op->body, NULL)) {
        buffer_add_text(&body, "}");
        broker_changing(1);
        incus_send(&(struct incus_request){.method = create ? "POST" : "PUT",
                                           .path = path,
                                           .body = body.data,
                                           .body_len = body.len,
                                           .if_match = etag,
                                           .timeout_ms = WRITE_MS,
                                           .wait = true},
                   on_written, r);
    }
    free(etag);
    free(path);
    buffer_free(&body);
}
