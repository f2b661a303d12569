/* Requests: their arguments and replies. */
#define _GNU_SOURCE
#include "broker.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reply_begin(struct request *r) {
    r->reply.len = 0;
    r->reply_frame = wire_begin(&r->reply, r->id);
    wire_add_text(&r->reply, r->reply_frame, "ok");
}

void reply_add(struct request *r, const void *data, size_t len) {
    wire_add(&r->reply, r->reply_frame, data, len);
}

void reply_add_text(struct request *r, const char *text) {
    reply_add(r, text, strlen(text));
}

void reply_add_number(struct request *r, int64_t n) {
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)n);
    reply_add_text(r, text);
}

void reply_send(struct request *r) {
    if (wire_end(&r->reply, r->reply_frame) < 0) {
        reply_error(r, "EMSGSIZE", "%s: the answer is larger than a frame may be", r->op->name);
        return;
    }
    worker_reply(r->worker, r->reply.data, r->reply.len);
    request_free(r);
}

void reply_ok(struct request *r) {
    reply_begin(r);
    reply_send(r);
}

void reply_error(struct request *r, const char *code, const char *format, ...) {
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    r->reply.len = 0;
    r->reply_frame = wire_begin(&r->reply, r->id);
    wire_add_text(&r->reply, r->reply_frame, code);
    wire_add_text(&r->reply, r->reply_frame, message);
    reply_send(r);
}

void reply_errno(struct request *r, int error, const char *what) {
    const char *name = strerrorname_np(error);
    reply_error(r, name ? name : "EIO", "%s: %s", what, strerror(error));
}

struct slice arg(const struct request *r, unsigned i) {
    return i < r->argc ? r->argv[i] : (struct slice){"", 0};
}

char *arg_text(const struct request *r, unsigned i) {
    char *text = slice_dup(arg(r, i));
    return text ? text : strdup("");
}

bool arg_number(struct request *r, unsigned i, int64_t min, int64_t max, int64_t *out) {
    char text[24] = "";
    struct slice s = arg(r, i);
    if (s.len < sizeof(text))
        memcpy(text, s.data, s.len);
    char *end = NULL;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (text[0] && !*end && errno == 0 && *out >= min && *out <= max)
        return true;
    reply_error(r, "EINVAL", "%s: argument %u is not a number from %lld to %lld", r->op->name,
                i + 1, (long long)min, (long long)max);
    return false;
}

bool arg_name(struct request *r, unsigned i) {
    struct slice s = arg(r, i);
    bool ok = s.len >= 1 && s.len <= 63 && s.data[0] != '-' && s.data[0] != '.';
    for (size_t k = 0; ok && k < s.len; k++)
        ok = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-",
                    s.data[k]) &&
             s.data[k];
    if (!ok)
        reply_error(r, "EINVAL", "%s: argument %u is not a name (letters, digits, '.', '_', '-')",
                    r->op->name, i + 1);
    return ok;
}
