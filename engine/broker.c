/* A run: the script, its end however it comes, and the revert of what it made. */
#define _GNU_SOURCE
#include "broker.h"

#include "job.h"
#include "made.h"
#include "ops.h"
#include "output.h"
#include "progress.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_MS = 500 };

struct options options;
char run_id[9];

static struct {
    int changing;   /* requests under way that change something */
    int interrupts; /* Ctrl-C, TERM, HUP, or a closed stdout */
    int code;       /* what the script asked to exit with; -1: nothing */
    bool script_failed;
    bool revert_failed;
    bool stopping;             /* broker_stop was called */
    bool stopped;              /* and acted upon */
    struct request *reverting; /* waits for a revert in the middle of the run */
} run = {.code = -1};

void broker_changing(int by) {
    run.changing += by;
}

void broker_exit_code(int code) {
    run.code = code;
}

void broker_stop(const char *why) {
    if (!run.stopping)
        output_message("%s: the run is stopped, and what it made is removed", why);
    run.stopping = true;
}

bool file_trusted(const char *path) {
    struct stat s;
    if (stat(path, &s) < 0)
        return false;
    return (s.st_uid == 0 || s.st_uid == geteuid()) && !(s.st_mode & (S_IWGRP | S_IWOTH));
}

char *read_file(const char *path, size_t max, size_t *len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct buffer b = {0};
    if (fd < 0)
        return NULL;
    ssize_t n = 1;
    while (n > 0 && b.len <= max) {
        buffer_reserve(&b, 65536);
        n = read(fd, b.data + b.len, 65535);
        if (n > 0)
            b.len += (size_t)n;
    }
    int error = n < 0 ? errno : b.len > max ? EFBIG : 0;
    close(fd);
    if (error) {
        buffer_free(&b);
        errno = error;
        return NULL;
    }
    *len = b.len;
    buffer_add(&b, "", 1);
    return b.data;
}

/* -- the end of workers -------------------------------------------------------------------------
 */

/* A revert in the middle of the run: one that failed is not tried again at its end. */
static void answer_revert(const struct worker *w, const char *how) {
    struct request *r = run.reverting;
    run.reverting = NULL;
    run.revert_failed = w->failure || *how;
    if (run.revert_failed)
        reply_error(r, "EIO", "%s", w->failure ? w->failure : how);
    else
        reply_ok(r);
}

static void script_ended(const struct worker *w, const char *how) {
    if (w->kind == KIND_REVERT && run.reverting) {
        answer_revert(w, how);
        return;
    }
    if (w->refused)
        return;
    if (w->failure)
        output_message("%s", w->failure);
    else if (*how && !run.interrupts && !run.stopping)
        output_message("%s %s; last primitive: %s", w->chunk, how, w->last_op);
    else
        return;
    if (w->kind == KIND_REVERT)
        run.revert_failed = true;
    else
        run.script_failed = true;
}

void worker_ended(struct worker *w, const char *how) {
    witness_forget(w);
    if (w->kind == KIND_PROBE)
        probe_ended(w, how);
    else
        script_ended(w, how);
}

/* -- signals --------------------------------------------------------------------------------------
 */

static void end_work(const char *why) {
    for (struct worker *w = worker_list(); w; w = w->next)
        if (w->kind != KIND_REVERT)
            worker_kill(w, why);
    job_cancel_all();
}

/* A reader that has read enough (`| head`) is told nothing, unless something was made. */
static void tell_first(bool closed) {
    const char *how = closed ? "stdout was closed" : "interrupted";
    if (run.changing)
        output_message("%s: waiting for what Incus is in the middle of, then removing what this "
                       "run made",
                       how);
    else if (made_pending())
        output_message("%s: removing what this run made", how);
    else if (!closed)
        output_message("interrupted");
}

/* "HOW:", what is to be removed, one a line, "ADVICE". */
static void tell_leftovers(const char *how, const char *advice) {
    struct buffer b = {0};
    made_describe(&b);
    buffer_add(&b, "", 1);
    output_message("%s:%s\n%s", how, b.data, advice);
    buffer_free(&b);
}

static void interrupt(bool closed) {
    run.interrupts++;
    if (run.interrupts == 1) {
        tell_first(closed);
        end_work("the run was interrupted");
    } else if (run.interrupts == 2 && made_pending()) {
        tell_leftovers("still removing what this run made", "interrupt again to leave that behind");
    } else if (run.interrupts > 2) {
        if (made_pending())
            tell_leftovers("abandoned; left behind", "'boxdrill journal revert' removes it");
        job_remove_folder();
        _exit(made_pending() || run.changing ? STATUS_NOT_REVERTED : STATUS_INTERRUPTED);
    }
}

static void on_signal(void *data) {
    struct signalfd_siginfo info;
    int fd = *(int *)data;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            job_end_strangers();
        else
            interrupt(false);
    }
}

/* Signals come through the loop. The broker is a subreaper: what a killed supervisor leaves behind
 * becomes our child and is ended. */
static void take_signals(void) {
    static int fd;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    watch_start(fd, POLLIN, on_signal, &fd);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* -- the run -------------------------------------------------------------------------------------
 */

static bool running(enum kind kind) {
    for (const struct worker *w = worker_list(); w; w = w->next)
        if (w->kind == kind && !w->killed)
            return true;
    return false;
}

static void step(void) {
    loop_step(STEP_MS);
    worker_check_all();
    progress_tick();
    state_write();
    if (output_closed() && run.interrupts == 0)
        interrupt(true);
    if (run.stopping && !run.stopped) {
        run.stopped = run.script_failed = true;
        end_work("the run was stopped");
    }
}

/* Probes that were loaded and not run end with the script that loaded them. */
static void end_probes(void) {
    for (struct worker *w = worker_list(); w; w = w->next)
        if (w->kind == KIND_PROBE && !w->killed)
            worker_kill(w, "the script that ran it has ended");
}

/* Changes under way are waited for: what they make is only then there to be removed. */
static void drain(void) {
    job_cancel_all();
    while (worker_list() || run.changing > 0 || job_running()) {
        end_probes();
        step();
    }
}

static bool start_revert(void) {
    char path[4096];
    size_t len = 0;
    snprintf(path, sizeof(path), "%s/lua/revert.lua", options.share);
    char *source = read_file(path, 1 << 20, &len);
    uint32_t grants = GRANT_READ | GRANT_REVERT | GRANT_SCRIPT;
    if (source && worker_start(KIND_REVERT, "revert.lua", source, grants))
        return true;
    output_message("cannot start %s: %s", path, strerror(errno));
    return false;
}

void broker_revert(struct request *r) {
    if (run.reverting)
        reply_error(r, "EBUSY", "%s: it is under way", r->op->name);
    else if (!made_pending())
        reply_ok(r);
    else if (!start_revert())
        reply_error(r, "EIO", "%s: it could not be started", r->op->name);
    else
        run.reverting = r;
}

static void revert(void) {
    if (!made_pending() || run.revert_failed)
        return;
    start_revert();
    while (worker_list() || run.changing > 0)
        step();
    run.revert_failed |= made_pending();
}

static int exit_status(void) {
    if (run.revert_failed)
        return STATUS_NOT_REVERTED;
    if (run.interrupts)
        return STATUS_INTERRUPTED;
    int status = probe_status();
    if (status == STATUS_FAIL)
        return STATUS_FAIL; /* whatever the script made of it */
    if (run.code > 0)
        return run.code;
    return run.script_failed ? STATUS_UNSURE : status >= 0 ? status : STATUS_OK;
}

int broker_run(const char *chunk, char *source, bool shipped) {
    take_signals();
    struct worker *w =
        worker_start(KIND_SCRIPT, chunk, source, GRANT_READ | GRANT_SCRIPT | options.given);
    if (!w) {
        output_message("cannot start a worker: %s", strerror(errno));
        return STATUS_UNSURE;
    }
    w->shipped = shipped;
    while (running(KIND_SCRIPT))
        step();
    drain();
    revert();
    if (run.revert_failed)
        tell_leftovers("NOT REVERTED", "'boxdrill journal' says how to remove it by hand, "
                                       "'boxdrill journal revert' tries again");
    made_end();
    job_remove_folder();
    int before = run.interrupts;
    while (output_pending() && run.interrupts == before)
        step();
    output_make_room();
    return exit_status();
}
