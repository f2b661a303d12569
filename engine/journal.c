#define _GNU_SOURCE
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "boxdrill-journal 1\n"

enum { MAX_JOURNAL = 4 << 20 };

static int lock_fd = -1;

static int make_folder(void) {
    return mkdir(JOURNAL_DIR, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* A POSIX record lock: the kernel drops it with the process, no child inherits it, and it can be
 * asked who holds it. The descriptor stays open for good: closing any would drop the lock. */
int journal_lock(pid_t *holder) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (lock_fd >= 0)
        return 0;
    int r = make_folder();
    if (r < 0)
        return r;
    int fd = open(JOURNAL_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (fcntl(fd, F_SETLK, &l) == 0) {
        lock_fd = fd;
        return 0;
    }
    r = errno == EACCES ? -EAGAIN : -errno;
    *holder = fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK ? l.l_pid : 0;
    close(fd);
    return r;
}

/* FNV-1a: tells a line that was cut or overwritten, not one that was forged. */
static uint32_t checksum(const char *text, size_t len) {
    uint32_t sum = 2166136261U;
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ (unsigned char)text[i]) * 16777619U;
    return sum;
}

/* Parses one line without its newline. */
static bool parse(const char *text, size_t len, struct journal_line *out) {
    char copy[320], sum[9];
    long long when = 0;
    const char *last = memrchr(text, ' ', len);
    if (len >= sizeof(copy) || !last)
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    snprintf(sum, sizeof(sum), "%08x", checksum(text, (size_t)(last - text)));
    if (strcmp(copy + (last - text) + 1, sum) != 0)
        return false;
    if (sscanf(copy, "%7s %15s %15s %63s %63s %111s %lld", out->verb, out->run, out->kind,
               out->project, out->name, out->extra, &when) != 7)
        return false;
    out->time = when;
    return true;
}

static int read_lines(const char *text, size_t len,
                      void (*each)(void *, const struct journal_line *), void *data) {
    while (len) {
        struct journal_line line;
        const char *end = memchr(text, '\n', len);
        if (!end)
            return JOURNAL_CUT;
        if (!parse(text, (size_t)(end - text), &line))
            return JOURNAL_DAMAGED;
        each(data, &line);
        len -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    return JOURNAL_WHOLE;
}

int journal_read(void (*each)(void *, const struct journal_line *), void *data) {
    static const size_t head = sizeof(HEADER) - 1;
    int fd = open(JOURNAL_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? JOURNAL_WHOLE : -errno;
    cleanup_buffer struct buffer b = {0};
    ssize_t n = 1;
    while (n > 0 && b.len < MAX_JOURNAL) {
        buffer_reserve(&b, 65536);
        n = read(fd, b.data + b.len, 65536);
        if (n > 0)
            b.len += (size_t)n;
    }
    int r = n < 0 ? -errno : 0;
    close(fd);
    if (r < 0)
        return r;
    if (b.len < head) /* cut in its first line, before anything was announced */
        return memcmp(b.data, HEADER, b.len) == 0 ? JOURNAL_CUT : JOURNAL_VERSION;
    if (memcmp(b.data, HEADER, head) != 0)
        return JOURNAL_VERSION;
    return read_lines(b.data + head, b.len - head, each, data);
}

static int sync_folder(void) {
    int fd = open(JOURNAL_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    return r;
}

/* Writes all or nothing: a line that did not fit is cut off again. */
static int append(int fd, const char *text, size_t len) {
    off_t before = lseek(fd, 0, SEEK_END);
    if (before < 0)
        return -errno;
    ssize_t n = write(fd, text, len);
    if (n == (ssize_t)len && fsync(fd) == 0)
        return 0;
    int r = n >= 0 && n < (ssize_t)len ? -ENOSPC : -errno;
    if (ftruncate(fd, before) < 0)
        return -errno;
    return r;
}

int journal_append(const struct journal_line *line) {
    char text[400];
    bool fresh = access(JOURNAL_FILE, F_OK) < 0;
    int n = snprintf(text, sizeof(text), "%s %s %s %s %s %s %lld", line->verb, line->run,
                     line->kind, line->project, line->name, line->extra[0] ? line->extra : "-",
                     (long long)line->time);
    if (n < 0 || (size_t)n + 11 > sizeof(text))
        return -ENAMETOOLONG;
    n += snprintf(text + n, sizeof(text) - (size_t)n, " %08x\n", checksum(text, (size_t)n));
    int fd = open(JOURNAL_FILE, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int r = fresh ? append(fd, HEADER, sizeof(HEADER) - 1) : 0;
    if (r == 0)
        r = append(fd, text, (size_t)n);
    if (r == 0 && fresh)
        r = sync_folder();
    close(fd);
    return r;
}

int journal_remove(void) {
    if (unlink(JOURNAL_FILE) < 0 && errno != ENOENT)
        return -errno;
    return sync_folder();
}
