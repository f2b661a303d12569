#define _GNU_SOURCE
#include "job.h"

#include "incus.h"
#include "made.h"
#include "output.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct job {
    struct job *next;
    struct supervised run;
    struct watch *watch;
    struct request *request;
    void (*done)(struct request *, const struct exec_result *, int);
    int error; /* no supervisor could be started */
};

static struct job *jobs;

const char *job_folder(void) {
    static char path[32];
    snprintf(path, sizeof(path), "/run/boxdrill-%s", run_id);
    return path;
}

char *const *job_environment(void) {
    static char conf[64], socket[288];
    static char *environment[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LC_ALL=C",
        "TERM=dumb",
        conf,
        socket,
        NULL};
    snprintf(conf, sizeof(conf), "INCUS_CONF=%s", job_folder());
    snprintf(socket, sizeof(socket), "INCUS_SOCKET=%s", incus_socket());
    return environment;
}

/* What the client would write itself: the images' server, which a box CLI names. */
static const char client_configuration[] = "default-remote: local\n"
                                           "remotes:\n"
                                           "  images:\n"
                                           "    addr: https://images.linuxcontainers.org\n"
                                           "    protocol: simplestreams\n"
                                           "    public: true\n";

void job_make_folder(void) {
    char path[64];
    if (!options.root || mkdir(job_folder(), 0700) < 0)
        return;
    snprintf(path, sizeof(path), "%s/config.yml", job_folder());
    FILE *f = fopen(path, "wxe");
    if (f) {
        fputs(client_configuration, f);
        fclose(f);
    }
}

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s;
    (void)type;
    (void)at;
    return remove(path);
}

/* With the host's lock in hand nobody else has such a folder: those of killed runs go too. */
void job_remove_folder(void) {
    glob_t found;
    if (!options.root)
        return;
    if (made_locked() && glob("/run/boxdrill-????????", GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            nftw(found.gl_pathv[i], remove_entry, 8, FTW_DEPTH | FTW_PHYS);
        globfree(&found);
    }
    nftw(job_folder(), remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void unlink_job(struct job *j) {
    for (struct job **p = &jobs; *p; p = &(*p)->next) {
        if (*p == j) {
            *p = j->next;
            return;
        }
    }
}

static void finish(struct job *j, const struct exec_result *result, int error) {
    watch_stop(j->watch);
    unlink_job(j);
    j->request->cancel = NULL;
    if (result && result->leftover)
        output_message("%s: a process of it does not end, even killed", j->request->op->name);
    j->done(j->request, result, error);
    free(j);
}

static void on_end(void *data) {
    struct job *j = data;
    struct exec_result result = {0};
    int r = supervise_finish(&j->run, &result);
    if (r == -EAGAIN)
        return;
    finish(j, r < 0 ? NULL : &result, -r);
    supervise_result_clear(&result);
}

static void on_no_start(void *data) {
    struct job *j = data;
    finish(j, NULL, j->error);
}

static struct job *find(const struct request *r) {
    struct job *j = jobs;
    while (j && j->request != r)
        j = j->next;
    return j;
}

size_t job_output_len(const struct request *r) {
    const struct job *j = find(r);
    struct stat out = {0}, err = {0};
    if (!j || fstat(j->run.out_fd, &out) < 0 || fstat(j->run.err_fd, &err) < 0)
        return 0;
    return (size_t)(out.st_size + err.st_size);
}

static void cancel(struct request *r) {
    const struct job *j = find(r);
    if (j)
        supervise_cancel(&j->run);
}

void job_start(struct request *r, const struct supervise_spec *spec,
               void (*done)(struct request *, const struct exec_result *, int)) {
    struct job *j = calloc(1, sizeof(*j));
    if (!j)
        abort();
    j->error = -supervise_start(spec, &j->run);
    j->request = r;
    j->done = done;
    j->next = jobs;
    jobs = j;
    if (j->error) {
        timer_start(0, on_no_start, j); /* never from in here: callers still use the request */
        return;
    }
    r->cancel = cancel;
    j->watch = watch_start(j->run.pidfd, POLLIN, on_end, j);
}

static void begin_reply(struct request *r, const struct exec_result *result) {
    static const char *const states[] = {[EXEC_EXIT] = "exit",
                                         [EXEC_SIGNAL] = "signal",
                                         [EXEC_TIMEOUT] = "timeout",
                                         [EXEC_ERROR] = "error"};
    reply_begin(r);
    reply_add_text(r, states[result->state]);
    if (result->state == EXEC_ERROR) {
        const char *name = strerrorname_np(result->value);
        reply_add_text(r, name ? name : "EIO");
    } else {
        reply_add_number(r, result->value);
    }
    reply_add_text(r, result->out_truncated || result->err_truncated ? "1" : "0");
    reply_add_number(r, result->ms);
    reply_add(r, result->out, result->out_len);
    reply_add(r, result->err, result->err_len);
}

void job_reply(struct request *r, const struct exec_result *result, int error) {
    if (!result) {
        reply_errno(r, error, "could not supervise the command");
        return;
    }
    begin_reply(r, result);
    reply_send(r);
}

void job_reply_extra(struct request *r, const struct exec_result *result, int error,
                     int64_t extra) {
    if (!result) {
        reply_errno(r, error, "could not supervise the command");
        return;
    }
    begin_reply(r, result);
    reply_add_number(r, extra);
    reply_send(r);
}

void job_reply_output(struct request *r, const struct exec_result *result, int error) {
    if (!result)
        reply_errno(r, error, r->op->name);
    else if (result->state == EXEC_ERROR)
        reply_errno(r, result->value, r->op->name);
    else if (result->state == EXEC_TIMEOUT)
        reply_error(r, "ETIMEDOUT", "%s: no answer in time", r->op->name);
    else if (result->out_truncated)
        reply_error(r, "EMSGSIZE", "%s: more output than a frame may hold", r->op->name);
    else if (result->state != EXEC_EXIT || result->value != 0)
        reply_error(r, "EIO", "%s: %.*s", r->op->name, (int)result->err_len, result->err);
    else {
        reply_begin(r);
        reply_add(r, result->out, result->out_len);
        reply_send(r);
    }
}

void job_run(struct request *r, char *const *argv, const char *input, unsigned ms,
             void (*done)(struct request *, const struct exec_result *, int)) {
    job_start(r,
              &(struct supervise_spec){.argv = argv,
                                       .envp = job_environment(),
                                       .deadline_ms = ms,
                                       .grace_ms = 1000,
                                       .cap = 6 << 20,
                                       .input = input,
                                       .input_len = input ? strlen(input) : 0},
              done);
}

void job_read(struct request *r, char *const *argv, const char *input, unsigned ms) {
    job_run(r, argv, input, ms, job_reply_output);
}

void job_end_strangers(void) {
    size_t n = 0;
    for (const struct job *j = jobs; j; j = j->next)
        n++;
    for (const struct worker *w = worker_list(); w; w = w->next)
        n++;
    pid_t *known = calloc(n + 1, sizeof(*known));
    if (!known)
        abort();
    n = 0;
    for (const struct job *j = jobs; j; j = j->next)
        known[n++] = j->run.pid;
    for (const struct worker *w = worker_list(); w; w = w->next)
        known[n++] = w->pid;
    supervise_end_strangers(known, n);
    free(known);
}

bool job_running(void) {
    return jobs != NULL;
}

void job_cancel_all(void) {
    for (const struct job *j = jobs; j; j = j->next)
        if (j->request->cancel)
            supervise_cancel(&j->run);
}
