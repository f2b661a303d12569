/* Preloaded into boxdrill by tests/lab/lab_crash.sh: kills at its KILL_ATth fsync (from 1). The
 * broker fsyncs the journal and nothing else, so each is a step of the journal. KILL_WHEN: "before"
 * the data is down, "after" that and before the change is asked for, or so many milliseconds later,
 * when it has been. KILL_PIDS: whom, with SIGKILL; 0, and none named, is boxdrill itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void kill_all(void) {
    const char *pids = getenv("KILL_PIDS");
    char *end = NULL;
    for (const char *at = pids && *pids ? pids : "0"; *at; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at)
            break;
        kill(pid ? (pid_t)pid : getpid(), SIGKILL);
    }
}

/* Beside the broker, which goes on. */
static void *later(void *ms) {
    usleep((useconds_t)atoi(ms) * 1000);
    kill_all();
    return NULL;
}

int fsync(int fd) {
    static int count;
    static int (*real)(int);
    const char *at = getenv("KILL_AT");
    char *when = getenv("KILL_WHEN");
    int now = at && when && ++count == atoi(at);
    pthread_t thread;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    if (now && strcmp(when, "before") == 0)
        kill_all();
    int r = real(fd);
    if (now && strcmp(when, "after") == 0)
        kill_all();
    else if (now && strcmp(when, "before") != 0)
        pthread_create(&thread, NULL, later, when);
    return r;
}
