/* --live NETWORK: one key after another of a network that is not the run's own. Each change stands
 * in the journal with the value of before, and is put back only where it still holds the one set
 * here. */
#define _GNU_SOURCE
#include "json.h"
#include "made.h"
#include "op_incus.h"
#include "ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITE_MS = 60000, VALUE_MAX = 48 };

/* Keys that are rehearsed live: those whose effect ends at the bridge, and whose values are words
 * that the journal can hold. */
static const char *const keys[] = {"dns.mode",
                                   "dns.domain",
                                   "bridge.mtu",
                                   "ipv4.nat",
                                   "ipv4.dhcp",
                                   "ipv4.dhcp.expiry",
                                   "ipv4.dhcp.ranges",
                                   "security.acls.default.egress.action",
                                   "security.acls.default.ingress.action"};

/* The one network that may be changed, once a shipped script has named it. */
static char *live_project, *live_network;

bool live_may_touch(struct slice project, struct slice network) {
    return live_network && slice_is(project, live_project) && slice_is(network, live_network);
}

/* live.allow PROJECT NETWORK */
void op_live_allow(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return;
    if (r->worker->kind != KIND_SCRIPT || !r->worker->shipped || live_network) {
        reply_error(r, "EPERM", "live.allow: only boxdrill's own scripts name a live network, one");
        return;
    }
    live_project = arg_text(r, 0);
    live_network = arg_text(r, 1);
    reply_ok(r);
}

static bool is_key(struct slice key) {
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (slice_is(key, keys[i]))
            return true;
    return false;
}

/* A value that is one word in the journal; empty: the key is not set. */
static bool is_value(struct slice s) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:/,-_";
    bool ok = s.len <= VALUE_MAX;
    for (size_t i = 0; ok && i < s.len; i++)
        ok = s.data[i] && strchr(letters, s.data[i]);
    return ok;
}

/* PATCH of the one key. A PATCH blanks a description that is left out, so it is sent along. */
static void send_key(struct request *r, struct slice key, struct slice value, unsigned etag_at) {
    if (!incus_etag_ok(r, etag_at))
        return;
    char *path = incus_path(r, r->op->path), *etag = arg_text(r, etag_at);
    struct buffer body = {0};
    buffer_add_text(&body, "{\"description\":");
    json_string(&body, arg(r, etag_at + 1));
    buffer_add_text(&body, ",\"config\":{");
    json_string(&body, key);
    buffer_add_text(&body, ":");
    json_string(&body, value);
    buffer_add_text(&body, "}}");
    if (path) {
        broker_changing(1);
        incus_send(&(struct incus_request){.method = "PATCH",
                                           .path = path,
                                           .body = body.data,
                                           .body_len = body.len,
                                           .if_match = etag,
                                           .timeout_ms = WRITE_MS,
                                           .wait = true},
                   incus_written, r);
    }
    buffer_free(&body);
    free(etag);
    free(path);
}

/* "NETWORK/KEY", as the journal names a key. Free it. */
static char *key_name(struct request *r) {
    char *name = NULL;
    if (asprintf(&name, "%.*s/%.*s", (int)arg(r, 1).len, arg(r, 1).data, (int)arg(r, 2).len,
                 arg(r, 2).data) < 0)
        abort();
    return name;
}

/* live.set PROJECT NETWORK KEY ETAG DESCRIPTION BEFORE AFTER */
void op_live_set(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return;
    if (!live_may_touch(arg(r, 0), arg(r, 1))) {
        reply_error(r, "EPERM", "live.set: '%.*s' is not the network named with --live",
                    (int)arg(r, 1).len, arg(r, 1).data);
        return;
    }
    if (!is_key(arg(r, 2)) || !is_value(arg(r, 5)) || !is_value(arg(r, 6))) {
        reply_error(r, "EINVAL",
                    "live.set: %.*s is not changed on a live network (docs/rehearse.md lists what "
                    "is)",
                    (int)arg(r, 2).len, arg(r, 2).data);
        return;
    }
    char *name = key_name(r);
    int error = made_change(arg(r, 0), name, arg(r, 5), arg(r, 6), r->worker->pid);
    free(name);
    if (error < 0)
        reply_errno(r, -error, "live.set: not changed, since the journal cannot be written");
    else
        send_key(r, arg(r, 2), arg(r, 6), 3);
}

/* live.unset PROJECT NETWORK KEY ETAG DESCRIPTION: what the journal says was there before. */
void op_live_unset(struct request *r) {
    char before[64];
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return;
    char *name = key_name(r);
    bool found = made_before(arg(r, 0), name, before, sizeof(before));
    free(name);
    if (!found)
        reply_error(r, "EPERM", "live.unset: this run did not change that key");
    else
        send_key(r, arg(r, 2), (struct slice){before, strlen(before)}, 3);
}
