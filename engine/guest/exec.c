/*
 * `exec`: the bounded exec, in the box.
 */
#define _GNU_SOURCE
#include "../supervise.h"
#include "line.h"
#include "modes.h"
#include "spec.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CAP_MAX (16U * 1024 * 1024)

static char *const exec_env[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "USER=root",
    "LC_ALL=C",
    "TERM=dumb",
    NULL,
};

static int wrong(const char *what) {
    fprintf(stderr, "boxdrill-guest: exec: %s\n", what);
    return 2;
}

/* `KEY=N`, into *value. */
static bool parse_bound(const char *arg, const char *key, unsigned low, unsigned high,
                        unsigned *value) {
    size_t len = strlen(key);

    return strncmp(arg, key, len) == 0 && arg[len] == '=' &&
           parse_number(arg + len + 1, low, high, value);
}

static int write_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static void trailer(char *text, size_t size, const char *nonce, const struct exec_result *r) {
    static const char *const names[] = {"exit", "signal", "timeout", "error"};
    char number[16];

    snprintf(number, sizeof(number), "%d", r->value);
    snprintf(text, size, "\n%s state=%s value=%s truncated=%d ms=%u\n", nonce, names[r->state],
             r->state == EXEC_ERROR ? line_errno_name(r->value) : number,
             r->out_truncated || r->err_truncated, r->ms);
}

/* Everything but the last line may be lost without being missed, so that one comes last. */
static int report(const char *nonce, const struct exec_result *r) {
    char last[256];

    trailer(last, sizeof(last), nonce, r);
    if (write_all(STDOUT_FILENO, r->out, r->out_len) ||
        write_all(STDERR_FILENO, r->err, r->err_len) ||
        write_all(STDERR_FILENO, last, strlen(last)))
        return 3;
    return 0;
}

static int run(const char *nonce, const struct supervise_spec *spec) {
    struct supervised exec;
    struct exec_result result = {.state = EXEC_ERROR};
    int r;

    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    r = supervise_start(spec, &exec);
    if (!r) {
        struct pollfd over = {.fd = exec.pidfd, .events = POLLIN};

        while (poll(&over, 1, -1) < 0 && errno == EINTR)
            ;
        r = supervise_finish(&exec, &result);
        while (supervise_end_strangers(NULL, 0) > 0)
            poll(NULL, 0, 1);
    }
    if (r)
        result = (struct exec_result){.state = EXEC_ERROR, .value = -r};
    r = report(nonce, &result);
    supervise_result_clear(&result);
    return r;
}

int mode_exec(const char *nonce, int count, char **args) {
    struct supervise_spec spec = {.envp = exec_env};
    unsigned cap;

    if (count < 5)
        return wrong("too few arguments");
    if (!parse_bound(args[0], "ms", 1, SPEC_MAX_MS, &spec.deadline_ms))
        return wrong("ms=1..600000 expected");
    if (!parse_bound(args[1], "grace", 0, 60000, &spec.grace_ms))
        return wrong("grace=0..60000 expected");
    if (!parse_bound(args[2], "cap", 0, CAP_MAX, &cap))
        return wrong("cap=0..16777216 expected");
    if (strcmp(args[3], "--") != 0)
        return wrong("-- expected");
    spec.cap = cap;
    spec.argv = args + 4;
    return run(nonce, &spec);
}
