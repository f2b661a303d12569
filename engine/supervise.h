/*
 * Bounded exec: runs one command so that, whatever it does, it and everything it started are
 * gone within its deadline plus its grace, and its output is bounded in memory.
 *
 * Used by the broker for every command on the host, and by the program pushed into a box for
 * every command there. It needs nothing but libc and Linux 5.10. The caller must be
 * single-threaded (it forks without exec) and must not ignore SIGCHLD. docs/exec.md says what
 * is promised and how.
 *
 *     supervise_start  -> wait until .pidfd is readable -> supervise_finish
 */
#ifndef BOXDRILL_SUPERVISE_H
#define BOXDRILL_SUPERVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** What to run. Nothing in it is used any more once supervise_start() has returned. */
struct supervise_spec {
    char *const *argv; /**< NULL-terminated; without a slash argv[0] is looked up in envp's PATH */
    char *const *envp; /**< the whole environment; NULL: an empty one */
    unsigned deadline_ms; /**< at least 1; then the command is told to end */
    unsigned grace_ms;    /**< between TERM and KILL; 0: KILL at once */
    size_t cap;           /**< bytes kept of each of stdout and stderr */
    const void *input;    /**< what stdin holds; NULL: stdin is /dev/null */
    size_t input_len;     /**< bytes at input */
    bool drop_user;       /**< give up root for uid and gid (and every supplementary group) */
    uid_t uid;            /**< used when drop_user */
    gid_t gid;            /**< used when drop_user */
};

/** A running exec. All descriptors are the caller's until supervise_finish() closes them. */
struct supervised {
    pid_t pid;     /**< the supervisor, a child of the caller; the caller must not reap it */
    int pidfd;     /**< readable once it is over */
    int result_fd; /**< private */
    int out_fd;    /**< private */
    int err_fd;    /**< private */
};

/** How an exec ended. The four are never mixed up: only EXEC_EXIT is the command's own word. */
enum exec_state {
    EXEC_EXIT,    /**< exited by itself; value: its exit code (127 is its own 127) */
    EXEC_SIGNAL,  /**< died of a signal that was not ours; value: the signal */
    EXEC_TIMEOUT, /**< ended by us: deadline or cancel; value: the last signal sent, 15 or 9 */
    EXEC_ERROR,   /**< never started; value: errno. EOWNERDEAD: the supervisor was killed */
};

/** The result of an exec. Free with supervise_result_clear(). */
struct exec_result {
    enum exec_state state;
    int value;          /**< see enum exec_state */
    bool out_truncated; /**< stdout went beyond the cap */
    bool err_truncated; /**< stderr went beyond the cap */
    bool leftover;      /**< something survived SIGKILL for 10 s (uninterruptible sleep) */
    unsigned ms;        /**< from start to the command's end, milliseconds */
    char *out;          /**< what it wrote to stdout; NUL-terminated, may hold NULs */
    char *err;          /**< the same for stderr */
    size_t out_len;     /**< bytes at out, without the final NUL */
    size_t err_len;     /**< bytes at err, without the final NUL */
};

/**
 * Starts a command under a supervisor of its own and returns at once.
 *
 * @param spec what to run
 * @param out  filled on success
 * @return 0; -EINVAL (no argv, no deadline); -errno when no supervisor could be started. That
 *         the command itself cannot be started is not known here: it is the result's EXEC_ERROR.
 */
int supervise_start(const struct supervise_spec *spec, struct supervised *out);

/**
 * Collects the result of an exec that is over; to be called when pidfd is readable.
 *
 * Reaps the supervisor, closes every descriptor in @p run and sets them to -1. Does not block.
 *
 * @param run    from supervise_start()
 * @param result filled on success; free with supervise_result_clear()
 * @return 0; -EAGAIN when it is not over yet (nothing was changed); -ENOMEM or -errno when the
 *         result could not be read (everything is closed, nothing is to be freed)
 */
int supervise_finish(struct supervised *run, struct exec_result *result);

/**
 * Asks for the end of an exec before its deadline: TERM, grace, KILL, as at the deadline. Its
 * result will be EXEC_TIMEOUT, unless the command ended first. pidfd still says when.
 *
 * @param run from supervise_start(); may be over already
 */
void supervise_cancel(const struct supervised *run);

/**
 * Ends what was left to the caller by a supervisor that was killed: kills every child of the
 * calling process that is not among @p known, with all its descendants, and reaps the dead ones.
 *
 * Only a caller that is a subreaper (PR_SET_CHILD_SUBREAPER) inherits such children. Does not
 * wait: call it again, on SIGCHLD, until it returns 0.
 *
 * @param known the caller's own children, every one of them
 * @param count how many
 * @return strangers found, killed or reaped just now; or -errno (/proc cannot be read)
 */
int supervise_end_strangers(const pid_t *known, size_t count);

/**
 * Frees what a result holds.
 *
 * @param result may be zeroed; is left zeroed
 */
void supervise_result_clear(struct exec_result *result);

#endif
