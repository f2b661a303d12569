/* What the doctor reads of the host besides op_host.c: the kernel's bridge ports, limits,
 * resolvers, programs, processes, locks, the daemon's log. Fixed lists each; nothing is changed. */
#define _GNU_SOURCE
#include "incus.h"
#include "job.h"
#include "journal.h"
#include "made.h"
#include "ops.h"
#include "state.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MS = 10000, SMALL_FILE = 65536 };

/* host.ports BRIDGE: each port, and the kernel's word on whether it is isolated ("1" or "0"; empty:
 * it could not be read). */
void op_host_ports(struct request *r) {
    char path[64 + 2 * NAME_MAX], *bridge = arg_text(r, 0);
    if (!arg_name(r, 0)) {
        free(bridge);
        return;
    }
    snprintf(path, sizeof(path), "/sys/class/net/%s/brif", bridge);
    DIR *dir = opendir(path);
    if (!dir)
        reply_errno(r, errno, path);
    else {
        reply_begin(r);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
            size_t len = 0;
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "/sys/class/net/%s/brif/%s/isolated", bridge, e->d_name);
            char *text = read_file(path, SMALL_FILE, &len);
            reply_add_text(r, e->d_name);
            reply_add(r, text ? text : "", text && (text[0] == '0' || text[0] == '1') ? 1 : 0);
            free(text);
        }
        closedir(dir);
        reply_send(r);
    }
    free(bridge);
}

/* host.inotify: the limit, and how many more instances this user can have, counted up to 64. The
 * kernel counts a user's instances in every container below, which no list of processes shows: so
 * they are made, and closed at once. */
void op_host_inotify(struct request *r) {
    enum { MANY = 64 };
    int fds[MANY], n = 0;
    size_t len = 0;
    while (n < MANY && (fds[n] = inotify_init1(IN_CLOEXEC)) >= 0)
        n++;
    for (int i = 0; i < n; i++)
        close(fds[i]);
    char *limit = read_file("/proc/sys/fs/inotify/max_user_instances", SMALL_FILE, &len);
    reply_begin(r);
    reply_add(r, limit ? limit : "", limit ? strcspn(limit, "\n") : 0);
    reply_add_number(r, n);
    free(limit);
    reply_send(r);
}

/* host.resolvers: the files that name the host's resolvers, and their texts. With systemd-resolved
 * the first names only its stub, the second what that asks. */
void op_host_resolvers(struct request *r) {
    static const char *const files[] = {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"};
    reply_begin(r);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        size_t len = 0;
        char *text = read_file(files[i], SMALL_FILE, &len);
        if (!text)
            continue;
        reply_add_text(r, files[i]);
        reply_add(r, text, len);
        free(text);
    }
    reply_send(r);
}

/* host.listeners PORT: who holds that port on the host, as `ss` prints it. */
void op_host_listeners(struct request *r) {
    int64_t port = 0;
    char filter[32];
    if (!arg_number(r, 0, 1, 65535, &port))
        return;
    snprintf(filter, sizeof(filter), "sport = :%d", (int)port);
    job_read(r, (char *[]){"ss", "-H", "-l", "-n", "-t", "-u", "-p", filter, NULL}, NULL, READ_MS);
}

/* The first of a comma list's folders that has the program; "" when none has. */
static void add_program(struct request *r, const char *name, const char *folders) {
    char path[256] = "";
    reply_add_text(r, name);
    while (*folders) {
        size_t n = strcspn(folders, ":");
        snprintf(path, sizeof(path), "%.*s/%s", (int)n, folders, name);
        if (access(path, X_OK) == 0) {
            reply_add_text(r, path);
            return;
        }
        folders += n + (folders[n] == ':');
    }
    reply_add_text(r, "");
}

/* host.programs: what a box host has, and where; the path is empty where it is missing. */
void op_host_programs(struct request *r) {
    static const char *const names[] = {"incus", "nft", "dnsmasq", "ip", "ss"};
    const char *path = job_environment()[0] + strlen("PATH=");
    reply_begin(r);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        add_program(r, names[i], path);
    add_program(r, "incusd", "/usr/libexec/incus:/usr/lib/incus:/opt/incus/bin:/usr/sbin:/usr/bin");
    reply_send(r);
}

/* server.socket: the daemon's socket, the group it belongs to, and why it cannot be used: an
 * errno's name, empty when it can. Nothing is sent. */
void op_server_socket(struct request *r) {
    struct stat s;
    const char *path = incus_socket();
    int error = access(path, W_OK) < 0 ? errno : 0;
    const struct group *group = stat(path, &s) == 0 ? getgrgid(s.st_gid) : NULL;
    reply_begin(r);
    reply_add_text(r, path);
    reply_add_text(r, group ? group->gr_name : "");
    reply_add_text(r, error ? strerrorname_np(error) : "");
    reply_send(r);
}

/* host.log: the daemon's last words. */
void op_host_log(struct request *r) {
    job_read(r,
             (char *[]){"journalctl", "-u", "incus.service", "-n", "20", "--no-pager", "-o",
                        "short-iso", "-q", NULL},
             NULL, READ_MS);
}

/* The process that holds a file's lock, 0: nobody else, or the file is not there; -1: not ours to
 * see. Closing a file drops the locks that this very process has on it: one of ours is not opened.
 */
static pid_t lock_holder(const char *file) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (made_locked() && strcmp(file, JOURNAL_LOCK) == 0)
        return 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    bool held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return held ? lock.l_pid : 0;
}

/* host.locks: the files whose locks hold others up, and the process that holds each. */
void op_host_locks(struct request *r) {
    static const char *const files[] = {JOURNAL_LOCK, "/var/lib/dpkg/lock-frontend",
                                        "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock",
                                        "/var/cache/apt/archives/lock"};
    reply_begin(r);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        reply_add_text(r, files[i]);
        reply_add_number(r, lock_holder(files[i]));
    }
    reply_send(r);
}

static void add_run(void *data, const char *run, int64_t age_s, const char *text) {
    struct request *r = data;
    reply_add_text(r, run);
    reply_add_number(r, age_s);
    reply_add_text(r, text);
}

/* host.runs: what other runs are in the middle of. */
void op_host_runs(struct request *r) {
    reply_begin(r);
    state_read(add_run, r);
    reply_send(r);
}

/* -- processes --------------------------------------------------------------------------------- */

struct process {
    int pid, parent;
    char state, name[32];
    int64_t start; /* clock ticks since boot */
    bool shown;
};

/* Reads /proc/PID/stat. The name in it may hold blanks and parentheses: fields count from its end.
 */
static bool read_process(const char *pid, struct process *p) {
    char path[64];
    size_t len = 0;
    snprintf(path, sizeof(path), "/proc/%.16s/stat", pid);
    char *text = read_file(path, SMALL_FILE, &len);
    const char *open = text ? strchr(text, '(') : NULL, *end = text ? strrchr(text, ')') : NULL;
    bool ok = open && end && end > open;
    if (ok) {
        long long start = 0;
        *p = (struct process){.pid = atoi(pid)};
        snprintf(p->name, sizeof(p->name), "%.*s", (int)(end - open - 1), open + 1);
        ok = sscanf(end + 1,
                    " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                    "%lld",
                    &p->state, &p->parent, &start) == 3;
        p->start = start;
    }
    free(text);
    return ok;
}

/* What a stalled drill may be waiting for, by name or by the beginning of it. */
static bool is_shown(const char *name) {
    static const char *const names[] = {"boxdrill", "bd:",  "incusd",          "incus",
                                        "dnsmasq",  "apt",  "unattended-upgr", "dpkg",
                                        "nft",      "guest"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static size_t read_processes(struct process **out) {
    size_t n = 0, room = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        if (n == room) {
            room = room ? 2 * room : 256;
            *out = reallocarray(*out, room, sizeof(**out));
            if (!*out)
                abort();
        }
        n += read_process(e->d_name, &(*out)[n]);
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Whether its parent is one of boxdrill's that is shown: what a run started is shown, too. */
static bool child_of_run(const struct process *all, size_t n, const struct process *p) {
    for (size_t i = 0; i < n; i++)
        if (all[i].pid == p->parent)
            return all[i].shown && strncmp(all[i].name, "boxdrill", 8) == 0;
    return false;
}

/* A process of a box has a PID namespace of its own. "own", "other"; "" when that is not ours to
 * see. */
static const char *namespace_of(int pid) {
    char path[64];
    struct stat own, its;
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    if (stat("/proc/self/ns/pid", &own) < 0 || stat(path, &its) < 0)
        return "";
    return own.st_ino == its.st_ino ? "own" : "other";
}

static void add_process(struct request *r, const struct process *p, int64_t now_ticks) {
    char path[64], state[2] = {p->state, 0};
    size_t len = 0;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", p->pid);
    char *command = read_file(path, SMALL_FILE, &len);
    len = command && len > 300 ? 300 : len;
    for (size_t i = 0; command && i < len; i++)
        if (!command[i])
            command[i] = ' ';
    reply_add_number(r, p->pid);
    reply_add_number(r, p->parent);
    reply_add_text(r, state);
    reply_add_number(r, (now_ticks - p->start) / sysconf(_SC_CLK_TCK));
    reply_add_text(r, namespace_of(p->pid));
    reply_add_text(r, p->name);
    reply_add(r, command ? command : "", command ? len : 0);
    free(command);
}

/* host.processes: pid, parent, state, age in seconds, namespace, name, command line of those that a
 * drill may be waiting for. */
void op_host_processes(struct request *r) {
    struct process *all = NULL;
    size_t n = read_processes(&all), len = 0;
    char *uptime = read_file("/proc/uptime", SMALL_FILE, &len);
    int64_t now = uptime ? (int64_t)(strtod(uptime, NULL) * (double)sysconf(_SC_CLK_TCK)) : 0;
    for (size_t i = 0; i < n; i++)
        all[i].shown = is_shown(all[i].name);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++)
            if (!all[i].shown && child_of_run(all, n, &all[i]))
                more = all[i].shown = true;
    }
    reply_begin(r);
    for (size_t i = 0; i < n; i++)
        if (all[i].shown && all[i].pid != getpid())
            add_process(r, &all[i], now);
    reply_send(r);
    free(uptime);
    free(all);
}
