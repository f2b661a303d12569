/* Workers, seen from the broker: started, listened to, timed, ended. */
#define _GNU_SOURCE
#include "broker.h"

#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PENDING = 512,     /* requests of one worker in flight; beyond, we stop reading */
    MAX_UNREAD = 64 << 20, /* bytes of answers that a worker leaves unread */
    SPIN_CPU_MS = 6000,    /* twice the worker's own limit (luastate.h): it did not obey */
    TURN_WALL_MS = 120000, /* a turn without processor time either: something holds it */
};

static struct worker *workers;
static struct request *requests;

struct worker *worker_list(void) {
    return workers;
}

struct request *request_list(void) {
    return requests;
}

/* Processor time of the worker so far, milliseconds; -1 when it is gone. */
static int64_t cpu_ms(const struct worker *w) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(w->pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
        return -1;
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void begin_turn(struct worker *w) {
    w->turn_ms = now_ms();
    w->turn_cpu_ms = cpu_ms(w);
}

static void on_more(void *data);

/* Whether a complete frame waits in what was read: nothing else would wake us for it. */
static bool frame_waits(const struct worker *w) {
    return !w->killed && w->pending < MAX_PENDING && wire_complete(w->in.data, w->in.len);
}

static void update_watch(struct worker *w) {
    if (!w->more && frame_waits(w))
        w->more = timer_start(0, on_more, w);
    short events = w->pending < MAX_PENDING ? POLLIN : 0;
    if (w->out.len)
        events |= POLLOUT;
    watch_events(w->fd_watch, events);
}

static void flush_out(struct worker *w) {
    while (w->out.len) {
        ssize_t n = send(w->fd, w->out.data, w->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n < 0 && errno != EAGAIN)
                w->out.len = 0; /* it is gone; its end is seen elsewhere */
            break;
        }
        buffer_consume(&w->out, (size_t)n);
    }
}

void worker_reply(struct worker *w, const char *data, size_t len) {
    if (!w)
        return;
    buffer_add(&w->out, data, len);
    flush_out(w);
    if (w->out.len > MAX_UNREAD)
        worker_kill(w, "it did not read its answers");
    if (w->pending)
        w->pending--;
    begin_turn(w);
    update_watch(w);
}

void request_free(struct request *r) {
    for (struct request **p = &requests; *p; p = &(*p)->next) {
        if (*p == r) {
            *p = r->next;
            break;
        }
    }
    frame_free(&r->frame);
    free(r->bytes);
    buffer_free(&r->reply);
    free(r);
}

static struct request *request_new(struct worker *w, size_t len) {
    struct request *r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    r->bytes = malloc(len);
    if (!r->bytes)
        abort();
    memcpy(r->bytes, w->in.data, len);
    wire_decode(r->bytes, len, &r->frame);
    r->worker = w;
    r->started_ms = now_ms();
    r->id = r->frame.id;
    r->argc = r->frame.count - 1;
    r->argv = r->frame.strings + 1;
    r->next = requests;
    requests = r;
    return r;
}

/* What a refused worker is told. */
static const struct op no_op = {.name = "request"};

static bool has_nul(const struct request *r) {
    for (unsigned i = 0; i < r->argc; i++)
        if (memchr(r->argv[i].data, 0, r->argv[i].len))
            return true;
    return false;
}

static void dispatch(struct request *r) {
    struct slice name = r->frame.strings[0];
    const struct op *op = dispatch_find(name);
    struct worker *w = r->worker;
    snprintf(w->last_op, sizeof(w->last_op), "%.*s", (int)name.len, name.data);
    r->op = op ? op : &no_op;
    if (!op)
        reply_error(r, "EINVAL", "no operation '%s'", w->last_op);
    else if (op->grant && !(op->grant & w->grants))
        reply_error(r, "EPERM", "%s: needs the grant '%s', which %s was not given", op->name,
                    grant_name(op->grant), w->chunk);
    else if (!op->bytes && has_nul(r))
        reply_error(r, "EINVAL", "%s: an argument holds a NUL byte", op->name);
    else if (r->argc < op->min || r->argc > op->max)
        reply_error(r, "EINVAL", "usage: %s %s", op->name, op->usage);
    else
        op->start(r);
}

/* Takes complete frames off what was read. */
static void handle_frames(struct worker *w) {
    while (!w->killed && w->pending < MAX_PENDING) {
        struct frame f;
        int64_t len = wire_decode(w->in.data, w->in.len, &f);
        if (len < 0) {
            worker_kill(w, "it broke the protocol");
            w->in.len = 0;
        }
        if (len <= 0)
            return;
        frame_free(&f);
        struct request *r = request_new(w, (size_t)len);
        buffer_consume(&w->in, (size_t)len);
        w->pending++;
        begin_turn(w);
        dispatch(r);
    }
}

static void on_more(void *data) {
    struct worker *w = data;
    w->more = NULL;
    handle_frames(w);
    update_watch(w);
}

/* Reads what is there. Returns false at the end of the stream. */
static bool read_in(struct worker *w) {
    enum { CHUNK = 65536 };
    buffer_reserve(&w->in, CHUNK);
    ssize_t n = recv(w->fd, w->in.data + w->in.len, CHUNK, MSG_DONTWAIT);
    if (n > 0)
        w->in.len += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_socket(void *data) {
    struct worker *w = data;
    flush_out(w);
    bool open = read_in(w);
    handle_frames(w);
    update_watch(w);
    if (!open)
        watch_events(w->fd_watch, 0); /* its end comes through the pidfd */
}

static void describe_end(const struct worker *w, int status, char *out, size_t size) {
    if (w->killed)
        snprintf(out, size, "stopped: %s", w->killed);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        snprintf(out, size, "made a system call that the sandbox refuses");
    else if (WIFSIGNALED(status))
        snprintf(out, size, "died of SIG%s", sigabbrev_np(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == WORKER_NO_SANDBOX)
        snprintf(out, size, "could not enter its sandbox");
    else if (WEXITSTATUS(status) == WORKER_NO_STATE)
        snprintf(out, size, "could not start Lua (is lua-cjson installed?)");
    else if (WEXITSTATUS(status) != 0)
        snprintf(out, size, "ended with status %d", WEXITSTATUS(status));
    else
        out[0] = 0;
}

static void forget_requests(struct worker *w) {
    for (struct request *r = requests, *next; r; r = next) {
        next = r->next;
        if (r->worker != w)
            continue;
        r->worker = NULL;
        if (r == w->declared)
            request_free(r); /* it waited to be run: nobody else will answer it */
        else if (r->cancel)
            r->cancel(r);
    }
}

static void worker_free(struct worker *w) {
    for (struct worker **p = &workers; *p; p = &(*p)->next) {
        if (*p == w) {
            *p = w->next;
            break;
        }
    }
    timer_stop(w->more);
    watch_stop(w->fd_watch);
    watch_stop(w->pid_watch);
    close(w->fd);
    close(w->pidfd);
    buffer_free(&w->in);
    buffer_free(&w->out);
    buffer_free(&w->evidence);
    free(w->chunk);
    free(w->source);
    free(w->killed);
    free(w->failure);
    free(w->id);
    free(w->metadata);
    for (unsigned i = 0; i < w->nboxes; i++)
        free(w->boxes[i]);
    free(w->boxes);
    free(w);
}

/* The process is gone: what it still wrote is taken first, so that a verdict recorded just before
 * the end counts. */
static void on_end(void *data) {
    struct worker *w = data;
    int status = 0;
    pid_t pid = waitpid(w->pid, &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR))
        return;
    if (pid < 0 && !w->killed)
        w->killed = strdup("its end was not seen"); /* no status: never a clean end */
    while (!w->killed && read_in(w)) {
        size_t before = w->in.len;
        handle_frames(w);
        if (w->in.len == before)
            break;
    }
    char how[128];
    describe_end(w, status, how, sizeof(how));
    forget_requests(w);
    worker_ended(w, how);
    worker_free(w);
}

/* Ends workers that run without asking for anything, and probes that are over their time. */
void worker_check_all(void) {
    int64_t now = now_ms();
    for (struct worker *w = workers; w; w = w->next) {
        if (w->killed)
            continue;
        if (w->deadline_ms && now > w->deadline_ms)
            worker_kill(w, "it was over its time");
        else if (cpu_ms(w) - w->turn_cpu_ms > SPIN_CPU_MS)
            worker_kill(w, "it spun without a request and did not obey the interrupt");
        else if (!w->pending && now - w->turn_ms > TURN_WALL_MS)
            worker_kill(w, "it did nothing for two minutes");
    }
}

void worker_kill(struct worker *w, const char *why) {
    if (!w->killed)
        w->killed = strdup(why);
    pidfd_send_signal(w->pidfd, SIGKILL, NULL, 0);
}

/* The name that ps shows: bd:c.sibling, bd:drill. */
static void name_process(const char *chunk) {
    char name[16];
    const char *file = strrchr(chunk, '/') ? strrchr(chunk, '/') + 1 : chunk;
    size_t n = strlen(file);
    if (n > 4 && strcmp(file + n - 4, ".lua") == 0)
        n -= 4;
    snprintf(name, sizeof(name), "bd:%.*s", (int)n, file);
    prctl(PR_SET_NAME, name);
}

/* Forks the process. Returns its pid, with our end of its socket and its pidfd, or -1. */
static pid_t fork_worker(const char *chunk, int *fd, int *pidfd) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        name_process(chunk);
        /* Above 2, wherever the broker's own descriptors happen to be. */
        worker_main(fcntl(pair[1], F_DUPFD_CLOEXEC, 3));
    }
    *fd = pair[0];
    *pidfd = pid < 0 ? -1 : pidfd_open(pid, 0);
    int error = errno;
    close(pair[1]);
    if (*pidfd < 0) {
        close(pair[0]); /* a worker that lost its broker ends by itself */
        errno = error;
        return -1;
    }
    return pid;
}

struct worker *worker_start(enum kind kind, const char *chunk, char *source, uint32_t grants) {
    int fd = -1, pidfd = -1;
    pid_t pid = fork_worker(chunk, &fd, &pidfd);
    if (pid < 0)
        return NULL;
    struct worker *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    *w = (struct worker){.pid = pid,
                         .pidfd = pidfd,
                         .fd = fd,
                         .kind = kind,
                         .grants = grants,
                         .chunk = strdup(chunk),
                         .source = source,
                         .verdict = -1,
                         .started_ms = now_ms(),
                         .next = workers};
    w->fd_watch = watch_start(w->fd, POLLIN, on_socket, w);
    w->pid_watch = watch_start(w->pidfd, POLLIN, on_end, w);
    begin_turn(w);
    workers = w;
    return w;
}
