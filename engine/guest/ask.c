/*
 * `await` and `stop`: ask the listener on a port of this box whether it is ours, or to end.
 */
#define _GNU_SOURCE
#include "ask.h"
#include "net.h"
#include "task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Cheap, on the loopback, and the listener's start is what a drill waits for. */
#define ASK_EVERY_US 20000

/** A question's own state. */
struct ask {
    char query[ASK_BYTES];
    char answer[ASK_BYTES]; /* the one that counts */
    int last_error;
    bool other; /* somebody answered something else */
};

static bool is_stop(const struct task *task) {
    return task->spec->proto == SPEC_STOP;
}

static int ask_words(const struct task *task, struct ask *ask) {
    const char *token = task->spec->token;
    uint64_t challenge;

    if (getrandom(&challenge, sizeof(challenge), 0) != (ssize_t)sizeof(challenge))
        return -EIO;
    if (is_stop(task)) {
        snprintf(ask->query, ASK_BYTES, "%s %016llx %s", ASK_STOP, (unsigned long long)challenge,
                 token);
        snprintf(ask->answer, ASK_BYTES, "%s %016llx", ASK_STOPPED, (unsigned long long)challenge);
    } else {
        snprintf(ask->query, ASK_BYTES, "%s %016llx", ASK_QUERY, (unsigned long long)challenge);
        snprintf(ask->answer, ASK_BYTES, "%s %016llx %s", ASK_HELD, (unsigned long long)challenge,
                 token);
    }
    return 0;
}

static void ask_finish(struct task *task, const char *result) {
    const struct ask *ask = task->state;
    bool good = strcmp(result, "ready") == 0 || strcmp(result, "stopped") == 0;
    struct line line;

    task_line(task, &line, result);
    if (!good && ask->last_error) {
        line_add(&line, "call", "async");
        line_add_errno(&line, ask->last_error);
    }
    line_add_ms(&line, "ms", clock_us() - task->begun);
    if (!good && ask->other)
        line_add(&line, "other", "1");
    task_done(task, &line);
}

/* Nobody there is what await waits out; for stop it is the answer. */
static void ask_error(struct task *task, int error) {
    struct ask *ask = task->state;

    if (error == EAGAIN)
        return;
    ask->last_error = error;
    if (is_stop(task))
        ask_finish(task, "error");
}

static void ask_ready(struct task *task, int fd, uint32_t events) {
    struct ask *ask = task->state;
    char reply[ASK_BYTES];
    ssize_t n;

    (void)events;
    while (!task->done) {
        n = recv(fd, reply, sizeof(reply) - 1, 0);
        if (n < 0) {
            ask_error(task, errno);
            return;
        }
        reply[n] = '\0';
        if ((size_t)n == strlen(ask->answer) && strcmp(reply, ask->answer) == 0)
            ask_finish(task, is_stop(task) ? "stopped" : "ready");
        else
            ask->other = true;
    }
}

static void ask_wake(struct task *task) {
    const struct ask *ask = task->state;

    task->wake = clock_us() + ASK_EVERY_US;
    if (send(task->fd, ask->query, strlen(ask->query), MSG_NOSIGNAL) < 0)
        ask_error(task, errno);
}

/* Asks from the very address that is asked. The kernel could choose another of ours, and that is
 * how the listener knows that the question comes from its own box. An address that is not ours
 * cannot be asked. */
static int ask_from_there(const struct task *task) {
    struct endpoint from;
    int r = endpoint_make(&task->spec->to, 0, &from);

    if (r || sockaddr_is_loopback((void *)&from.addr))
        return r;
    return bind(task->fd, (void *)&from.addr, from.len) ? -errno : 0;
}

static const char *ask_open(struct task *task, int *error) {
    struct endpoint to;
    int r = endpoint_make(&task->spec->to, task->spec->port, &to);

    *error = -r;
    if (r)
        return "scope";
    task->fd = socket(to.addr.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *error = errno;
    if (task->fd < 0)
        return "socket";
    r = ask_from_there(task);
    *error = -r;
    if (r)
        return "bind";
    if (connect(task->fd, (void *)&to.addr, to.len)) {
        *error = errno;
        return "connect";
    }
    r = task_watch(task, task->fd, EPOLLIN);
    *error = -r;
    return r ? "epoll" : NULL;
}

static void ask_start(struct task *task) {
    int error = ENOMEM;
    const char *failed = "memory";

    task->state = calloc(1, sizeof(struct ask));
    if (task->state && !ask_words(task, task->state))
        failed = ask_open(task, &error);
    if (failed)
        task_failed(task, failed, error);
    else
        ask_wake(task);
}

static void ask_expire(struct task *task) {
    ask_finish(task, "timeout");
}

static void ask_clear(struct task *task) {
    free(task->state);
    task->state = NULL;
}

const struct task_ops ask_ops = {.start = ask_start,
                                 .ready = ask_ready,
                                 .wake = ask_wake,
                                 .expire = ask_expire,
                                 .clear = ask_clear};
