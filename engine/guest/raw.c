/*
 * `frame`: one Ethernet frame, sent as it is on a link, again and again, and whether it left. What
 * a packet socket is told of outgoing frames is what was handed to the device: a drop on the way
 * there is seen, one beyond it is not.
 */
#define _GNU_SOURCE
#include "net.h"
#include "task.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A frame can be lost; nobody sends it again but us. */
#define RAW_EVERY_US 250000

/** A frame's own state; the task's fd is the socket that watches what leaves. */
struct raw {
    int fd; /* the one that sends */
    unsigned sent;
    unsigned left;
    int error; /* of the last send that failed */
    uint8_t seen[SPEC_MAX_BYTES];
};

/* Takes what a filter lets through, and all at once: before it is there, nothing shall come. */
static int only_outgoing(int fd) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SPEC_MAX_BYTES),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}

static int open_packet(uint32_t index, uint16_t protocol) {
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = (int)index};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int r = fd < 0 ? -errno : 0;

    if (!r && protocol)
        r = only_outgoing(fd);
    if (!r && bind(fd, (const void *)&at, sizeof(at)))
        r = -errno;
    if (!r)
        return fd;
    if (fd >= 0)
        close(fd);
    return r;
}

static const char *raw_open(struct task *task, int *error) {
    struct raw *raw = task->state;
    uint32_t index;
    int r = link_index(task->spec->link, &index);

    *error = -r;
    if (r)
        return "scope";
    task->fd = r = open_packet(index, ETH_P_ALL);
    if (r >= 0)
        raw->fd = r = open_packet(index, 0);
    *error = -r;
    if (r < 0)
        return "socket";
    r = task_watch(task, task->fd, EPOLLIN);
    *error = -r;
    return r ? "epoll" : NULL;
}

/* What leaves is told to the watching socket before the send returns. */
static void count_left(struct task *task) {
    struct raw *raw = task->state;
    const struct spec *spec = task->spec;
    ssize_t n;

    while ((n = recv(task->fd, raw->seen, sizeof(raw->seen), 0)) >= 0)
        if ((size_t)n == spec->send_len && memcmp(raw->seen, spec->send, spec->send_len) == 0)
            raw->left++;
}

static void raw_finish(struct task *task) {
    const struct raw *raw = task->state;
    struct line line;

    task_line(task, &line, raw->left ? "sent" : "error");
    if (!raw->left) {
        /* A queue or a firewall on the link that drops says ENOBUFS: not the system's want. */
        line_add(&line, "call", "send");
        line_add_errno(&line, raw->error && raw->error != ENOBUFS ? raw->error : EPERM);
    }
    line_add_ms(&line, "ms", clock_us() - task->begun);
    line_add(&line, "frames", "%u", raw->sent);
    line_add(&line, "left", "%u", raw->left);
    task_done(task, &line);
}

static void raw_wake(struct task *task) {
    struct raw *raw = task->state;

    if (send(raw->fd, task->spec->send, task->spec->send_len, MSG_NOSIGNAL) < 0)
        raw->error = errno;
    else
        raw->sent++;
    task->wake = clock_us() + RAW_EVERY_US;
}

static void raw_start(struct task *task) {
    struct raw *raw = calloc(1, sizeof(*raw));
    int error = ENOMEM;
    const char *failed = "memory";

    task->state = raw;
    if (raw) {
        raw->fd = -1;
        failed = raw_open(task, &error);
    }
    if (failed)
        task_failed(task, failed, error);
    else
        raw_wake(task);
}

static void raw_ready(struct task *task, int fd, uint32_t events) {
    (void)fd;
    (void)events;
    count_left(task);
}

static void raw_expire(struct task *task) {
    count_left(task);
    raw_finish(task);
}

static void raw_clear(struct task *task) {
    const struct raw *raw = task->state;

    if (raw && raw->fd >= 0)
        close(raw->fd);
    free(task->state);
    task->state = NULL;
}

const struct task_ops raw_ops = {.start = raw_start,
                                 .ready = raw_ready,
                                 .wake = raw_wake,
                                 .expire = raw_expire,
                                 .clear = raw_clear};
