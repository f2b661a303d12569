#define _GNU_SOURCE
#include "incus.h"

#include "loop.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_CAP = 6 << 20, /* under a frame's limit: a reply goes to the worker in one */
    UUID = 36,
};

/* One request, over one or two transfers: the call, and the wait for its operation. */
struct exchange {
    struct transfer transfer; /* first: the loop hands it back */
    struct curl_slist *headers;
    char *path;
    struct buffer request, body;
    size_t cap;
    int64_t timeout_ms;
    bool wait, truncated;
    char etag[128];
    char operation[UUID + 1];
    void (*done)(void *, const struct incus_reply *);
    void *data;
};

const char *incus_socket(void) {
    static char path[256];
    const char *socket = getenv("INCUS_SOCKET"), *dir = getenv("INCUS_DIR");
    if (socket && *socket)
        return socket;
    snprintf(path, sizeof(path), "%s/unix.socket", dir && *dir ? dir : "/var/lib/incus");
    return path;
}

static size_t on_body(char *data, size_t size, size_t n, void *of) {
    struct exchange *x = of;
    size_t len = size * n, room = x->cap - x->body.len;
    if (len > room) {
        x->truncated = true;
        buffer_add(&x->body, data, room);
        return 0; /* ends the transfer: CURLE_WRITE_ERROR, known by `truncated` */
    }
    buffer_add(&x->body, data, len);
    return len;
}

/* Copies a header's value when it is that header; cut to fit, without the line's end. */
static void copy_header(const char *line, size_t len, const char *name, char *out, size_t size) {
    size_t skip = strlen(name);
    if (len < skip || strncasecmp(line, name, skip) != 0)
        return;
    while (skip < len && line[skip] == ' ')
        skip++;
    while (len > skip && isspace((unsigned char)line[len - 1]))
        len--;
    snprintf(out, size, "%.*s", (int)(len - skip), line + skip);
}

/* An operation's Location is /1.0/operations/UUID, with ?project=… behind it. */
static void copy_operation(const char *location, char out[UUID + 1]) {
    static const char prefix[] = "/1.0/operations/";
    if (strncmp(location, prefix, sizeof(prefix) - 1) != 0)
        return;
    location += sizeof(prefix) - 1;
    if (strspn(location, "0123456789abcdef-") == UUID)
        snprintf(out, UUID + 1, "%.*s", UUID, location);
}

static size_t on_header(char *line, size_t size, size_t n, void *of) {
    struct exchange *x = of;
    char location[256] = "";
    copy_header(line, size * n, "etag:", x->etag, sizeof(x->etag));
    copy_header(line, size * n, "location:", location, sizeof(location));
    copy_operation(location, x->operation);
    return size * n;
}

static void exchange_free(struct exchange *x) {
    transfer_free(&x->transfer);
    curl_slist_free_all(x->headers);
    buffer_free(&x->request);
    buffer_free(&x->body);
    free(x->path);
    free(x);
}

static void finish(struct exchange *x, CURLcode code) {
    long os_errno = 0, status = 0;
    curl_easy_getinfo(x->transfer.easy, CURLINFO_OS_ERRNO, &os_errno);
    curl_easy_getinfo(x->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_WRITE_ERROR && x->truncated)
        code = CURLE_OK;
    const struct incus_reply reply = {
        .code = code,
        .error = code == CURLE_OK ? 0 : (int)os_errno,
        .status = status,
        .etag = x->etag,
        .operation = x->operation,
        .body = {x->body.data ? x->body.data : "", x->body.len},
        .truncated = x->truncated,
    };
    x->done(x->data, &reply);
    exchange_free(x);
}

static void on_transfer(struct transfer *t, CURLcode code);

static void start_transfer(struct exchange *x, const char *method) {
    char url[512];
    snprintf(url, sizeof(url), "http://incus%s", x->path);
    transfer_init(&x->transfer, url, x->timeout_ms);
    x->transfer.done = on_transfer;
    CURL *easy = x->transfer.easy;
    curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, incus_socket());
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, x->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, x);
    if (x->request.len || strcmp(method, "POST") == 0) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)x->request.len);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, x->request.data ? x->request.data : "");
    }
    transfer_start(&x->transfer);
}

/* The second transfer. Its own time limit is a little longer than the one the daemon is told. */
static void wait_for_operation(struct exchange *x) {
    transfer_free(&x->transfer);
    free(x->path);
    x->path = NULL;
    int64_t seconds = x->timeout_ms / 1000;
    if (asprintf(&x->path, "/1.0/operations/%s/wait?timeout=%lld", x->operation,
                 (long long)(seconds ? seconds : 1)) < 0)
        abort();
    x->wait = false;
    x->timeout_ms += 5000;
    x->body.len = 0;
    x->request.len = 0;
    start_transfer(x, "GET");
}

static void on_transfer(struct transfer *t, CURLcode code) {
    struct exchange *x = (struct exchange *)t;
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && status == 202 && x->wait && x->operation[0])
        wait_for_operation(x);
    else
        finish(x, code);
}

/* Headers are made here and in op_box.c from fixed words and a checked ETag: one that could end its
 * line is a bug of ours, and is not sent. */
static void add_header(struct exchange *x, const char *header) {
    if (strpbrk(header, "\r\n"))
        abort();
    struct curl_slist *list = curl_slist_append(x->headers, header);
    if (!list)
        abort();
    x->headers = list;
}

void incus_send(const struct incus_request *q, void (*done)(void *, const struct incus_reply *),
                void *data) {
    struct exchange *x = calloc(1, sizeof(*x));
    if (!x)
        abort();
    x->path = strdup(q->path);
    x->cap = q->cap ? q->cap : DEFAULT_CAP;
    x->timeout_ms = q->timeout_ms;
    x->wait = q->wait;
    x->done = done;
    x->data = data;
    if (q->body)
        buffer_add(&x->request, q->body, q->body_len);
    add_header(x, "Expect:"); /* no wait for a 100-continue */
    for (const char *const *h = q->headers; h && *h; h++)
        add_header(x, *h);
    if (!q->headers)
        add_header(x, "Content-Type: application/json");
    if (q->if_match && *q->if_match) {
        char header[192];
        snprintf(header, sizeof(header), "If-Match: %s", q->if_match);
        add_header(x, header);
    }
    start_transfer(x, q->method);
}
