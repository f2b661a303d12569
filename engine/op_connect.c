/* Connection outcomes from the host: TCP with libcurl, whose CURLINFO_OS_ERRNO is connect()'s own
 * errno (its message and exit code are the same for a refusal and for no route); UDP and ICMP with
 * the program that is otherwise pushed into boxes. */
#define _GNU_SOURCE
#include "job.h"
#include "ops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attempt {
    struct transfer transfer; /* first: the loop hands it back */
    struct request *r;
};

static void on_end(struct transfer *t, CURLcode code) {
    struct attempt *a = (struct attempt *)t;
    struct request *r = a->r;
    long os_errno = 0;
    curl_off_t connected_us = 0, total_us = 0;
    curl_easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &os_errno);
    curl_easy_getinfo(t->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
    curl_easy_getinfo(t->easy, CURLINFO_TOTAL_TIME_T, &total_us);
    transfer_free(t);
    free(a);
    const char *what = code == CURLE_OK                   ? ""
                       : code == CURLE_OPERATION_TIMEDOUT ? "timeout"
                       : os_errno                         ? strerrorname_np((int)os_errno)
                                                          : NULL;
    if (!what) {
        reply_error(r, "EIO", "host.connect: libcurl: %s", curl_easy_strerror(code));
        return;
    }
    reply_begin(r);
    reply_add_number(r, (code == CURLE_OK ? connected_us : total_us) / 1000);
    reply_add_text(r, what);
    reply_send(r);
}

/* Literal addresses only: nothing is looked up. */
static bool address_ok(const char *text, bool *v6) {
    unsigned char out[16];
    *v6 = inet_pton(AF_INET6, text, out) == 1;
    return *v6 || inet_pton(AF_INET, text, out) == 1;
}

/* host.connect ADDRESS PORT MS */
void op_host_connect(struct request *r) {
    int64_t port = 0, ms = 0;
    bool v6 = false;
    char *address = arg_text(r, 0), url[128];
    bool ok = address_ok(address, &v6);
    snprintf(url, sizeof(url), v6 ? "http://[%s]" : "http://%s", address);
    free(address);
    if (!ok) {
        reply_error(r, "EINVAL", "host.connect: argument 1 is not an IPv4 or IPv6 address");
        return;
    }
    if (!arg_number(r, 1, 1, 65535, &port) || !arg_number(r, 2, 1, 60000, &ms))
        return;
    struct attempt *a = calloc(1, sizeof(*a));
    if (!a)
        abort();
    a->r = r;
    a->transfer.done = on_end;
    transfer_init(&a->transfer, url, ms);
    curl_easy_setopt(a->transfer.easy, CURLOPT_PORT, (long)port);
    curl_easy_setopt(a->transfer.easy, CURLOPT_CONNECT_ONLY, 1L);
    transfer_start(&a->transfer);
    // cppcheck-suppress memleak ; on_end frees it
}

/* Frames of a script's own making are for boxes to send: not one on the host's links. */
static bool refuse_frames(struct request *r) {
    bool any = false;
    for (unsigned i = 0; i < r->argc; i++) {
        char *spec = arg_text(r, i);
        any |= strstr(spec, "proto=frame") != NULL;
        free(spec);
    }
    if (any)
        reply_error(r, "EINVAL", "host.attempt: proto=frame is for boxes only");
    return any;
}

/* host.attempt SPEC...: the specs and the output are docs/guest.md's; the nonce is ours. */
void op_host_attempt(struct request *r) {
    enum { MS = 120000 };
    if (refuse_frames(r))
        return;
    char **argv = calloc(r->argc + 4, sizeof(*argv)), nonce[40];
    if (!argv)
        abort();
    snprintf(nonce, sizeof(nonce), "nonce=%s%s", run_id, run_id);
    argv[0] = options.guest;
    argv[1] = "attempt";
    argv[2] = nonce;
    for (unsigned i = 0; i < r->argc; i++)
        argv[i + 3] = arg_text(r, i);
    job_read(r, argv, NULL, MS);
    for (unsigned i = 3; argv[i]; i++)
        free(argv[i]);
    free(argv);
}
