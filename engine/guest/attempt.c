/*
 * The stage loop: starts every SPEC of a stage, drives them all from one epoll until each has
 * printed its line, then takes the next stage.
 */
#define _GNU_SOURCE
#include "modes.h"
#include "task.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

/* How many descriptors a run may want: each SPEC one, a listener some 70. */
#define WANTED_FDS 65536
/* Events looked at between two starts: a flood on one socket must not keep others from starting. */
#define EVENTS_BETWEEN 64

/** A run. */
struct run {
    struct plan plan;
    struct task *tasks; /* one for each SPEC, in the same order */
    int epoll;
    int64_t begun;
};

int task_watch(struct task *task, int fd, uint32_t events) {
    struct epoll_event event = {.events = events,
                                .data.u64 = (uint64_t)(task->number - 1) << 32 | (uint32_t)fd};

    return epoll_ctl(task->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void task_rewatch(struct task *task, int fd, uint32_t events) {
    struct epoll_event event = {.events = events,
                                .data.u64 = (uint64_t)(task->number - 1) << 32 | (uint32_t)fd};

    epoll_ctl(task->epoll, EPOLL_CTL_MOD, fd, &event);
}

void task_line(const struct task *task, struct line *line, const char *result) {
    line_begin(line);
    line_add(line, "n", "%u", task->number);
    line_add(line, "proto", "%s", spec_proto_name(task->spec->proto));
    line_add(line, "result", "%s", result);
}

void task_done(struct task *task, struct line *line) {
    line_end(line);
    task->done = true;
}

void task_failed(struct task *task, const char *call, int error) {
    struct line line;

    task_line(task, &line, "failed");
    line_add(&line, "call", "%s", call);
    line_add_errno(&line, error);
    line_add_ms(&line, "ms", clock_us() - task->begun);
    task_done(task, &line);
}

static const struct task_ops *ops_of(enum spec_proto proto) {
    if (proto == SPEC_FRAME)
        return &raw_ops;
    if (proto == SPEC_LISTEN)
        return &listen_ops;
    return proto == SPEC_AWAIT || proto == SPEC_STOP ? &ask_ops : &probe_ops;
}

static void clear_if_done(struct task *task) {
    if (!task->done || task->cleared)
        return;
    task->ops->clear(task);
    if (task->fd >= 0)
        close(task->fd);
    task->fd = -1;
    task->cleared = true;
}

static void task_start(struct run *run, size_t i) {
    struct task *task = &run->tasks[i];
    const struct spec *spec = &run->plan.specs[i];

    *task = (struct task){.spec = spec,
                          .ops = ops_of(spec->proto),
                          .number = (unsigned)i + 1,
                          .epoll = run->epoll,
                          .begun = clock_us(),
                          .fd = -1};
    task->deadline = task->begun + (int64_t)spec->ms * 1000;
    task->ops->start(task);
    clear_if_done(task);
}

/* Handles at most one event, so that a descriptor closed by one handler is never met again in
 * the same batch. Returns whether there was one. */
static bool handle_event(struct run *run, int timeout_ms) {
    struct epoll_event event;
    struct task *task;

    if (epoll_wait(run->epoll, &event, 1, timeout_ms) != 1)
        return false;
    task = &run->tasks[event.data.u64 >> 32];
    if (!task->done)
        task->ops->ready(task, (int)(uint32_t)event.data.u64, event.events);
    clear_if_done(task);
    return true;
}

/* What is already there is a fact, even when we come too late to look: the box may have been
 * paused. So a socket is asked once more before its budget counts as used up. */
static void task_expire(struct task *task) {
    struct pollfd p = {.fd = task->fd, .events = POLLIN | POLLOUT};

    if (task->spec->proto != SPEC_LISTEN && task->fd >= 0 && poll(&p, 1, 0) == 1)
        task->ops->ready(task, task->fd, (uint32_t)p.revents);
    if (!task->done)
        task->ops->expire(task);
}

/* Wakes and expires what is due. Returns when the next one is (microseconds), 0 if none is
 * left. */
static int64_t handle_time(struct run *run, size_t first, size_t end) {
    int64_t now = clock_us();
    int64_t next = 0;

    for (size_t i = first; i < end; i++) {
        struct task *task = &run->tasks[i];

        if (!task->done && now >= task->deadline)
            task_expire(task);
        else if (!task->done && task->wake && now >= task->wake)
            task->ops->wake(task);
        clear_if_done(task);
        if (task->done)
            continue;
        if (!next || task->deadline < next)
            next = task->deadline;
        if (task->wake && task->wake < next)
            next = task->wake;
    }
    return next;
}

/* Between two starts, what has come is looked at: the times of the first ones must not grow
 * with the number of those that start after them. */
static void run_stage(struct run *run, size_t first, size_t end) {
    int64_t next;

    for (size_t i = first; i < end; i++) {
        task_start(run, i);
        for (int n = 0; n < EVENTS_BETWEEN && handle_event(run, 0); n++)
            ;
    }
    while ((next = handle_time(run, first, end))) {
        int64_t left = next - clock_us();

        handle_event(run, left <= 0 ? 0 : (int)((left + 999) / 1000));
    }
}

static void print_stage(const struct run *run, unsigned stage) {
    struct line line;

    line_begin(&line);
    line_add(&line, "stage", "%u", stage + 1);
    line_add_ms(&line, "at", clock_us() - run->begun);
    line_end(&line);
}

static void run_stages(struct run *run) {
    size_t first = 0;
    struct line line;

    for (unsigned stage = 0; stage < run->plan.stages; stage++) {
        size_t end = first;

        while (end < run->plan.count && run->plan.specs[end].stage == stage)
            end++;
        print_stage(run, stage);
        run_stage(run, first, end);
        first = end;
    }
    line_begin(&line);
    line_add(&line, "end", "%zu", run->plan.count);
    line_end(&line);
}

static int run_all(struct run *run) {
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    run->tasks = calloc(run->plan.count, sizeof(struct task));
    if (run->epoll >= 0 && run->tasks) {
        run_stages(run);
        close(run->epoll);
        free(run->tasks);
        return 0;
    }
    perror("boxdrill-guest");
    if (run->epoll >= 0)
        close(run->epoll);
    free(run->tasks);
    return 3;
}

/* The last bound, should the loop itself be at fault: SIGALRM kills, and the end line is
 * missing. */
static void set_alarm(const struct plan *plan) {
    unsigned long total = 2000;
    unsigned long largest = 0;

    for (size_t i = 0; i < plan->count; i++) {
        if (plan->specs[i].ms > largest)
            largest = plan->specs[i].ms;
        if (i + 1 == plan->count || plan->specs[i + 1].stage != plan->specs[i].stage) {
            total += largest;
            largest = 0;
        }
    }
    struct itimerval timer = {.it_value = {(time_t)(total / 1000), (long)(total % 1000) * 1000}};
    signal(SIGALRM, SIG_DFL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void raise_fd_limit(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= WANTED_FDS)
        return;
    limit.rlim_cur = limit.rlim_max < WANTED_FDS ? limit.rlim_max : WANTED_FDS;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int mode_attempt(int count, char **args) {
    char why[256] = "no memory";
    struct run run = {.begun = clock_us()};
    int r;

    if (plan_parse(&run.plan, count, args, why, sizeof(why))) {
        fprintf(stderr, "boxdrill-guest: %s\n", why);
        plan_clear(&run.plan);
        return 2;
    }
    raise_fd_limit();
    set_alarm(&run.plan);
    r = run_all(&run);
    plan_clear(&run.plan);
    return r;
}
