/*
 * See supervise.h for what this promises and docs/exec.md for why it is built this way.
 *
 * Reading order: walk_* finds and signals descendants; command_* is the command's side of the
 * fork; sup_* is the supervisor; supervise_* is the caller's side.
 */
#define _GNU_SOURCE
#include "supervise.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The kernel's PID_MAX_LIMIT on 64 bit (include/linux/threads.h): no pid is larger. */
#define PID_LIMIT (4U * 1024 * 1024)
/* A pass over /proc that finds a new descendant is followed by another, at most this often. */
#define WALK_PASSES 64
/* How long SIGKILL is repeated before what is left is called unkillable. */
#define KILL_PATIENCE_MS 10000
/* How often SIGKILL is repeated. */
#define KILL_EVERY_MS 20
#define RECORD_MAGIC  0x62647265U

/** What the supervisor writes to the result pipe as its last act, in one write. */
struct record {
    uint32_t magic;
    int32_t state;
    int32_t value;
    uint32_t ms;
    uint8_t truncated[2];
    uint8_t leftover;
    uint8_t zero;
};

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

#define cleanup_fd __attribute__((cleanup(close_fd)))

static int take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

static void close_dir(DIR **dir) {
    if (*dir)
        closedir(*dir);
}

#define cleanup_dir __attribute__((cleanup(close_dir)))

static int64_t now_ms(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* glibc has wrappers since 2.36 only. */
static int sys_pidfd_open(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0U);
}

static int sys_pidfd_send_signal(int pidfd, int sig) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0U);
}

/* ---- descendants ------------------------------------------------------------------------- */

/** Which processes are ours: children of root that are not in except, and all below them. */
struct walk {
    pid_t root;
    const pid_t *except;
    size_t except_count;
    bool reap;      /* take away root's dead children as well */
    uint64_t *seen; /* one bit for each pid, so that a pass costs nothing but reading /proc */
};

static uint64_t *seen_new(void) {
    void *map = mmap(NULL, PID_LIMIT / 8, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return map == MAP_FAILED ? NULL : map;
}

static void seen_free(uint64_t **seen) {
    if (*seen)
        munmap(*seen, PID_LIMIT / 8);
    *seen = NULL;
}

#define cleanup_seen __attribute__((cleanup(seen_free)))

static bool seen_get(const uint64_t *seen, pid_t pid) {
    return pid > 0 && (uint32_t)pid < PID_LIMIT && (seen[pid / 64] >> (pid % 64) & 1);
}

static void seen_set(uint64_t *seen, pid_t pid) {
    if (pid > 0 && (uint32_t)pid < PID_LIMIT)
        seen[pid / 64] |= UINT64_C(1) << (pid % 64);
}

static pid_t parse_pid(const char *name) {
    pid_t pid = 0;

    for (; *name >= '0' && *name <= '9' && pid < (pid_t)PID_LIMIT; name++)
        pid = pid * 10 + (*name - '0');
    return *name == '\0' ? pid : 0;
}

/* The parent of a process and whether it is a zombie (no children, takes no signal); 0 when it is
 * gone. The name in parentheses may hold anything, so the last ')' counts. */
static pid_t parent_of(int proc, const char *pid, bool *zombie) {
    char path[32];
    char text[512];
    const char *p;
    ssize_t n;

    snprintf(path, sizeof(path), "%.16s/stat", pid);
    cleanup_fd int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    p = strrchr(text, ')');
    if (!p || strlen(p) < 5)
        return 0;
    *zombie = p[2] == 'Z' || p[2] == 'X';
    return (pid_t)strtol(p + 4, NULL, 10);
}

static bool is_known(const pid_t *known, size_t count, pid_t pid) {
    for (size_t i = 0; i < count; i++)
        if (known[i] == pid)
            return true;
    return false;
}

static bool walk_owns(const struct walk *w, pid_t pid, pid_t parent) {
    if (parent != w->root)
        return seen_get(w->seen, parent);
    return !is_known(w->except, w->except_count, pid);
}

/* A pid may be reused between reading /proc and the signal. The pidfd pins a process; that it
 * is ours is then read once more, so the signal reaches the process that was looked at. */
static void walk_signal(const struct walk *w, int proc, const char *name, pid_t pid, int sig) {
    bool zombie = true;
    pid_t parent;
    cleanup_fd int pidfd = sys_pidfd_open(pid);

    if (pidfd < 0)
        return;
    parent = parent_of(proc, name, &zombie);
    if (zombie || !walk_owns(w, pid, parent))
        return;
    sys_pidfd_send_signal(pidfd, sig);
    if (sig == SIGTERM) /* a stopped process would only see it when continued */
        sys_pidfd_send_signal(pidfd, SIGCONT);
}

/* Looks at one process: signals it, or reaps it, if it is ours. Returns whether it did. */
static bool walk_visit(struct walk *w, int proc, const char *name, int sig) {
    pid_t pid = parse_pid(name);
    bool zombie = true;
    pid_t parent;

    if (pid <= 0 || pid == w->root || seen_get(w->seen, pid))
        return false;
    parent = parent_of(proc, name, &zombie);
    if (!parent || !walk_owns(w, pid, parent))
        return false;
    if (zombie)
        return w->reap && parent == w->root && waitpid(pid, NULL, WNOHANG | __WALL) == pid;
    seen_set(w->seen, pid);
    walk_signal(w, proc, name, pid, sig);
    return true;
}

/* One pass over /proc: signals the descendants that were not seen before. Returns how many. */
static int walk_pass(struct walk *w, DIR *dir, int sig) {
    const struct dirent *entry;
    int found = 0;

    rewinddir(dir);
    while ((entry = readdir(dir)))
        found += walk_visit(w, dirfd(dir), entry->d_name, sig);
    return found;
}

/* Sends sig to every descendant, until a pass finds no new one. Returns how many, or -errno. */
static int walk_all(struct walk *w, int sig) {
    int total = 0;
    cleanup_dir DIR *dir = opendir("/proc");

    if (!dir)
        return -errno;
    madvise(w->seen, PID_LIMIT / 8, MADV_DONTNEED);
    for (int pass = 0; pass < WALK_PASSES; pass++) {
        int found = walk_pass(w, dir, sig);

        if (found == 0)
            break;
        total += found;
    }
    return total;
}

/* ---- the command's side ------------------------------------------------------------------ */

/** The supervisor's state. */
struct sup {
    const struct supervise_spec *spec;
    pid_t command;    /* 0: could not even be forked */
    int result_fd;    /* where the record goes */
    int sink[2];      /* memfds for stdout and stderr */
    int input;        /* the command's stdin */
    int pipe[2];      /* read ends of its stdout and stderr; -1 once closed */
    int start_fd;     /* holds an errno if the command could not be started */
    int signal_fd;    /* SIGCHLD and SIGTERM */
    size_t kept[2];   /* bytes in the sinks */
    int64_t started;  /* ms, monotonic */
    int64_t next;     /* ms, monotonic: when the current phase ends */
    int64_t patience; /* ms, monotonic: when killing is given up */
    int sent;         /* strongest signal sent to it so far */
    bool reaped;      /* the command is gone; record holds how */
    bool childless;   /* nothing is left */
    struct walk walk;
    struct record record;
};

/* Signals are all blocked in the supervisor, and what the caller ignored is inherited. */
static void command_reset_signals(void) {
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int command_drop_user(const struct supervise_spec *spec) {
    if (!spec->drop_user)
        return 0;
    if (setgroups(0, NULL) || setresgid(spec->gid, spec->gid, spec->gid) ||
        setresuid(spec->uid, spec->uid, spec->uid))
        return -errno;
    return 0;
}

static const char *path_of(char *const *envp) {
    for (; envp && *envp; envp++)
        if (strncmp(*envp, "PATH=", 5) == 0)
            return *envp + 5;
    return "/usr/bin:/bin";
}

/* execvp() would search the caller's PATH, not the command's, and would hand a file without an
 * interpreter line to a shell. Returns only on failure, with the errno that says most: a file
 * that is there but cannot be run (EACCES) beats one that is not there. */
static int command_exec(const struct supervise_spec *spec) {
    static char *const no_env[] = {NULL};
    char *const *envp = spec->envp ? spec->envp : no_env;
    const char *name = spec->argv[0];
    int error = ENOENT;

    if (strchr(name, '/')) {
        execve(name, spec->argv, envp);
        return errno;
    }
    for (const char *dir = path_of(envp), *end; *dir; dir = *end ? end + 1 : end) {
        char full[4096];

        end = strchrnul(dir, ':');
        if (end == dir || (size_t)(end - dir) + strlen(name) + 2 > sizeof(full))
            continue;
        snprintf(full, sizeof(full), "%.*s/%s", (int)(end - dir), dir, name);
        execve(full, spec->argv, envp);
        if (errno == EACCES)
            error = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR)
            return errno;
    }
    return error;
}

/* Everything between fork and exec. The order matters: a change of uid clears the death signal,
 * so that comes after it, and the check for a parent that is already gone comes last. */
static int command_prepare(const struct sup *s, pid_t supervisor, const int io[3]) {
    int error;

    if (setsid() < 0)
        return errno;
    for (int i = 0; i < 3; i++)
        if (dup2(io[i], i) < 0)
            return errno;
    umask(022);
    error = command_drop_user(s->spec);
    if (error)
        return -error;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        return errno;
    if (getppid() != supervisor)
        _exit(127);
    command_reset_signals();
    return command_exec(s->spec);
}

static _Noreturn void command_main(const struct sup *s, pid_t supervisor, const int io[3],
                                   int start_fd) {
    int error = command_prepare(s, supervisor, io);
    ssize_t ignored = write(start_fd, &error, sizeof(error));

    (void)ignored;
    _exit(127);
}

/* ---- the supervisor ---------------------------------------------------------------------- */

/* Moves the four descriptors that are needed to 3..6 and closes all others: the caller's
 * journal, sockets and terminals are none of a command's business. 0 to 2 become /dev/null, so
 * that no later pipe lands there. */
static int sup_keep_fds(struct sup *s) {
    int *want[] = {&s->result_fd, &s->sink[0], &s->sink[1], &s->input};
    int null;

    for (int i = 0; i < 4; i++) {
        *want[i] = fcntl(*want[i], F_DUPFD_CLOEXEC, 16);
        if (*want[i] < 0)
            return -errno;
    }
    for (int i = 0; i < 4; i++)
        if ((*want[i] = dup3(*want[i], 3 + i, O_CLOEXEC)) < 0)
            return -errno;
    if (syscall(SYS_close_range, 7U, ~0U, 0U))
        return -errno;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return -errno;
    for (int i = 0; i < 3; i++)
        if (dup2(null, i) < 0)
            return -errno;
    close(null);
    return 0;
}

/* All signals are blocked since before the fork. SIGCHLD must not be ignored, or children would
 * vanish unseen. */
static int sup_signals(struct sup *s) {
    sigset_t mine;

    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&mine);
    sigaddset(&mine, SIGCHLD);
    sigaddset(&mine, SIGTERM);
    s->signal_fd = signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signal_fd < 0 ? -errno : 0;
}

static int sup_setup(struct sup *s) {
    int r = sup_keep_fds(s);

    if (r)
        return r;
    setsid();
    prctl(PR_SET_NAME, "boxdrill-super");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1))
        return -errno;
    /* Now, not when it is needed: memory may be what the command eats. */
    s->walk = (struct walk){.root = getpid(), .seen = seen_new()};
    if (!s->walk.seen)
        return -ENOMEM;
    return sup_signals(s);
}

static int open_pipe(int *reader, int *writer) {
    int ends[2];

    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    *reader = ends[0];
    *writer = ends[1];
    return fcntl(ends[0], F_SETFL, O_NONBLOCK) ? -errno : 0;
}

/* Starts the command. The write ends live on in the command alone. */
static int sup_spawn(struct sup *s) {
    cleanup_fd int out = -1;
    cleanup_fd int err = -1;
    cleanup_fd int start = -1;
    pid_t self = getpid();
    int r;

    if ((r = open_pipe(&s->pipe[0], &out)) || (r = open_pipe(&s->pipe[1], &err)) ||
        (r = open_pipe(&s->start_fd, &start)))
        return r;
    s->started = now_ms();
    s->next = s->started + s->spec->deadline_ms;
    s->command = fork();
    if (s->command < 0)
        return -errno;
    if (s->command == 0)
        command_main(s, self, (const int[3]){s->input, out, err}, start);
    close_fd(&s->input);
    return 0;
}

static void sup_keep(struct sup *s, int i, const char *data, size_t len) {
    size_t room = s->spec->cap - s->kept[i];
    size_t take = len < room ? len : room;

    if (take < len)
        s->record.truncated[i] = 1;
    while (take > 0) {
        ssize_t n = write(s->sink[i], data, take);

        if (n <= 0) { /* no memory for it: say that something is missing */
            s->record.truncated[i] = 1;
            return;
        }
        s->kept[i] += (size_t)n;
        data += n;
        take -= (size_t)n;
    }
}

/* Reads at most limit bytes, so that a writer without end cannot keep us from looking at the
 * clock. */
static void sup_drain(struct sup *s, int i, size_t limit) {
    char buffer[65536];

    while (s->pipe[i] >= 0 && limit > 0) {
        size_t want = limit < sizeof(buffer) ? limit : sizeof(buffer);
        ssize_t n = read(s->pipe[i], buffer, want);

        if (n < 0)
            return;
        if (n == 0) {
            close_fd(&s->pipe[i]);
            return;
        }
        sup_keep(s, i, buffer, (size_t)n);
        limit -= (size_t)n;
    }
}

/* The command is gone: what it wrote is in the pipes. Take exactly that much and close them,
 * because a grandchild may hold the other end for ever and may go on writing. */
static void sup_drain_last(struct sup *s) {
    for (int i = 0; i < 2; i++) {
        int held = 0;

        if (s->pipe[i] >= 0 && ioctl(s->pipe[i], FIONREAD, &held) == 0 && held > 0)
            sup_drain(s, i, (size_t)held);
        close_fd(&s->pipe[i]);
    }
}

static void sup_judge(struct sup *s, int status) {
    int error = 0;

    s->reaped = true;
    s->record.ms = (uint32_t)(now_ms() - s->started);
    if (read(s->start_fd, &error, sizeof(error)) == (ssize_t)sizeof(error)) {
        s->record.state = EXEC_ERROR;
        s->record.value = error;
    } else if (s->sent) {
        s->record.state = EXEC_TIMEOUT;
        s->record.value = s->sent;
    } else if (WIFSIGNALED(status)) {
        s->record.state = EXEC_SIGNAL;
        s->record.value = WTERMSIG(status);
    } else {
        s->record.state = EXEC_EXIT;
        s->record.value = WEXITSTATUS(status);
    }
    sup_drain_last(s);
}

/* Every orphaned descendant becomes our child, so no child left means no descendant left. */
static void sup_reap(struct sup *s) {
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
        if (pid == s->command)
            sup_judge(s, status);
    s->childless = pid < 0 && errno == ECHILD;
}

/* Where /proc hides it, the command and its process group are signalled directly: that is safe
 * for as long as the command is not reaped, and nobody gets a signal twice. */
static void sup_signal(struct sup *s, int sig) {
    walk_all(&s->walk, sig);
    if (s->reaped || seen_get(s->walk.seen, s->command))
        return;
    kill(s->command, sig);
    kill(-s->command, sig);
    if (sig == SIGTERM)
        kill(-s->command, SIGCONT);
}

/* Stop them all before the kill: what is stopped cannot fork, so a pass that finds nobody new
 * has found everybody. */
static void sup_kill(struct sup *s) {
    if (!s->patience)
        s->patience = now_ms() + KILL_PATIENCE_MS;
    if (!s->reaped)
        s->sent = SIGKILL;
    sup_signal(s, SIGSTOP);
    sup_signal(s, SIGKILL);
    s->next = now_ms() + KILL_EVERY_MS;
}

static void sup_term(struct sup *s) {
    if (!s->reaped)
        s->sent = SIGTERM;
    sup_signal(s, SIGTERM);
    s->next = now_ms() + s->spec->grace_ms;
}

/* The phases: running until the deadline, then told to end until the grace is over, then killed
 * again and again. A command that ended by itself and left somebody enters the second. */
static void sup_advance(struct sup *s, bool cancelled, bool *told) {
    if (!*told && (cancelled || s->reaped || now_ms() >= s->next)) {
        *told = true;
        if (s->spec->grace_ms > 0)
            sup_term(s);
        else
            s->next = 0;
    }
    if (*told && now_ms() >= s->next)
        sup_kill(s);
}

static bool sup_cancelled(const struct sup *s) {
    struct signalfd_siginfo info;
    bool term = false;

    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        term |= info.ssi_signo == SIGTERM;
    return term;
}

static bool sup_wait(const struct sup *s) {
    int64_t left = s->next - now_ms();
    struct pollfd fds[3] = {
        {.fd = s->signal_fd, .events = POLLIN},
        {.fd = s->pipe[0], .events = POLLIN},
        {.fd = s->pipe[1], .events = POLLIN},
    };

    poll(fds, 3, left < 0 ? 0 : left > 60000 ? 60000 : (int)left);
    return fds[0].revents != 0;
}

/* Until nothing is left, or what is left withstood SIGKILL for so long that it never will. */
static void sup_loop(struct sup *s) {
    bool told = false;

    for (;;) {
        bool cancelled = sup_wait(s) && sup_cancelled(s);

        sup_reap(s);
        sup_drain(s, 0, 1 << 20);
        sup_drain(s, 1, 1 << 20);
        if (s->childless)
            return;
        sup_advance(s, cancelled, &told);
        if (s->patience && now_ms() >= s->patience)
            break;
    }
    s->record.leftover = 1;
    if (!s->reaped)
        sup_judge(s, 0);
}

static int sup_run(struct sup *s, pid_t broker) {
    int r = sup_setup(s);

    if (r)
        return r;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != broker) /* it died before the line above: nothing was started yet */
        _exit(1);
    r = sup_spawn(s);
    if (r)
        return r;
    sup_loop(s);
    return 0;
}

static void __attribute__((noreturn)) sup_main(struct sup *s, pid_t broker) {
    int r = sup_run(s, broker);
    ssize_t ignored;

    if (r) {
        s->record.state = EXEC_ERROR;
        s->record.value = -r;
    }
    s->record.magic = RECORD_MAGIC;
    ignored = write(s->result_fd, &s->record, sizeof(s->record));
    (void)ignored;
    _exit(0);
}

/* ---- the caller's side ------------------------------------------------------------------- */

static int open_input(const struct supervise_spec *spec, int *fd) {
    const char *data = spec->input;
    size_t left = spec->input_len;

    *fd = data ? memfd_create("boxdrill-in", MFD_CLOEXEC) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return -errno;
    while (data && left > 0) {
        ssize_t n = write(*fd, data, left);

        if (n < 0)
            return -errno;
        data += n;
        left -= (size_t)n;
    }
    return data && lseek(*fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

/* Signals stay blocked from before the fork until the supervisor has its own, or a handler of
 * the caller's would run in it. */
static pid_t fork_supervisor(struct sup *s) {
    pid_t self = getpid();
    sigset_t all;
    sigset_t before;
    pid_t pid;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        sup_main(s, self);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid < 0 ? -errno : pid;
}

/* A supervisor that cannot be watched is of no use; it has to be gone before we return. */
static int watch_supervisor(pid_t pid, int *pidfd) {
    int error;

    *pidfd = sys_pidfd_open(pid);
    if (*pidfd >= 0)
        return 0;
    error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -error;
}

int supervise_start(const struct supervise_spec *spec, struct supervised *out) {
    cleanup_fd int sink_out = memfd_create("boxdrill-out", MFD_CLOEXEC);
    cleanup_fd int sink_err = memfd_create("boxdrill-err", MFD_CLOEXEC);
    cleanup_fd int input = -1;
    cleanup_fd int reader = -1;
    cleanup_fd int writer = -1;
    int pidfd;
    int r;

    if (!spec->argv || !spec->argv[0] || !spec->deadline_ms)
        return -EINVAL;
    if (sink_out < 0 || sink_err < 0)
        return -EMFILE;
    if ((r = open_input(spec, &input)) || (r = open_pipe(&reader, &writer)))
        return r;
    struct sup s = {
        .spec = spec,
        .result_fd = writer,
        .sink = {sink_out, sink_err},
        .input = input,
        .pipe = {-1, -1},
        .start_fd = -1,
        .signal_fd = -1,
    };
    pid_t pid = fork_supervisor(&s);
    if (pid < 0)
        return pid;
    r = watch_supervisor(pid, &pidfd);
    if (r)
        return r;
    *out =
        (struct supervised){pid, pidfd, take_fd(&reader), take_fd(&sink_out), take_fd(&sink_err)};
    return 0;
}

void supervise_cancel(const struct supervised *run) {
    sys_pidfd_send_signal(run->pidfd, SIGTERM);
}

/* Reaps the supervisor. ECHILD is fine: somebody else reaped it, and the record tells the rest. */
static int reap_supervisor(const struct supervised *run) {
    siginfo_t info = {0};
    struct pollfd over = {.fd = run->pidfd, .events = POLLIN};

    if (poll(&over, 1, 0) != 1)
        return -EAGAIN;
    if (waitid(P_PID, (id_t)run->pid, &info, WEXITED | WNOHANG) && errno != ECHILD)
        return -errno;
    return 0;
}

static void read_record(int fd, struct exec_result *result) {
    struct record record;

    if (read(fd, &record, sizeof(record)) != (ssize_t)sizeof(record) ||
        record.magic != RECORD_MAGIC) {
        result->state = EXEC_ERROR;
        result->value = EOWNERDEAD;
        return;
    }
    result->state = (enum exec_state)record.state;
    result->value = record.value;
    result->ms = record.ms;
    result->out_truncated = record.truncated[0];
    result->err_truncated = record.truncated[1];
    result->leftover = record.leftover;
}

static int read_sink(int fd, char **text, size_t *len) {
    struct stat st;
    size_t have = 0;

    if (fstat(fd, &st))
        return -errno;
    *text = malloc((size_t)st.st_size + 1);
    if (!*text)
        return -ENOMEM;
    while (have < (size_t)st.st_size) {
        ssize_t n = pread(fd, *text + have, (size_t)st.st_size - have, (off_t)have);

        if (n <= 0)
            break;
        have += (size_t)n;
    }
    (*text)[have] = '\0';
    *len = have;
    return 0;
}

int supervise_finish(struct supervised *run, struct exec_result *result) {
    int r = reap_supervisor(run);

    if (r)
        return r;
    memset(result, 0, sizeof(*result));
    read_record(run->result_fd, result);
    r = read_sink(run->out_fd, &result->out, &result->out_len);
    if (!r)
        r = read_sink(run->err_fd, &result->err, &result->err_len);
    if (r)
        supervise_result_clear(result);
    close_fd(&run->pidfd);
    close_fd(&run->result_fd);
    close_fd(&run->out_fd);
    close_fd(&run->err_fd);
    return r;
}

/* Whether all our children are known: the usual case, for one read instead of a walk over /proc.
 * A kernel without the file (CONFIG_PROC_CHILDREN) cannot say. */
static bool only_known(const pid_t *known, size_t count) {
    char text[16384];
    cleanup_fd int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = -1;

    while (fd >= 0 && len < sizeof(text) - 1 &&
           (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    if (n != 0)
        return false;
    text[len] = '\0';
    for (char *p = text, *end;; p = end) {
        long pid = strtol(p, &end, 10);

        if (end == p)
            return true;
        if (!is_known(known, count, (pid_t)pid))
            return false;
    }
}

int supervise_end_strangers(const pid_t *known, size_t count) {
    cleanup_seen uint64_t *seen = seen_new();
    struct walk w = {
        .root = getpid(), .except = known, .except_count = count, .reap = true, .seen = seen};

    if (only_known(known, count))
        return 0;
    if (!seen)
        return -ENOMEM;
    return walk_all(&w, SIGKILL);
}

void supervise_result_clear(struct exec_result *result) {
    free(result->out);
    free(result->err);
    memset(result, 0, sizeof(*result));
}
