/* Incus's REST API over its unix socket, with libcurl. Callers build path and body; nothing that
 * comes back is parsed but the status, the ETag and an operation's Location. */
#pragma once

#include "wire.h"

#include <curl/curl.h>

/* A finished exchange. */
struct incus_reply {
    CURLcode code; /* not CURLE_OK: no HTTP answer; then `error` is an errno, or 0 */
    int error;
    long status;           /* HTTP */
    const char *etag;      /* "" when there was none */
    const char *operation; /* the uuid of the operation it was, or "" */
    struct slice body;
    bool truncated; /* the body went beyond `cap`; what is there is its beginning */
};

/* A request to be sent. Strings are copied. */
struct incus_request {
    const char *method, *path;
    const char *body; /* NULL: none */
    size_t body_len;
    const char *const *headers; /* NULL-terminated list of "Name: value", or NULL */
    const char *if_match;       /* an ETag, or NULL */
    int64_t timeout_ms;
    size_t cap; /* bytes of the answer's body that are kept; 0: the default of 6 MiB */
    bool wait;  /* follow a 202's Location and wait there for the operation's end */
};

/* Sends it; done is called once, from the loop. The reply is valid during the call only. */
void incus_send(const struct incus_request *request,
                void (*done)(void *, const struct incus_reply *), void *data);

/* The daemon's socket: INCUS_SOCKET, or INCUS_DIR/unix.socket, or /var/lib/incus/unix.socket. */
const char *incus_socket(void);
