/*
 * One SPEC at work: what the stage loop (attempt.c) and the protocols (probe.c, raw.c, listen.c,
 * ask.c) know of each other. Everything is non-blocking; one loop drives hundreds side by side. For
 * the guest program only.
 */
#ifndef BOXDRILL_GUEST_TASK_H
#define BOXDRILL_GUEST_TASK_H

#include "line.h"
#include "spec.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct task;

/** What a protocol does. Each may end the task with task_done(). */
struct task_ops {
    /** Starts it: opens sockets, sends. */
    void (*start)(struct task *task);
    /** Something happened on one of its descriptors. */
    void (*ready)(struct task *task, int fd, uint32_t events);
    /** Its wake-up time has come; NULL if it never sets one. */
    void (*wake)(struct task *task);
    /** Its budget is used up: prints its line. */
    void (*expire)(struct task *task);
    /** Closes and frees what it holds. */
    void (*clear)(struct task *task);
};

/** One SPEC at work. */
struct task {
    const struct spec *spec;
    const struct task_ops *ops;
    unsigned number;  /**< from 1, as printed */
    int epoll;        /**< the loop's, for task_watch() */
    int64_t begun;    /**< microseconds: when it was started, or the moment its times count from */
    int64_t deadline; /**< microseconds */
    int64_t wake;     /**< microseconds; 0: never */
    bool done;
    bool cleared; /**< ops->clear was called */
    int fd;       /**< the main socket, -1 if none; closed with the task */
    void *state;  /**< the protocol's own */
};

extern const struct task_ops probe_ops;  /**< tcp, udp, icmp */
extern const struct task_ops raw_ops;    /**< frame */
extern const struct task_ops listen_ops; /**< listen */
extern const struct task_ops ask_ops;    /**< await, stop */

/**
 * Watches a descriptor: events on it call ops->ready.
 *
 * @param task   the task
 * @param fd     an open descriptor; closing it ends the watch
 * @param events EPOLLIN, EPOLLOUT (EPOLLERR and EPOLLHUP come always)
 * @return 0 or -errno
 */
int task_watch(struct task *task, int fd, uint32_t events);

/**
 * Changes what is watched on a descriptor.
 *
 * @param task   the task
 * @param fd     one given to task_watch()
 * @param events the new events
 */
void task_rewatch(struct task *task, int fd, uint32_t events);

/**
 * Begins a result line: nonce, number, protocol, result.
 *
 * @param task   the task
 * @param line   overwritten
 * @param result the result's word
 */
void task_line(const struct task *task, struct line *line, const char *result);

/**
 * Prints the line and marks the task done. Nothing of it is called any more but ops->clear.
 *
 * @param task the task
 * @param line from task_line(), completed
 */
void task_done(struct task *task, struct line *line);

/**
 * Ends a task whose instrument failed: `result=failed call= errno=`, with the time.
 *
 * @param task  the task
 * @param call  what failed
 * @param error its errno, positive
 */
void task_failed(struct task *task, const char *call, int error);

#endif
