#define _GNU_SOURCE
#include "net.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

int link_index(const char *name, uint32_t *index) {
    unsigned number;

    *index = if_nametoindex(name);
    if (*index)
        return 0;
    if (!parse_number(name, 1, 1U << 30, &number))
        return -ENODEV;
    *index = number;
    return 0;
}

int endpoint_make(const struct spec_address *address, uint16_t port, struct endpoint *out) {
    struct sockaddr_in *in = (void *)&out->addr;
    struct sockaddr_in6 *in6 = (void *)&out->addr;

    memset(out, 0, sizeof(*out));
    if (address->family == AF_INET) {
        *in = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = address->in};
        out->len = sizeof(*in);
        return 0;
    }
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    out->len = sizeof(*in6);
    if (address->family == AF_UNSPEC)
        return 0;
    in6->sin6_addr = address->in6;
    return address->scope[0] ? link_index(address->scope, &in6->sin6_scope_id) : 0;
}

unsigned sockaddr_port(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)(const void *)addr)->sin_port);
    if (addr->sa_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)addr)->sin6_port);
    return 0;
}

/* Both families as 16 bytes, IPv4 mapped. */
static void host_bytes(const struct sockaddr *addr, struct in6_addr *out) {
    memset(out, 0, sizeof(*out));
    if (addr->sa_family == AF_INET) {
        out->s6_addr[10] = out->s6_addr[11] = 0xff;
        memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
    } else if (addr->sa_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;
    }
}

bool sockaddr_same_host(const struct sockaddr *a, const struct sockaddr *b) {
    struct in6_addr x;
    struct in6_addr y;

    host_bytes(a, &x);
    host_bytes(b, &y);
    return memcmp(&x, &y, sizeof(x)) == 0;
}

bool sockaddr_is_loopback(const struct sockaddr *addr) {
    struct in6_addr a;

    host_bytes(addr, &a);
    if (IN6_IS_ADDR_V4MAPPED(&a))
        return a.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&a);
}

bool sockaddr_is_any(const struct sockaddr *addr) {
    struct in6_addr a;

    host_bytes(addr, &a);
    if (IN6_IS_ADDR_V4MAPPED(&a))
        return memcmp(&a.s6_addr[12], "\0\0\0", 4) == 0;
    return IN6_IS_ADDR_UNSPECIFIED(&a);
}

int socket_options(int fd, int family, int ttl) {
    int on = 1;
    int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;

    if (setsockopt(fd, level, family == AF_INET ? IP_RECVERR : IPV6_RECVERR, &on, sizeof(on)))
        return -errno;
    if (ttl &&
        setsockopt(fd, level, family == AF_INET ? IP_TTL : IPV6_UNICAST_HOPS, &ttl, sizeof(ttl)))
        return -errno;
    return 0;
}

static bool is_error_message(const struct cmsghdr *c) {
    return (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
           (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
}

/* The offender's address follows the fixed part; AF_UNSPEC means that there is none. */
static void fill_error(struct cmsghdr *c, struct net_error *out) {
    struct sock_extended_err ee;
    size_t rest = c->cmsg_len - CMSG_LEN(sizeof(ee));

    memcpy(&ee, CMSG_DATA(c), sizeof(ee));
    out->error = (int)ee.ee_errno;
    out->origin = ee.ee_origin;
    out->type = ee.ee_type;
    out->code = ee.ee_code;
    if (rest > sizeof(out->offender))
        rest = sizeof(out->offender);
    memcpy(&out->offender, CMSG_DATA(c) + sizeof(ee), rest);
    out->has_offender = out->offender.ss_family == AF_INET || out->offender.ss_family == AF_INET6;
}

int read_net_error(int fd, struct net_error *out) {
    union {
        struct cmsghdr align;
        char bytes[512];
    } control;
    struct iovec iov = {out->data, sizeof(out->data)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t n;

    memset(out, 0, sizeof(*out));
    n = recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    out->data_len = (size_t)n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
        if (is_error_message(c) && c->cmsg_len >= CMSG_LEN(sizeof(struct sock_extended_err)))
            fill_error(c, out);
    return 0;
}
