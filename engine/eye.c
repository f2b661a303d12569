#define _GNU_SOURCE
#include "eye.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sock_diag.h>
#include <net/if_arp.h>
#include <netinet/ip6.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SNAP = 192,             /* of a frame, at most: headers, and the headers in an ICMP error */
    BUFFER_BYTES = 1 << 20, /* the socket's: one to two thousand small frames */
    KEEP_BYTES = 192 << 10, /* of one eye: all the eyes of a witness fit into one answer */
    PROGRAM_MAX = 2048,     /* instructions; the most is about 900 */
    NO_VLAN = 0xffff,
};

/* -- the filter -------------------------------------------------------------------------------
 */

/* From the network header on, whatever the link's own header is: so one program does for every
 * link, and for raw IP sockets. A load beyond the packet's end drops it. */
#define NET(at)         ((uint32_t)(SKF_NET_OFF + (at)))
#define ANCILLARY(what) ((uint32_t)(SKF_AD_OFF + (what)))

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned len;
};

static void put(struct program *p, struct sock_filter instruction) {
    if (p->len == PROGRAM_MAX)
        abort();
    p->code[p->len++] = instruction;
}

#define STATEMENT(code, k)     put(p, (struct sock_filter)BPF_STMT((code), (k)))
#define JUMP(code, k, yes, no) put(p, (struct sock_filter)BPF_JUMP((code), (k), (yes), (no)))
#define LOAD(size, at)         STATEMENT(BPF_LD | (size) | BPF_ABS, (at))
/* Jumps over so many of the instructions that follow, when equal and when not. */
#define EQUAL(value, yes, no) JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define RETURN(bytes)         STATEMENT(BPF_RET | BPF_K, (bytes))

/* Accepts when the word at an offset is one of the addresses. */
static void put_match4(struct program *p, const struct eye_filter *f, uint32_t at) {
    LOAD(BPF_W, at);
    for (unsigned i = 0; i < f->count4; i++) {
        EQUAL(ntohl(f->v4[i].s_addr), 0, 1);
        RETURN(SNAP);
    }
}

static void put_match6(struct program *p, const struct eye_filter *f, uint32_t at) {
    for (unsigned i = 0; i < f->count6; i++) {
        for (uint8_t word = 0; word < 4; word++) {
            LOAD(BPF_W, at + 4U * word);
            EQUAL(ntohl(f->v6[i].s6_addr32[word]), 0, (uint8_t)(7 - 2 * word));
        }
        RETURN(SNAP);
    }
}

/* The EtherType, into M[0]. A frame that leaves with its VLAN tag in it has the tag's: then the
 * first byte behind it tells. */
static void put_ethertype(struct program *p) {
    LOAD(BPF_W, ANCILLARY(SKF_AD_PROTOCOL));
    EQUAL(ETH_P_8021Q, 1, 0);
    EQUAL(ETH_P_8021AD, 0, 9);
    LOAD(BPF_B, NET(0));
    STATEMENT(BPF_ALU | BPF_RSH | BPF_K, 4);
    EQUAL(4, 0, 2);
    STATEMENT(BPF_LD | BPF_IMM, ETH_P_IP);
    STATEMENT(BPF_JMP | BPF_JA, 4);
    EQUAL(6, 0, 2);
    STATEMENT(BPF_LD | BPF_IMM, ETH_P_IPV6);
    STATEMENT(BPF_JMP | BPF_JA, 1);
    STATEMENT(BPF_LD | BPF_IMM, ETH_P_ARP);
    STATEMENT(BPF_ST, 0);
}

/* The instructions of one EtherType stand between begin_section and end_section. */
static unsigned begin_section(struct program *p, uint16_t ethertype) {
    STATEMENT(BPF_LD | BPF_MEM, 0);
    EQUAL(ethertype, 1, 0);
    STATEMENT(BPF_JMP | BPF_JA, 0); /* patched */
    return p->len;
}

static void end_section(struct program *p, unsigned start) {
    RETURN(0);
    p->code[start - 1].k = p->len - start;
}

/* Offsets: RFC 826, 791, 8200, 4861; the destination in an ICMP error's copy of the packet lies
 * behind 20 + 8 (40 + 8) bytes of headers. */
static void put_sections(struct program *p, const struct eye_filter *f) {
    unsigned start = begin_section(p, ETH_P_ARP);
    put_match4(p, f, NET(24));
    put_match4(p, f, NET(14));
    end_section(p, start);
    start = begin_section(p, ETH_P_IP);
    put_match4(p, f, NET(16));
    put_match4(p, f, NET(12));
    LOAD(BPF_B, NET(9));
    EQUAL(IPPROTO_ICMP, 1, 0);
    RETURN(0);
    put_match4(p, f, NET(44));
    end_section(p, start);
    start = begin_section(p, ETH_P_IPV6);
    put_match6(p, f, NET(24));
    put_match6(p, f, NET(8));
    LOAD(BPF_B, NET(6));
    EQUAL(IPPROTO_ICMPV6, 1, 0);
    RETURN(0);
    put_match6(p, f, NET(48)); /* a solicitation's target */
    put_match6(p, f, NET(72));
    end_section(p, start);
    RETURN(0);
}

static int attach(int fd, struct program *p) {
    struct sock_fprog program = {.len = (unsigned short)p->len, .filter = p->code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno : 0;
}

static int attach_filter(int fd, const struct eye_filter *f) {
    struct program *p = calloc(1, sizeof(*p));
    if (!p)
        abort();
    if (f->all) {
        RETURN(SNAP);
    } else {
        put_ethertype(p);
        put_sections(p, f);
    }
    int error = attach(fd, p);
    free(p);
    return error;
}

static void attach_nothing(int fd) {
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {.len = 1, .filter = &drop};
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* -- what comes --------------------------------------------------------------------------------
 */

/* A frame as it was received, with what the kernel says of it. */
struct received {
    unsigned char bytes[sizeof(struct ip6_hdr) + SNAP];
    size_t len;
    struct sockaddr_storage from;
    struct msghdr msg;
    struct iovec iov;
    union {
        struct cmsghdr align;
        char bytes[256];
    } control;
};

static void add_number(struct buffer *b, uint64_t value, unsigned bytes) {
    for (; bytes > 0; bytes--, value >>= 8)
        buffer_add(b, &(char){(char)(value & 0xff)}, 1);
}

/* What comes with a frame: its time, its length, its VLAN tag where the link took it off. */
struct extra {
    uint64_t ns;
    uint32_t len;
    uint16_t vlan;
    struct in6_addr to;
};

static void read_extra(struct extra *x, struct received *r) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&r->msg); c; c = CMSG_NXTHDR(&r->msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof(t));
            x->ns = (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
        } else if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            struct tpacket_auxdata a;
            memcpy(&a, CMSG_DATA(c), sizeof(a));
            x->len = a.tp_len;
            x->vlan = a.tp_status & TP_STATUS_VLAN_VALID ? a.tp_vlan_tci & 0xfff : NO_VLAN;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            x->to = info.ipi6_addr;
        }
    }
}

/* Appends a record. */
static void keep(struct eye *e, const struct received *r, const struct extra *x, uint8_t type,
                 uint16_t hardware, uint16_t ethertype) {
    add_number(&e->frames, x->ns, 8);
    add_number(&e->frames, type, 1);
    add_number(&e->frames, hardware, 2);
    add_number(&e->frames, ethertype, 2);
    add_number(&e->frames, x->vlan, 2);
    add_number(&e->frames, x->len, 4);
    add_number(&e->frames, r->len, 2);
    buffer_add(&e->frames, r->bytes, r->len);
    e->kept++;
}

/* The kernel takes an IPv6 packet's header off before a raw socket gets it: what is known of it is
 * put back, so that every record begins alike. */
static void restore_header(const struct eye *e, struct received *r, const struct extra *x) {
    struct sockaddr_in6 from;
    struct ip6_hdr header = {.ip6_dst = x->to};
    memcpy(&from, &r->from, sizeof(from));
    header.ip6_src = from.sin6_addr;
    header.ip6_flow = htonl(6U << 28);
    header.ip6_plen = htons((uint16_t)r->len);
    header.ip6_nxt = (uint8_t)e->protocol;
    memmove(r->bytes + sizeof(header), r->bytes, r->len);
    memcpy(r->bytes, &header, sizeof(header));
    r->len += sizeof(header);
}

static void keep_received(struct eye *e, struct received *r) {
    struct extra x = {.len = (uint32_t)r->len, .vlan = NO_VLAN};
    read_extra(&x, r);
    if (e->family == AF_PACKET) {
        struct sockaddr_ll from;
        memcpy(&from, &r->from, sizeof(from));
        keep(e, r, &x, from.sll_pkttype, from.sll_hatype, ntohs(from.sll_protocol));
        return;
    }
    if (e->family == AF_INET6)
        restore_header(e, r, &x);
    keep(e, r, &x, PACKET_HOST, ARPHRD_NONE, e->family == AF_INET6 ? ETH_P_IPV6 : ETH_P_IP);
}

/* Takes one frame; false when there is none. An error that waited in the socket is taken first, and
 * does not end it: what it saw is evidence all the same. */
static bool take(struct eye *e) {
    struct received r = {.len = 0};
    r.iov = (struct iovec){r.bytes, SNAP};
    r.msg = (struct msghdr){.msg_name = &r.from,
                            .msg_namelen = sizeof(r.from),
                            .msg_iov = &r.iov,
                            .msg_iovlen = 1,
                            .msg_control = &r.control,
                            .msg_controllen = sizeof(r.control)};
    ssize_t n = recvmsg(e->fd, &r.msg, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n < 0) {
        bool again = !e->error;
        e->error = errno;
        return again;
    }
    r.len = (size_t)n;
    keep_received(e, &r);
    return true;
}

/* -- open and shut -----------------------------------------------------------------------------
 */

static int prepare(struct eye *e, const struct eye_filter *filter) {
    int bytes = BUFFER_BYTES, on = 1;
    if (setsockopt(e->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0 ||
        setsockopt(e->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) < 0)
        return -errno;
    return attach_filter(e->fd, filter);
}

static int opened(struct eye *e, int error) {
    if (error < 0) {
        close(e->fd);
        e->fd = -1;
    }
    return error;
}

/* The protocol is set last: until the filter is there, nothing shall come. */
int eye_open_link(struct eye *e, const struct eye_filter *filter) {
    int on = 1;
    e->index = if_nametoindex(e->name);
    if (!e->index)
        return -errno;
    e->family = AF_PACKET;
    e->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (e->fd < 0)
        return -errno;
    int error = prepare(e, filter);
    struct sockaddr_ll link = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)e->index};
    if (!error && (setsockopt(e->fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)) < 0 ||
                   bind(e->fd, (const struct sockaddr *)&link, sizeof(link)) < 0))
        error = -errno;
    return opened(e, error);
}

/* A raw socket takes packets from its birth: those before the filter are let go. */
int eye_open_input(struct eye *e, const struct eye_filter *filter) {
    int on = 1;
    e->fd = socket(e->family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, e->protocol);
    if (e->fd < 0)
        return -errno;
    attach_nothing(e->fd);
    while (recv(e->fd, &(char){0}, 1, MSG_DONTWAIT) >= 0)
        ;
    int error = prepare(e, filter);
    if (!error && e->family == AF_INET6 &&
        setsockopt(e->fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) < 0)
        error = -errno;
    return opened(e, error);
}

/* How many frames the kernel had no room for, and how many wait that are not kept. */
static uint64_t left_out(struct eye *e) {
    uint64_t waiting = 0;
    uint32_t info[SK_MEMINFO_VARS] = {0};
    struct tpacket_stats stats = {0};
    bool packet = e->family == AF_PACKET;
    socklen_t len = packet ? sizeof(stats) : sizeof(info);
    while (recv(e->fd, &(char){0}, 1, MSG_DONTWAIT) >= 0)
        waiting++;
    if (getsockopt(e->fd, packet ? SOL_PACKET : SOL_SOCKET, packet ? PACKET_STATISTICS : SO_MEMINFO,
                   packet ? (void *)&stats : (void *)info, &len) < 0)
        e->error = errno;
    return waiting + stats.tp_drops + info[SK_MEMINFO_DROPS];
}

/* No frame comes any more before what waits is taken, so the count is whole. */
void eye_shut(struct eye *e) {
    attach_nothing(e->fd);
    while (e->frames.len + sizeof(struct received) < KEEP_BYTES && take(e))
        ;
    e->lost = left_out(e);
    if (e->family == AF_PACKET && !e->error && if_nametoindex(e->name) != e->index)
        e->error = ENODEV;
}

void eye_free(struct eye *e) {
    if (e->fd >= 0)
        close(e->fd);
    e->fd = -1;
    buffer_free(&e->frames);
    free(e->box);
    e->box = NULL;
}
