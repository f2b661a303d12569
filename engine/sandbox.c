#define _GNU_SOURCE
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a worker may hold outside Lua's own, capped allocator (lua_state.c): cjson and libc. */
static const rlim_t DATA_LIMIT = (rlim_t)256 << 20;

/* Under AddressSanitizer the runtime reserves terabytes and makes system calls of its own at any
 * time: those builds run the same code with a wider filter and no memory limit. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

int sandbox_landlock_abi(void) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi > 0 ? (int)abi : 0;
}

bool sandbox_seccomp(void) {
    uint32_t action = SCMP_ACT_KILL_PROCESS;
    return syscall(SYS_seccomp, 2 /* SECCOMP_GET_ACTION_AVAIL */, 0, &action) == 0;
}

/* Sanitizers report on descriptor 2. */
static int close_others(int keep) {
    unsigned k = (unsigned)keep;
    if (keep < 3)
        return -EBADF;
    if (close_range(0, SANITIZED ? 1 : 2, 0) < 0 || close_range(k + 1, ~0U, 0) < 0)
        return -errno;
    if (keep > 3 && close_range(3, k - 1, 0) < 0)
        return -errno;
    return 0;
}

/* A uid of this process alone: above every range that /etc/subuid hands out by default (Incus's
 * own is 1000000 to 1001000000), and different for each pid. */
static int drop_uid(void) {
    if (geteuid() != 0)
        return 0;
    uid_t uid = 2000000000U + (uid_t)getpid();
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
        return -errno;
    return 0;
}

static int drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    if (syscall(SYS_capset, &header, none) < 0)
        return -errno;
    return 0;
}

/* Handles every file system right that the running kernel knows and allows none. */
static int landlock_nothing(void) {
    int abi = sandbox_landlock_abi();
    if (abi == 0)
        return 0;
    uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1; /* ABI 1 */
    if (abi >= 2)
        rights |= rights + 1; /* REFER */
    if (abi >= 3)
        rights |= rights + 1; /* TRUNCATE */
    struct landlock_ruleset_attr attr = {.handled_access_fs = rights};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (ruleset < 0)
        return -errno;
    int r = syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
    close(ruleset);
    return r;
}

static int limit(int resource, rlim_t value) {
    struct rlimit l = {value, value};
    return setrlimit(resource, &l) < 0 ? -errno : 0;
}

static int limit_resources(void) {
    int r = limit(RLIMIT_CORE, 0);
    if (r == 0 && !SANITIZED)
        r = limit(RLIMIT_DATA, DATA_LIMIT);
    return r;
}

/* System calls that take no descriptor and reach nothing outside the process. */
static const int plain_calls[] = {
    SCMP_SYS(brk),   SCMP_SYS(munmap),     SCMP_SYS(mremap),          SCMP_SYS(madvise),
    SCMP_SYS(futex), SCMP_SYS(getrandom),  SCMP_SYS(clock_gettime),   SCMP_SYS(rt_sigreturn),
    SCMP_SYS(exit),  SCMP_SYS(exit_group), SCMP_SYS(restart_syscall),
};

/* What the sanitizers' runtime adds when it reports or grows. */
static const int sanitizer_calls[] = {
    SCMP_SYS(sigaltstack), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction), SCMP_SYS(gettid),
    SCMP_SYS(getpid),      SCMP_SYS(sched_yield),    SCMP_SYS(mprotect),     SCMP_SYS(mmap),
};

static int add_calls(scmp_filter_ctx ctx, const int *calls, size_t n) {
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
    return r;
}

/* Anonymous, private, never executable; no other flag: MAP_GROWSDOWN would pass RLIMIT_DATA by. */
static int add_mmap(scmp_filter_ctx ctx) {
    return seccomp_rule_add(
        ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
        SCMP_A2(SCMP_CMP_MASKED_EQ, (scmp_datum_t) ~(PROT_READ | PROT_WRITE), 0),
        SCMP_A3(SCMP_CMP_MASKED_EQ, (scmp_datum_t)~MAP_NORESERVE, MAP_ANONYMOUS | MAP_PRIVATE));
}

static int add_socket(scmp_filter_ctx ctx, int socket) {
    int calls[] = {SCMP_SYS(read), SCMP_SYS(write)};
    int r = 0;
    for (size_t i = 0; i < 2 && r == 0; i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)socket));
    return r;
}

static int filter_calls(int socket) {
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!ctx)
        return -ENOMEM;
    int r = add_calls(ctx, plain_calls, sizeof(plain_calls) / sizeof(*plain_calls));
    if (r == 0)
        r = add_mmap(ctx);
    if (r == 0)
        r = add_socket(ctx, socket);
    if (r == 0 && SANITIZED)
        r = add_calls(ctx, sanitizer_calls, sizeof(sanitizer_calls) / sizeof(*sanitizer_calls));
    if (r == 0 && SANITIZED)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(write), 1, SCMP_A0(SCMP_CMP_EQ, 2));
    if (r == 0)
        r = seccomp_load(ctx);
    seccomp_release(ctx);
    return r;
}

int sandbox_enter(int socket) {
    int r = limit_resources();
    if (r == 0)
        r = close_others(socket);
    if (r == 0)
        r = drop_uid();
    if (r == 0)
        r = drop_capabilities();
    if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    /* After the change of uid, which clears it (prctl(2)). */
    if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        r = -errno;
    if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        r = -errno;
    if (r == 0)
        r = landlock_nothing();
    if (r == 0)
        r = filter_calls(socket);
    return r;
}

/* -- the self-test ------------------------------------------------------------------------- */

/* Each returns 0 when it could do the forbidden thing. */

static int try_open(void) {
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
}

static int try_create(void) {
    char path[64];
    snprintf(path, sizeof(path), "/tmp/boxdrill-selftest-%d", (int)getpid());
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        unlink(path);
    return fd < 0 ? errno : 0;
}

static int try_socket(void) {
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0 ? errno : 0;
}

static int try_unix_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0 ? errno : 0;
}

static int try_execve(void) {
    char *const argv[] = {"true", NULL};
    execve("/bin/true", argv, environ);
    return errno;
}

static int try_fork(void) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid < 0 ? errno : 0;
}

static int try_ptrace(void) {
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ? errno : 0;
}

static int try_kill(void) {
    return kill(getpid(), 0) < 0 ? errno : 0;
}

static int try_exec_memory(void) {
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? errno : 0;
}

static const struct {
    const char *name;
    int (*attempt)(void);
} forbidden[] = {
    {"open a file", try_open},
    {"create a file", try_create},
    {"open an inet socket", try_socket},
    {"open a unix socket", try_unix_socket},
    {"execve", try_execve},
    {"fork", try_fork},
    {"ptrace", try_ptrace},
    {"send a signal", try_kill},
    {"map executable memory", try_exec_memory},
};

enum { COULD_NOT = 10, NO_SANDBOX = 11 };

/* Runs one attempt in a child, in the sandbox or outside; returns its wait status. */
static int attempt_in_child(int (*attempt)(void), bool inside) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int pair[2] = {-1, -1};
        if (inside && (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
                       sandbox_enter(pair[0]) < 0))
            _exit(NO_SANDBOX);
        _exit(attempt() == 0 ? 0 : COULD_NOT);
    }
    int status = -1;
    if (pid > 0 && waitpid(pid, &status, 0) < 0)
        return -1;
    return status;
}

static bool refused(int status) {
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) ||
           (WIFEXITED(status) && WEXITSTATUS(status) == COULD_NOT);
}

int sandbox_selftest(void) {
    int bad = 0;
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(*forbidden); i++) {
        int outside = attempt_in_child(forbidden[i].attempt, false);
        int inside = attempt_in_child(forbidden[i].attempt, true);
        bool works = WIFEXITED(outside) && WEXITSTATUS(outside) == 0;
        bool ok = works && refused(inside);
        bad += !ok;
        printf("%-24s outside: %-14s inside: %-14s %s\n", forbidden[i].name,
               works ? "works" : "does not work",
               refused(inside)                                          ? "refused"
               : WIFEXITED(inside) && WEXITSTATUS(inside) == NO_SANDBOX ? "no sandbox"
                                                                        : "NOT refused",
               ok ? "ok" : "FAILED");
    }
    int abi = sandbox_landlock_abi();
    if (abi)
        printf("landlock: ABI %d\n", abi);
    else
        printf("landlock: not in this kernel; seccomp alone holds the file system back\n");
    printf("%zu passed, %d failed\n", sizeof(forbidden) / sizeof(*forbidden) - (size_t)bad, bad);
    return bad ? 1 : 0;
}
