/*
 * `listen`: a TCP and a UDP socket on one port that say who came, and what reached the links.
 */
#define _GNU_SOURCE
#include "ask.h"
#include "frames.h"
#include "net.h"
#include "task.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEN_MAX        64
#define CONNECTIONS_MAX 64
/* What is sent back on one connection, and datagrams sent back in all: two listeners that a forged
 * datagram has set on each other end some time. */
#define ECHO_BYTES_MAX     65536
#define ECHO_DATAGRAMS_MAX 1024
#define SEEN_TEXT          7000
#define DRAIN_MAX          4096

/** A source that came. */
struct seen {
    bool tcp;
    struct sockaddr_storage addr;
    unsigned count;
};

/** An open connection; fd 0 is never one of ours and means that the slot is free. */
struct connection {
    int fd;
    size_t echoed;
};

/** A listener's own state. */
struct listener {
    int udp; /* the TCP socket is the task's fd */
    unsigned tcp_count;
    unsigned udp_count;
    unsigned more;
    unsigned echoed;
    bool stopped;
    struct seen seen[SEEN_MAX];
    size_t seen_count;
    struct connection connections[CONNECTIONS_MAX];
    struct frames frames;
};

/** A datagram as it came: from whom, and to which of our addresses. */
struct datagram {
    char data[2048];
    size_t len;
    struct sockaddr_storage source;
    struct sockaddr_storage to;
    struct msghdr msg; /* for the way back: its control data name the address it came to */
    struct iovec iov;
    union {
        struct cmsghdr align;
        char bytes[256];
    } control;
};

/* ---- what is remembered ------------------------------------------------------------------ */

static void remember(struct listener *l, bool tcp, const struct sockaddr_storage *source) {
    const struct sockaddr *addr = (const void *)source;

    (*(tcp ? &l->tcp_count : &l->udp_count))++;
    for (size_t i = 0; i < l->seen_count; i++) {
        struct sockaddr *known = (void *)&l->seen[i].addr;

        if (l->seen[i].tcp == tcp && sockaddr_same_host(known, addr) &&
            sockaddr_port(known) == sockaddr_port(addr)) {
            l->seen[i].count++;
            return;
        }
    }
    if (l->seen_count == SEEN_MAX) {
        l->more++;
        return;
    }
    l->seen[l->seen_count++] = (struct seen){tcp, *source, 1};
}

static void add_seen(const struct listener *l, struct line *line) {
    char text[SEEN_TEXT];
    size_t len = 0;

    for (size_t i = 0; i < l->seen_count && len + ADDRESS_TEXT + 32 < sizeof(text); i++) {
        const struct seen *s = &l->seen[i];
        const struct sockaddr *addr = (const void *)&s->addr;
        char address[ADDRESS_TEXT];

        endpoint_text(address, addr, sockaddr_port(addr));
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s:%s", i ? ";" : "",
                                s->tcp ? "tcp" : "udp", address);
        if (s->count > 1)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "*%u", s->count);
    }
    if (len > 0)
        line_add(line, "seen", "%s", text);
    if (l->more)
        line_add(line, "more", "%u", l->more);
}

/* ---- tcp --------------------------------------------------------------------------------- */

static struct connection *free_connection(struct listener *l) {
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        if (l->connections[i].fd == 0)
            return &l->connections[i];
    return NULL;
}

static bool accept_one(struct task *task) {
    struct listener *l = task->state;
    struct connection *c = free_connection(l);
    struct sockaddr_storage source = {0};
    socklen_t len = sizeof(source);
    int fd = accept4(task->fd, (void *)&source, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        /* Without a descriptor nobody is counted any more: no honest listener. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            task_failed(task, "accept", errno);
        return false;
    }
    remember(l, true, &source);
    if (c && task_watch(task, fd, EPOLLIN) == 0)
        *c = (struct connection){.fd = fd};
    else
        close(fd);
    return true;
}

/* What the peer does not take at once is not sent again: the echo is a courtesy, not a proof. */
static void echo(struct listener *l, int fd) {
    char data[4096];
    ssize_t n = recv(fd, data, sizeof(data), 0);

    if (n < 0 && errno == EAGAIN)
        return;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &l->connections[i];

        if (c->fd != fd)
            continue;
        if (n > 0 && send(fd, data, (size_t)n, MSG_NOSIGNAL) >= 0)
            c->echoed += (size_t)n;
        if (n <= 0 || c->echoed >= ECHO_BYTES_MAX) {
            close(fd);
            c->fd = 0;
        }
    }
}

/* ---- udp --------------------------------------------------------------------------------- */

/* Finds the address a datagram came to, and makes its control data fit for the way back: the
 * same address as source, and any interface (for link-local ones the same). */
static void take_destination(struct datagram *d) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&d->msg); c; c = CMSG_NXTHDR(&d->msg, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo *info = (void *)CMSG_DATA(c);
            struct sockaddr_in *to = (void *)&d->to;

            *to = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = info->ipi_addr};
            info->ipi_spec_dst = info->ipi_addr;
            info->ipi_ifindex = 0;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo *info = (void *)CMSG_DATA(c);
            struct sockaddr_in6 *to = (void *)&d->to;

            *to = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = info->ipi6_addr};
            if (!IN6_IS_ADDR_LINKLOCAL(&info->ipi6_addr))
                info->ipi6_ifindex = 0;
        }
    }
}

static int receive(int fd, struct datagram *d) {
    ssize_t n;

    memset(&d->msg, 0, sizeof(d->msg));
    memset(&d->to, 0, sizeof(d->to));
    d->iov = (struct iovec){d->data, sizeof(d->data) - 1};
    d->msg.msg_name = &d->source;
    d->msg.msg_namelen = sizeof(d->source);
    d->msg.msg_iov = &d->iov;
    d->msg.msg_iovlen = 1;
    d->msg.msg_control = &d->control;
    d->msg.msg_controllen = sizeof(d->control);
    n = recvmsg(fd, &d->msg, 0);
    if (n < 0)
        return -errno;
    d->len = (size_t)n;
    d->data[n] = '\0';
    take_destination(d);
    return 0;
}

static void reply(int fd, const struct datagram *d, char *data, size_t len) {
    struct iovec iov = {data, len};
    struct msghdr msg = d->msg;

    msg.msg_iov = &iov;
    msg.msg_flags = 0;
    sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* The kernel drops what comes from outside with a loopback source, or (IPv4) with one of our own
 * addresses; an answer to one with our own IPv6 address comes to ourselves. So nobody outside
 * learns a token. */
static bool is_from_here(const struct datagram *d) {
    const struct sockaddr *source = (const void *)&d->source;

    return sockaddr_is_loopback(source) || sockaddr_same_host(source, (const void *)&d->to);
}

/* Whether a datagram was a question of await or stop: then it is answered here. */
static bool answer(struct task *task, struct datagram *d) {
    struct listener *l = task->state;
    char challenge[17];
    char token[65];
    char text[ASK_BYTES];

    if (!is_from_here(d))
        return false;
    if (sscanf(d->data, ASK_STOP " %16[0-9a-f] %64[0-9a-f]", challenge, token) == 2) {
        if (strcmp(token, task->spec->token) != 0)
            return true;
        snprintf(text, sizeof(text), "%s %s", ASK_STOPPED, challenge);
        reply(l->udp, d, text, strlen(text));
        l->stopped = true;
        return true;
    }
    if (sscanf(d->data, ASK_QUERY " %16[0-9a-f]", challenge) != 1)
        return false;
    snprintf(text, sizeof(text), "%s %s %s", ASK_HELD, challenge, task->spec->token);
    reply(l->udp, d, text, strlen(text));
    return true;
}

static bool receive_one(struct task *task) {
    struct listener *l = task->state;
    struct datagram d;

    if (receive(l->udp, &d))
        return false;
    if (answer(task, &d))
        return true;
    remember(l, false, &d.source);
    if (l->echoed++ < ECHO_DATAGRAMS_MAX)
        reply(l->udp, &d, d.data, d.len);
    return true;
}

/* ---- the end ----------------------------------------------------------------------------- */

/* Whoever came before the end counts, even if nobody has looked yet. */
static void drain(struct task *task) {
    struct listener *l = task->state;

    for (int i = 0; i < DRAIN_MAX && !task->done && accept_one(task); i++)
        ;
    for (int i = 0; i < DRAIN_MAX && !task->done && receive_one(task); i++)
        ;
    for (int i = 0; i < DRAIN_MAX && l->frames.fd >= 0 && frames_take(&l->frames); i++)
        ;
}

static void listen_finish(struct task *task, bool stopped) {
    struct listener *l = task->state;
    struct line line;

    drain(task);
    if (task->done)
        return;
    task_line(task, &line, "listened");
    line_add_ms(&line, "ms", clock_us() - task->begun);
    line_add(&line, "stopped", "%d", stopped);
    line_add(&line, "arrivals", "%u", l->tcp_count + l->udp_count);
    line_add(&line, "tcp", "%u", l->tcp_count);
    line_add(&line, "udp", "%u", l->udp_count);
    add_seen(l, &line);
    frames_add(&l->frames, &line);
    task_done(task, &line);
}

/* ---- opening ----------------------------------------------------------------------------- */

static int open_bound(int family, int type, const struct endpoint *at, const char **call) {
    int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    int off = 0;
    int error;

    *call = "socket";
    if (fd < 0)
        return -errno;
    if (type == SOCK_STREAM) /* a port whose last connection is in TIME_WAIT is free enough */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
    } else {
        setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
    }
    *call = type == SOCK_STREAM ? "tcp-bind" : "udp-bind";
    if (bind(fd, (const void *)&at->addr, at->len) == 0)
        return fd;
    error = errno;
    close(fd);
    return -error;
}

/* Every address: IPv6 with IPv4 in it, or IPv4 alone where the kernel has no IPv6. */
static int wildcard(struct endpoint *at, const struct spec *spec) {
    const struct spec_address any = {.family = AF_INET};
    int fd;

    if (spec->from.family != AF_UNSPEC)
        return endpoint_make(&spec->from, spec->port, at);
    fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return endpoint_make(&any, spec->port, at);
    close(fd);
    return endpoint_make(&spec->from, spec->port, at);
}

/* Before the port is held: by the time somebody knows of the listener, it watches. */
static void watch_frames(struct task *task) {
    struct listener *l = task->state;
    int r = 0;

    frames_open(&l->frames, task->spec);
    if (l->frames.fd >= 0)
        r = task_watch(task, l->frames.fd, EPOLLIN);
    if (r)
        l->frames.error = -r;
}

static const char *listen_open(struct task *task, int *error) {
    struct listener *l = task->state;
    struct endpoint at;
    const char *call = "scope";
    int r = wildcard(&at, task->spec);

    watch_frames(task);
    if (!r) {
        task->fd = r = open_bound(at.addr.ss_family, SOCK_STREAM, &at, &call);
        if (r >= 0)
            l->udp = r = open_bound(at.addr.ss_family, SOCK_DGRAM, &at, &call);
    }
    *error = -r;
    if (r < 0)
        return call;
    if (listen(task->fd, 128)) {
        *error = errno;
        return "tcp-listen";
    }
    r = task_watch(task, task->fd, EPOLLIN);
    if (!r)
        r = task_watch(task, l->udp, EPOLLIN);
    *error = -r;
    return r ? "epoll" : NULL;
}

static void listen_start(struct task *task) {
    struct listener *l = calloc(1, sizeof(*l));
    int error = ENOMEM;
    const char *failed = "memory";

    task->state = l;
    if (l) {
        l->udp = l->frames.fd = -1;
        failed = listen_open(task, &error);
    }
    if (failed)
        task_failed(task, failed, error);
}

static void listen_ready(struct task *task, int fd, uint32_t events) {
    struct listener *l = task->state;

    (void)events;
    if (fd == task->fd)
        accept_one(task);
    else if (fd == l->udp)
        receive_one(task);
    else if (fd == l->frames.fd)
        frames_take(&l->frames);
    else
        echo(l, fd);
    if (l->stopped && !task->done)
        listen_finish(task, true);
}

static void listen_expire(struct task *task) {
    listen_finish(task, false);
}

static void listen_clear(struct task *task) {
    struct listener *l = task->state;

    for (size_t i = 0; l && i < CONNECTIONS_MAX; i++)
        if (l->connections[i].fd > 0)
            close(l->connections[i].fd);
    if (l && l->udp >= 0)
        close(l->udp);
    if (l && l->frames.fd >= 0)
        close(l->frames.fd);
    free(l);
    task->state = NULL;
}

const struct task_ops listen_ops = {
    .start = listen_start, .ready = listen_ready, .expire = listen_expire, .clear = listen_clear};
