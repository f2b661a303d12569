/*
 * One attempt to reach somebody: TCP, UDP or ICMP echo. What it reports are the kernel's facts:
 * the errno, and, where an ICMP error carried it, that error's type, code and sender.
 */
#define _GNU_SOURCE
#include "net.h"
#include "task.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/icmp.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define ECHO_PAYLOAD 16
#define ECHO_HEADER  8

/* Not <netinet/ip_icmp.h>'s: it does not go with <linux/icmp.h>, which alone has the filter. */
#define V4_ECHO_REPLY   0
#define V4_ECHO_REQUEST 8

/** An attempt's own state. */
struct probe {
    bool connected;       /* tcp: the handshake is done, bytes are exchanged */
    int64_t connected_at; /* microseconds from begun */
    size_t sent;
    size_t got;
    uint8_t echo[ECHO_HEADER + ECHO_PAYLOAD]; /* icmp: what was sent */
    uint8_t data[SPEC_MAX_BYTES];
};

static bool is_v4(const struct task *task) {
    return task->spec->to.family == AF_INET;
}

static bool is_icmp(const struct task *task) {
    return task->spec->proto == SPEC_ICMP;
}

/* ---- the line ---------------------------------------------------------------------------- */

static unsigned echo_id(const struct probe *p) {
    return (unsigned)p->echo[4] << 8 | p->echo[5];
}

/* Raw sockets have no port; their identifier tells two attempts apart in a capture. */
static void add_local(const struct task *task, struct line *line) {
    const struct probe *p = task->state;
    struct sockaddr_storage local = {0};
    socklen_t len = sizeof(local);
    char text[ADDRESS_TEXT];
    const struct sockaddr *addr = (const void *)&local;

    if (task->fd < 0 || getsockname(task->fd, (void *)&local, &len) || sockaddr_is_any(addr))
        return;
    endpoint_text(text, addr, is_icmp(task) ? echo_id(p) : sockaddr_port(addr));
    line_add(line, "local", "%s", text);
}

static void add_net_error(struct line *line, const struct net_error *e) {
    char text[ADDRESS_TEXT];
    bool icmp = e->origin == SO_EE_ORIGIN_ICMP || e->origin == SO_EE_ORIGIN_ICMP6;

    if (icmp)
        line_add(line, "icmp", "%u/%u", e->type, e->code);
    if (icmp && e->has_offender) {
        address_text(text, (const void *)&e->offender);
        line_add(line, "from", "%s", text);
    }
    if (icmp || e->origin == SO_EE_ORIGIN_LOCAL)
        line_add(line, "origin", "%s",
                 e->origin == SO_EE_ORIGIN_ICMP    ? "icmp"
                 : e->origin == SO_EE_ORIGIN_ICMP6 ? "icmp6"
                                                   : "local");
}

/* The system ran out of something, or the source was wrong: that says nothing of the target. */
static bool is_instrument(int error) {
    return error == EADDRNOTAVAIL || error == EADDRINUSE || error == ENOBUFS || error == ENOMEM ||
           error == EAGAIN || error == EMFILE || error == ENFILE;
}

/* An error is the outcome. e may be NULL: the error queue had nothing to say. */
static void finish_error(struct task *task, const char *call, int error,
                         const struct net_error *e) {
    int64_t us = clock_us() - task->begun;
    struct line line;

    task_line(task, &line, is_instrument(error) ? "failed" : "error");
    line_add(&line, "call", "%s", call);
    line_add_errno(&line, error);
    line_add_ms(&line, "ms", us);
    if (e)
        add_net_error(&line, e);
    add_local(task, &line);
    task_done(task, &line);
}

/* The other outcomes; read is NULL where nothing was to be read. */
static void finish_result(struct task *task, const char *result, int64_t us, const char *read,
                          size_t bytes) {
    const struct probe *p = task->state;
    int64_t now = clock_us() - task->begun;
    struct line line;
    size_t keep = p->got < task->spec->recv ? p->got : task->spec->recv;

    task_line(task, &line, result);
    line_add_ms(&line, "ms", us);
    add_local(task, &line);
    if (read) {
        line_add(&line, "read", "%s", read);
        line_add_ms(&line, "read-ms", now);
    }
    if (read || bytes > 0 || strcmp(result, "reply") == 0)
        line_add(&line, "bytes", "%zu", bytes);
    if (keep > 0)
        line_add_hex(&line, "data", p->data, keep);
    task_done(task, &line);
}

/* ---- tcp --------------------------------------------------------------------------------- */

static void finish_connected(struct task *task, const char *read) {
    const struct probe *p = task->state;

    finish_result(task, "connected", p->connected_at, read, p->got);
}

/* Sends what is left to send. Returns whether all is sent; the task may be done by an error. */
static bool tcp_send(struct task *task) {
    const struct spec *spec = task->spec;
    struct probe *p = task->state;

    while (p->sent < spec->send_len) {
        ssize_t n = send(task->fd, spec->send + p->sent, spec->send_len - p->sent, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0) {
            finish_connected(task, line_errno_name(errno));
            return false;
        }
        p->sent += (size_t)n;
    }
    return true;
}

/* Whether all is there of what says in its first two bytes how long the rest is. */
static bool is_whole(const struct task *task) {
    const struct probe *p = task->state;

    return task->spec->framed && p->got >= 2 &&
           p->got - 2 >= ((size_t)p->data[0] << 8 | p->data[1]);
}

static void tcp_receive(struct task *task) {
    struct probe *p = task->state;

    while (p->got < task->spec->recv && !is_whole(task)) {
        ssize_t n = recv(task->fd, p->data + p->got, task->spec->recv - p->got, 0);

        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            finish_connected(task, n == 0 ? "eof" : line_errno_name(errno));
            return;
        }
        p->got += (size_t)n;
    }
    finish_connected(task, "full");
}

static void tcp_transfer(struct task *task) {
    bool sent = tcp_send(task);

    if (task->done)
        return;
    task_rewatch(task, task->fd, sent ? EPOLLIN : EPOLLIN | EPOLLOUT);
    if (task->spec->recv > 0)
        tcp_receive(task);
    else if (sent)
        finish_connected(task, "full");
}

/* A connect to a free port of our own can be given that very port as its source and meet itself. */
static bool tcp_met_itself(const struct task *task) {
    struct sockaddr_storage local = {0};
    struct sockaddr_storage peer = {0};
    socklen_t local_len = sizeof(local);
    socklen_t peer_len = sizeof(peer);

    getsockname(task->fd, (void *)&local, &local_len);
    getpeername(task->fd, (void *)&peer, &peer_len);
    return sockaddr_port((void *)&local) == sockaddr_port((void *)&peer) &&
           sockaddr_same_host((void *)&local, (void *)&peer);
}

static void tcp_connected(struct task *task) {
    struct probe *p = task->state;

    if (tcp_met_itself(task)) {
        task_failed(task, "connect", EADDRINUSE);
        return;
    }
    p->connected = true;
    p->connected_at = clock_us() - task->begun;
    if (task->spec->send_len || task->spec->has_recv)
        tcp_transfer(task);
    else
        finish_connected(task, NULL);
}

/* SO_ERROR first: taking an entry from the error queue clears it. */
static void tcp_ready(struct task *task) {
    struct net_error e;
    struct sockaddr_storage peer;
    socklen_t peer_len = sizeof(peer);
    int error = 0;
    socklen_t len = sizeof(error);
    bool queued;

    getsockopt(task->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (!error && getpeername(task->fd, (void *)&peer, &peer_len) == 0) {
        tcp_connected(task);
        return;
    }
    queued = read_net_error(task->fd, &e) == 0;
    if (!error && queued)
        error = e.error;
    if (error)
        finish_error(task, "async", error, queued ? &e : NULL);
}

/* ---- udp --------------------------------------------------------------------------------- */

static void udp_ready(struct task *task) {
    struct probe *p = task->state;
    struct net_error e;
    ssize_t n = recv(task->fd, p->data, sizeof(p->data), MSG_TRUNC);
    int error = n < 0 ? errno : 0;
    bool queued;

    if (n >= 0) {
        p->got = (size_t)n < sizeof(p->data) ? (size_t)n : sizeof(p->data);
        finish_result(task, "reply", clock_us() - task->begun, NULL, (size_t)n);
        return;
    }
    queued = read_net_error(task->fd, &e) == 0;
    if (error == EAGAIN)
        error = queued ? e.error : 0;
    if (error)
        finish_error(task, "async", error, queued ? &e : NULL);
}

/* ---- icmp -------------------------------------------------------------------------------- */

static uint16_t checksum(const uint8_t *data, size_t len) {
    uint32_t sum = 0;

    for (size_t i = 0; i + 1 < len; i += 2)
        sum += (uint32_t)data[i] << 8 | data[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Identifier, sequence and payload are random: no other ping's answer can be taken for ours.
 * ICMPv6 checksums are the kernel's. */
static int echo_make(struct task *task) {
    struct probe *p = task->state;
    uint16_t sum;

    if (getrandom(p->echo, sizeof(p->echo), 0) != (ssize_t)sizeof(p->echo))
        return -EIO;
    p->echo[0] = is_v4(task) ? V4_ECHO_REQUEST : ICMP6_ECHO_REQUEST;
    p->echo[1] = p->echo[2] = p->echo[3] = 0;
    sum = is_v4(task) ? checksum(p->echo, sizeof(p->echo)) : 0;
    p->echo[2] = (uint8_t)(sum >> 8);
    p->echo[3] = (uint8_t)sum;
    return 0;
}

/* Only echo replies are let through; errors come by the error queue whatever the filter says. */
static int echo_filter(const struct task *task) {
    struct icmp_filter v4 = {.data = ~(1U << V4_ECHO_REPLY)};
    struct icmp6_filter v6;

    if (is_v4(task))
        return setsockopt(task->fd, SOL_RAW, ICMP_FILTER, &v4, sizeof(v4)) ? -errno : 0;
    ICMP6_FILTER_SETBLOCKALL(&v6);
    ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &v6);
    return setsockopt(task->fd, IPPROTO_ICMPV6, ICMP6_FILTER, &v6, sizeof(v6)) ? -errno : 0;
}

/* Whether bytes that came begin as our echo does, from the identifier on; len may be cut. */
static bool echo_matches(const struct probe *p, const uint8_t *data, size_t len) {
    if (len > sizeof(p->echo))
        len = sizeof(p->echo);
    return len >= ECHO_HEADER && memcmp(data + 4, p->echo + 4, len - 4) == 0;
}

/* A raw socket gets every reply of its target, those to other attempts too. */
static bool echo_reply(struct task *task) {
    struct probe *p = task->state;
    ssize_t n;

    while ((n = recv(task->fd, p->data, sizeof(p->data), 0)) >= 0) {
        size_t skip = is_v4(task) && n > 0 ? (size_t)(p->data[0] & 15) * 4 : 0;
        size_t len = (size_t)n > skip ? (size_t)n - skip : 0;
        uint8_t type = is_v4(task) ? V4_ECHO_REPLY : ICMP6_ECHO_REPLY;

        if (len != sizeof(p->echo) || p->data[skip] != type ||
            !echo_matches(p, p->data + skip, len))
            continue;
        finish_result(task, "reply", clock_us() - task->begun, NULL, len - ECHO_HEADER);
        return true;
    }
    return false;
}

/* The socket's own error may belong to another attempt on the same target, so only an entry
 * that quotes our echo counts. */
static void icmp_ready(struct task *task) {
    const struct probe *p = task->state;
    struct net_error e;

    if (echo_reply(task))
        return;
    while (!task->done && read_net_error(task->fd, &e) == 0) {
        bool ours = e.data_len >= ECHO_HEADER && e.data[0] == p->echo[0] &&
                    echo_matches(p, e.data, e.data_len);

        if (ours && e.error)
            finish_error(task, "async", e.error, &e);
    }
}

/* ---- all three --------------------------------------------------------------------------- */

static int open_socket(const struct task *task) {
    int type = task->spec->proto == SPEC_TCP ? SOCK_STREAM : SOCK_DGRAM;
    int proto = 0;

    if (is_icmp(task)) {
        type = SOCK_RAW;
        proto = is_v4(task) ? IPPROTO_ICMP : IPPROTO_ICMPV6;
    }
    return socket(task->spec->to.family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, proto);
}

/* Everything before connect(). Returns the name of the call that failed, or NULL; errno in
 * *error. */
static const char *prepare(struct task *task, struct endpoint *to, int *error) {
    const struct spec *spec = task->spec;
    struct endpoint from;
    int r;

    if ((r = endpoint_make(&spec->to, spec->port, to)) ||
        (r = endpoint_make(&spec->from, 0, &from))) {
        *error = -r;
        return "scope";
    }
    task->fd = open_socket(task);
    *error = errno;
    if (task->fd < 0)
        return "socket";
    r = socket_options(task->fd, spec->to.family, spec->ttl);
    if (!r && is_icmp(task) && !(r = echo_filter(task)))
        r = echo_make(task);
    if (!r)
        r = task_watch(task, task->fd, spec->proto == SPEC_TCP ? EPOLLOUT : EPOLLIN);
    *error = -r;
    if (r)
        return "setsockopt";
    if (spec->from.family && bind(task->fd, (void *)&from.addr, from.len)) {
        *error = errno;
        return "bind";
    }
    return NULL;
}

/* The one packet of a udp or icmp attempt. */
static void send_packet(struct task *task) {
    static const uint8_t greeting[] = "boxdrill\n";
    const struct probe *p = task->state;
    const struct spec *spec = task->spec;
    const uint8_t *data = spec->send ? spec->send : greeting;
    size_t len = spec->send ? spec->send_len : sizeof(greeting) - 1;
    struct net_error e;

    if (is_icmp(task)) {
        data = p->echo;
        len = sizeof(p->echo);
    }
    task->begun = clock_us();
    if (send(task->fd, data, len, MSG_NOSIGNAL) >= 0)
        return;
    int error = errno;
    finish_error(task, "send", error, read_net_error(task->fd, &e) == 0 ? &e : NULL);
}

static void probe_start(struct task *task) {
    struct endpoint to;
    const char *failed;
    int error = ENOMEM;

    task->state = calloc(1, sizeof(struct probe));
    failed = task->state ? prepare(task, &to, &error) : "memory";
    if (failed) {
        task_failed(task, failed, error);
        return;
    }
    task->begun = clock_us();
    if (connect(task->fd, (void *)&to.addr, to.len) && errno != EINPROGRESS)
        finish_error(task, "connect", errno, NULL);
    else if (task->spec->proto != SPEC_TCP)
        send_packet(task);
}

static void probe_ready(struct task *task, int fd, uint32_t events) {
    const struct probe *p = task->state;

    (void)fd;
    (void)events;
    if (task->spec->proto == SPEC_UDP)
        udp_ready(task);
    else if (is_icmp(task))
        icmp_ready(task);
    else if (p->connected)
        tcp_transfer(task);
    else
        tcp_ready(task);
}

static void probe_expire(struct task *task) {
    const struct probe *p = task->state;

    if (p->connected)
        finish_connected(task, "timeout");
    else
        finish_result(task, "timeout", clock_us() - task->begun, NULL, 0);
}

static void probe_clear(struct task *task) {
    free(task->state);
    task->state = NULL;
}

const struct task_ops probe_ops = {
    .start = probe_start, .ready = probe_ready, .expire = probe_expire, .clear = probe_clear};
