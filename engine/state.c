/* What this run is in the middle of, kept in its folder for whoever looks from outside. */
#define _GNU_SOURCE
#include "state.h"

#include "broker.h"
#include "job.h"
#include "made.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EVERY_MS = 1000, MAX_STATE = 1 << 20 };

/* A loaded probe waits to be run by asking for that: it holds nobody up. */
static bool is_waiting(const struct request *r) {
    return !r->op || strcmp(r->op->name, "declare") == 0;
}

static void describe(struct buffer *b) {
    for (const struct request *r = request_list(); r; r = r->next)
        if (!is_waiting(r))
            buffer_printf(b, "%s %s %lld\n", r->worker ? r->worker->chunk : "-", r->op->name,
                          (long long)(now_ms() - r->started_ms));
}

void state_write(void) {
    static int64_t last;
    if (!options.root || !made_locked() || now_ms() - last < EVERY_MS)
        return;
    last = now_ms();
    char path[64], temporary[72];
    snprintf(path, sizeof(path), "%s/state", job_folder());
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    job_make_folder();
    struct buffer text = {0};
    describe(&text);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    /* Who looks must make do with what is there: a full /run is no reason to end a run. */
    if (fd >= 0 && write(fd, text.data ? text.data : "", text.len) == (ssize_t)text.len)
        rename(temporary, path);
    if (fd >= 0)
        close(fd);
    buffer_free(&text);
}

void state_read(void (*each)(void *, const char *run, int64_t age_s, const char *text),
                void *data) {
    glob_t found;
    if (glob("/run/boxdrill-*/state", 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct stat s;
        size_t len = 0;
        char run[9] = "";
        char *text = read_file(found.gl_pathv[i], MAX_STATE, &len);
        snprintf(run, sizeof(run), "%.8s", found.gl_pathv[i] + strlen("/run/boxdrill-"));
        if (text && stat(found.gl_pathv[i], &s) == 0 && strcmp(run, run_id) != 0)
            each(data, run, time(NULL) - s.st_mtime, text);
        free(text);
    }
    globfree(&found);
}
