/* --log FILE: one section appended to a run log, all or nothing. The folder is opened when the
 * program starts, and the file is named in it only: what is put in the way later is not followed.
 */
#define _GNU_SOURCE
#include "ops.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LOG = 64 << 20, FRESH_MODE = 0644 };

static int folder = -1;
static char *name, *temporary;

int log_open(const char *path) {
    char *one = strdup(path), *two = strdup(path);
    folder = open(dirname(one), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    name = strdup(basename(two));
    if (asprintf(&temporary, ".%s.%s", name, run_id) < 0)
        abort();
    free(one);
    free(two);
    struct stat st;
    if (folder < 0 || faccessat(folder, ".", W_OK, 0) < 0)
        return -errno;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISLNK(st.st_mode) ? -ELOOP : S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    return faccessat(folder, name, R_OK | W_OK, 0) < 0 ? -errno : 0;
}

/* What the file holds, and what it is; an empty one of our own making where there is none. */
static int read_old(struct buffer *b, struct stat *st) {
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        *st = (struct stat){.st_mode = FRESH_MODE, .st_uid = geteuid(), .st_gid = getegid()};
        return errno == ENOENT ? 0 : -errno;
    }
    int r = fstat(fd, st) < 0       ? -errno
            : !S_ISREG(st->st_mode) ? -EINVAL
            : st->st_size > MAX_LOG ? -EFBIG
                                    : 0;
    ssize_t n = 1;
    while (r == 0 && n > 0) {
        buffer_reserve(b, 65536);
        n = read(fd, b->data + b->len, 65536);
        b->len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return r < 0 ? r : n < 0 ? -errno : 0;
}

static int write_all(int fd, const char *data, size_t len) {
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The new text, beside the old one and with its owner and mode. */
static int write_new(const struct buffer *b, const struct stat *st) {
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int r = write_all(fd, b->data, b->len);
    if (r == 0 && (fchown(fd, st->st_uid, st->st_gid) < 0 || fchmod(fd, st->st_mode & 07777) < 0 ||
                   fsync(fd) < 0))
        r = -errno;
    close(fd);
    return r;
}

static int append(struct slice text) {
    cleanup_buffer struct buffer b = {0};
    struct stat st;
    int r = read_old(&b, &st);
    if (r < 0)
        return r;
    if (b.len && b.data[b.len - 1] != '\n')
        buffer_add(&b, "\n", 1);
    output_escape(&b, text);
    r = write_new(&b, &st);
    if (r == 0 && renameat(folder, temporary, folder, name) < 0)
        r = -errno;
    if (r == 0)
        return fsync(folder) < 0 ? -errno : 0;
    unlinkat(folder, temporary, 0);
    return r;
}

/* log.append TEXT */
void op_log_append(struct request *r) {
    int error = folder < 0 ? -ENOENT : append(arg(r, 0));
    if (error < 0)
        reply_errno(r, -error, "--log");
    else
        reply_ok(r);
}
