#define _GNU_SOURCE
#include "op_incus.h"

#include "json.h"
#include "made.h"
#include "ops.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_MS = 10000, WRITE_MS = 60000, DELETE_MS = 120000, QUAD = 4 };

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

void incus_reply_to(void *request, const struct incus_reply *reply) {
    incus_reply(request, reply);
}

void incus_written(void *request, const struct incus_reply *reply) {
    broker_changing(-1);
    incus_reply(request, reply);
}

void incus_read(struct request *r) {
    char *path = incus_path(r, r->op->path);
    if (!path)
        return;
    incus_send(&(struct incus_request){.method = "GET", .path = path, .timeout_ms = READ_MS},
               incus_reply_to, r);
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

static bool starts(struct slice s, const char *prefix, size_t n) {
    return s.len >= n && memcmp(s.data, prefix, n) == 0;
}

/* The keys that boxdrill writes, by section: whole, or up to a `*`. Nothing that leads out of a box
 * (privileges, nesting, a path or a NIC of the host, a program) is among them. */
static const char *const instance_keys[] = {"user.*", "limits.memory", NULL};
static const char *const network_keys[] = {"ipv4.*", "ipv6.*",      "dns.*", "security.acls*",
                                           "user.*", "raw.dnsmasq", NULL};
static const char *const nic_keys[] = {"type",   "name",   "network",  "security.*",
                                       "ipv4.*", "ipv6.*", "limits.*", NULL};
static const char *const root_keys[] = {"type", "path", "pool", "size", "size.*", "limits.*", NULL};
static const char *const rule_keys[] = {
    "action",    "source",    "destination", "protocol",    "source_port", "destination_port",
    "icmp_type", "icmp_code", "state",       "description", NULL};

bool incus_key_listed(const char *const *keys, struct slice key) {
    for (; *keys; keys++) {
        size_t n = strlen(*keys);
        bool prefix = (*keys)[n - 1] == '*';
        if (prefix ? starts(key, *keys, n - 1) : slice_is(key, *keys))
            return true;
    }
    return false;
}

/* Whether a device's type, which must be among its keys, is this one. */
static bool device_is(struct quads q, struct slice name, const char *type) {
    for (unsigned i = 0; i < q.count; i += QUAD)
        if (slice_is(q.strings[i], "devices") && slice_is(q.strings[i + 2], "type") &&
            q.strings[i + 1].len == name.len &&
            memcmp(q.strings[i + 1].data, name.data, name.len) == 0)
            return slice_is(q.strings[i + 3], type);
    return false;
}

/* Why a quadruple of a device may not be sent, or NULL. */
static const char *device_refusal(struct quads q, const struct slice *s) {
    if (device_is(q, s[1], "nic"))
        return incus_key_listed(nic_keys, s[2]) ? NULL
                                                : "boxdrill does not write that key of a NIC";
    if (!device_is(q, s[1], "disk"))
        return "a device is a NIC or the root disk, and says so in its type";
    if (slice_is(s[2], "path") && !slice_is(s[3], "/"))
        return "the only disk is the root disk";
    return incus_key_listed(root_keys, s[2]) ? NULL : "boxdrill does not write that key of a disk";
}

/* NULL: a network of the run's own, whose keys op_own.c decides on. */
static const char *const *config_keys(const char *op) {
    if (strncmp(op, "own.network.", 12) == 0)
        return NULL;
    return strncmp(op, "network.", 8) == 0 ? network_keys : instance_keys;
}

/* Why a quadruple may not be sent, or NULL. */
static const char *refusal(const struct op *op, struct quads q, const struct slice *s) {
    const char *const *keys = config_keys(op->name);
    if (slice_is(s[0], "devices"))
        return device_refusal(q, s);
    if (slice_is(s[0], "profiles"))
        return NULL;
    bool ok = slice_is(s[0], "top")      ? slice_is(s[2], "description")
              : slice_is(s[0], "config") ? !keys || incus_key_listed(keys, s[2])
                                         : incus_key_listed(rule_keys, s[2]);
    if (ok && slice_is(s[2], "raw.dnsmasq") && !safe_dnsmasq(s[3]))
        return "only no-resolv, dhcp-ignore-names and server= lines";
    return ok ? NULL : "boxdrill does not write that key";
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

static bool has_control(struct slice s) {
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.data[i] < 0x20 || s.data[i] == 0x7f)
            return true;
    return false;
}

static bool same(struct slice a, struct slice b) {
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

/* A key that is there twice is checked by its first and read by its last. */
static bool is_twice(struct quads q, const struct slice *s) {
    for (const struct slice *o = q.strings; o < s; o += QUAD)
        if (same(o[0], s[0]) && same(o[1], s[1]) && same(o[2], s[2]))
            return true;
    return false;
}

/* Why any quadruple may not be sent, whatever its section; or NULL. */
static const char *malformed(struct quads q, const struct slice *s) {
    if (has_control(s[1]) || has_control(s[2]) ||
        (has_control(s[3]) && !slice_is(s[2], "raw.dnsmasq"))) /* its lines are looked at */
        return "it has a control character";
    if (slice_is(s[2], "user.boxdrill"))
        return "that key is the broker's own";
    return is_twice(q, s) ? "it is there twice" : NULL;
}

/* Why a quadruple may not be sent to what is the run's own, or NULL. */
static const char *own_refusal(const struct request *r, struct quads q, const struct slice *s) {
    if (slice_is(s[0], "devices") && device_is(q, s[1], "nic"))
        return own_nic_refusal(r, s[2], s[3]);
    return slice_is(s[0], "config") && strncmp(r->op->name, "own.network.", 12) == 0
               ? own_network_refusal(r, s[2], s[3])
               : NULL;
}

static bool body_allowed(struct request *r, struct quads q) {
    for (unsigned i = 0; i < q.count; i += QUAD) {
        const struct slice *s = q.strings + i;
        const char *why =
            allows(r->op->body, s[0]) ? malformed(q, s) : "that section is not allowed here";
        if (!why)
            why = refusal(r->op, q, s);
        if (!why && strncmp(r->op->name, "own.", 4) == 0)
            why = own_refusal(r, q, s);
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

bool incus_etag_ok(struct request *r, unsigned i) {
    struct slice s = arg(r, i);
    bool ok = s.len <= 66;
    for (size_t k = 0; ok && k < s.len; k++)
        ok = isxdigit((unsigned char)s.data[k]) || (s.data[k] == '"' && (k == 0 || k == s.len - 1));
    if (!ok)
        reply_error(r, "EINVAL", "%s: argument %u is not an ETag of Incus's", r->op->name, i + 1);
    return ok;
}

/* Rows "POST /1.0/networks…" (the body gets the name) and "PUT /1.0/networks/%n…" (the whole
 * body, guarded by the ETag): argument 2 is the ETag, the body follows. */
void incus_write(struct request *r) {
    bool create = strncmp(r->op->path, "POST ", 5) == 0;
    if ((create && !arg_name(r, 1)) || !incus_etag_ok(r, 2))
        return;
    struct buffer body = {0};
    buffer_add_text(&body, "{");
    if (create) {
        buffer_add_text(&body, "\"name\":");
        json_string(&body, arg(r, 1));
        buffer_add_text(&body, ",");
    }
    const char *rest = strchr(r->op->path, ' ') + 1;
    char method[8];
    snprintf(method, sizeof(method), "%.*s", (int)(rest - r->op->path - 1), r->op->path);
    char *etag = arg_text(r, 2);
    char *path = incus_path(r, rest);
    if (path && incus_body(r, &body, 3, r->op->body, NULL)) {
        buffer_add_text(&body, "}");
        broker_changing(1);
        incus_send(&(struct incus_request){.method = method,
                                           .path = path,
                                           .body = body.data,
                                           .body_len = body.len,
                                           .if_match = etag,
                                           .timeout_ms = WRITE_MS,
                                           .wait = true},
                   incus_written, r);
    }
    free(etag);
    free(path);
    buffer_free(&body);
}

/* -- deletions --------------------------------------------------------------------------------- */

struct deletion {
    struct request *r;
    const char *kind, *path;
    void (*gone)(const struct request *);
    long status; /* what the DELETE came to */
    struct buffer body;
};

static void on_looked(void *data, const struct incus_reply *reply) {
    struct deletion *d = data;
    struct request *r = d->r;
    broker_changing(-1);
    if (reply->code == CURLE_OK && reply->status == 404) {
        made_gone((struct slice){d->kind, strlen(d->kind)}, arg(r, 0), arg(r, 1));
        if (d->gone)
            d->gone(r);
    }
    if (!incus_failed(r, reply)) {
        reply_begin(r);
        reply_add_number(r, d->status);
        reply_add_text(r, "");
        reply_add(r, d->body.data ? d->body.data : "", d->body.len);
        reply_send(r);
    }
    buffer_free(&d->body);
    free(d);
}

static void on_deleted(void *data, const struct incus_reply *reply) {
    struct deletion *d = data;
    if (reply->code != CURLE_OK) {
        on_looked(d, reply);
        return;
    }
    d->status = reply->status;
    buffer_add(&d->body, reply->body.data, reply->body.len);
    char *path = incus_path(d->r, d->path);
    incus_send(&(struct incus_request){.method = "GET", .path = path, .timeout_ms = READ_MS},
               on_looked, d);
    free(path);
}

void incus_remove(struct request *r, const char *kind, const char *path,
                  void (*gone)(const struct request *)) {
    struct deletion *d = calloc(1, sizeof(*d));
    if (!d)
        abort();
    *d = (struct deletion){.r = r, .kind = kind, .path = path, .gone = gone};
    char *full = incus_path(r, path);
    incus_send(
        &(struct incus_request){
            .method = "DELETE", .path = full, .timeout_ms = DELETE_MS, .wait = true},
        on_deleted, d);
    free(full);
}
