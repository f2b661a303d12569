/* Preloaded into boxdrill by tests/lab/lab_crash.sh: SIGKILLs the process at its Nth fsync, before
 * or after the data is down. The broker fsyncs the journal and nothing else. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fsync(int fd) {
    static int count;
    static int (*real)(int);
    const char *at = getenv("KILL_AT"), *when = getenv("KILL_WHEN");
    int now = at && ++count == atoi(at);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    if (now && when && strcmp(when, "before") == 0)
        kill(getpid(), SIGKILL);
    int r = real(fd);
    if (now)
        kill(getpid(), SIGKILL);
    return r;
}
