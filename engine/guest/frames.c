#define _GNU_SOURCE
#include "frames.h"

#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* As much of a frame as is looked at, from its network header on. */
#define SNAP         128
#define SOURCES_TEXT 7000
#define BUFFER_BYTES (1 << 20)

/* Offsets in the headers; the socket gives frames without their link header. */
#define IP4_LEN         4
#define IP4_FRAGMENT    6
#define IP4_PROTO       9
#define IP4_SOURCE      12
#define IP6_NEXT        6
#define IP6_SOURCE      8
#define IP6_PAYLOAD     40
#define ND_TARGET       (IP6_PAYLOAD + 8)
#define PORT_TO         2
#define ARP_LENGTHS     4
#define ARP_OPERATION   6
#define ARP_SENDER      14
#define ARP_TARGET      24
#define ARP_BYTES       28
#define FRAGMENT_OFFSET 0x1fff

/* ---- the filter ---------------------------------------------------------------------------- */

#define ANCILLARY(what) ((uint32_t)(SKF_AD_OFF + (what)))
#define LOAD_WORD(at)   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
#define LOAD_HALF(at)   BPF_STMT(BPF_LD | BPF_H | BPF_ABS, (at))
#define LOAD_BYTE(at)   BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (at))
/* Jumps over so many of the instructions that follow, when equal and when not. */
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define DROP                  BPF_STMT(BPF_RET | BPF_K, 0)
#define ACCEPT                BPF_STMT(BPF_RET | BPF_K, SNAP)

/* Lets through what others send to this box: ARP, and over IPv4 and IPv6 TCP and UDP to the port,
 * echo requests and neighbour solicitations. Of fragments only the first has a port. */
static int attach_filter(int fd, uint16_t port) {
    struct sock_filter code[] = {
        LOAD_WORD(ANCILLARY(SKF_AD_PKTTYPE)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, PACKET_MULTICAST, 4, 0),
        LOAD_WORD(ANCILLARY(SKF_AD_HATYPE)),
        EQUAL(ARPHRD_LOOPBACK, 2, 0),
        LOAD_WORD(ANCILLARY(SKF_AD_PROTOCOL)),
        EQUAL(ETH_P_ARP, 1, 2),
        DROP,
        ACCEPT,
        EQUAL(ETH_P_IPV6, 15, 0),
        EQUAL(ETH_P_IP, 1, 0),
        DROP,
        /* IPv4 */
        LOAD_HALF(IP4_FRAGMENT),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FRAGMENT_OFFSET, 9, 0),
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
        LOAD_BYTE(IP4_PROTO),
        EQUAL(IPPROTO_ICMP, 4, 0),
        EQUAL(IPPROTO_TCP, 1, 0),
        EQUAL(IPPROTO_UDP, 0, 4),
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, PORT_TO),
        EQUAL(port, 3, 2),
        BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),
        EQUAL(ICMP_ECHO, 1, 0),
        DROP,
        ACCEPT,
        /* IPv6 */
        LOAD_BYTE(IP6_NEXT),
        EQUAL(IPPROTO_ICMPV6, 4, 0),
        EQUAL(IPPROTO_TCP, 1, 0),
        EQUAL(IPPROTO_UDP, 0, 5),
        LOAD_HALF(IP6_PAYLOAD + PORT_TO),
        EQUAL(port, 4, 3),
        LOAD_BYTE(IP6_PAYLOAD),
        EQUAL(ICMP6_ECHO_REQUEST, 2, 0),
        EQUAL(ND_NEIGHBOR_SOLICIT, 1, 0),
        DROP,
        ACCEPT,
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}

/* Everything but what the box itself sends. */
static int attach_all(int fd) {
    struct sock_filter code[] = {
        LOAD_WORD(ANCILLARY(SKF_AD_PKTTYPE)),
        EQUAL(PACKET_OUTGOING, 0, 1),
        DROP,
        ACCEPT,
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}

/* ---- the socket ---------------------------------------------------------------------------- */

/* One link, and what is sent to any group on it: a card may sort out the groups that nobody joined.
 */
static int narrow(int fd, const struct spec *spec, struct sockaddr_ll *at) {
    struct packet_mreq all = {.mr_type = PACKET_MR_ALLMULTI};
    uint32_t index;
    int r = link_index(spec->link, &index);

    if (r)
        return r;
    at->sll_ifindex = all.mr_ifindex = (int)index;
    if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)))
        return -errno;
    return attach_all(fd);
}

/* The protocol is set last: until the filter is there, nothing shall come. */
static int open_socket(const struct spec *spec) {
    int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int bytes = BUFFER_BYTES;
    int r;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    r = spec->has_mark ? narrow(fd, spec, &at) : attach_filter(fd, spec->port);
    if (!r && bind(fd, (const void *)&at, sizeof(at)))
        r = -errno;
    if (!r)
        return fd;
    close(fd);
    return r;
}

void frames_open(struct frames *frames, const struct spec *spec) {
    frames->spec = spec;
    frames->fd = open_socket(spec);
    if (frames->fd < 0) {
        frames->error = -frames->fd;
        frames->fd = -1;
    }
}

/* ---- what came ----------------------------------------------------------------------------- */

static void set_ip4(struct frame_source *s, const uint8_t *bytes) {
    struct sockaddr_in *in = (void *)&s->addr;

    in->sin_family = AF_INET;
    memcpy(&in->sin_addr, bytes, sizeof(in->sin_addr));
}

static void set_ip6(struct frame_source *s, const uint8_t *bytes) {
    struct sockaddr_in6 *in6 = (void *)&s->addr;

    in6->sin6_family = AF_INET6;
    memcpy(&in6->sin6_addr, bytes, sizeof(in6->sin6_addr));
}

/* Whether an ARP request or a solicitation asks for the listener's address. */
static bool is_ours(const struct frames *f, sa_family_t family, const uint8_t *bytes) {
    const struct spec_address *bind = &f->spec->from;

    if (bind->family == AF_UNSPEC || f->spec->has_mark)
        return true;
    if (bind->family != family)
        return false;
    return family == AF_INET ? memcmp(&bind->in, bytes, sizeof(bind->in)) == 0
                             : memcmp(&bind->in6, bytes, sizeof(bind->in6)) == 0;
}

static const char *transport(uint8_t protocol) {
    switch (protocol) {
    case IPPROTO_TCP:
        return "tcp";
    case IPPROTO_UDP:
        return "udp";
    case IPPROTO_ICMP:
    case IPPROTO_ICMPV6:
        return "icmp";
    default:
        return "other";
    }
}

static bool read_arp(const struct frames *f, struct frame_source *s, const uint8_t *p, size_t len) {
    s->kind = "arp";
    if (len < ARP_BYTES || p[ARP_LENGTHS] != ETH_ALEN || p[ARP_LENGTHS + 1] != IP4_LEN ||
        p[ARP_OPERATION] != 0 || p[ARP_OPERATION + 1] != ARPOP_REQUEST ||
        !is_ours(f, AF_INET, p + ARP_TARGET))
        return false;
    set_ip4(s, p + ARP_SENDER);
    return true;
}

static bool read_ip6(const struct frames *f, struct frame_source *s, const uint8_t *p, size_t len) {
    if (len <= IP6_PAYLOAD)
        return false;
    s->kind = transport(p[IP6_NEXT]);
    set_ip6(s, p + IP6_SOURCE);
    if (p[IP6_NEXT] != IPPROTO_ICMPV6 || p[IP6_PAYLOAD] != ND_NEIGHBOR_SOLICIT)
        return true;
    s->kind = "nd";
    return len >= ND_TARGET + sizeof(struct in6_addr) && is_ours(f, AF_INET6, p + ND_TARGET);
}

/* The filter has sorted out the rest. Fills what it can tell of a frame; returns whether it counts
 * without a mark. */
static bool read_frame(const struct frames *f, struct frame_source *s, unsigned ether,
                       const uint8_t *p, size_t len) {
    if (ether == ETH_P_ARP)
        return read_arp(f, s, p, len);
    if (ether == ETH_P_IPV6)
        return read_ip6(f, s, p, len);
    s->kind = "other";
    if (ether != ETH_P_IP || len < sizeof(struct iphdr))
        return false;
    s->kind = transport(p[IP4_PROTO]);
    set_ip4(s, p + IP4_SOURCE);
    return true;
}

static void remember(struct frames *f, const struct frame_source *new) {
    f->count++;
    for (size_t i = 0; i < f->source_count; i++) {
        struct frame_source *s = &f->sources[i];

        if (strcmp(s->kind, new->kind) == 0 && s->has_mac == new->has_mac &&
            memcmp(s->mac, new->mac, ETH_ALEN) == 0 &&
            sockaddr_same_host((const void *)&s->addr, (const void *)&new->addr)) {
            s->count++;
            return;
        }
    }
    if (f->source_count == FRAMES_MAX) {
        f->more++;
        return;
    }
    f->sources[f->source_count] = *new;
    f->sources[f->source_count++].count = 1;
}

static void remember_marked(struct frames *f, uint8_t number, const uint8_t *mac) {
    struct frame_marked *m = f->marked;

    for (; m < f->marked + f->marked_count; m++) {
        if (m->number == number && memcmp(m->mac, mac, ETH_ALEN) == 0) {
            m->count++;
            return;
        }
    }
    if (f->marked_count == FRAMES_MAX) {
        f->more++;
        return;
    }
    m->number = number;
    memcpy(m->mac, mac, ETH_ALEN);
    m->count = 1;
    f->marked_count++;
}

/* Whether a frame is marked, by whomever. Whose mark it is not, that one does not judge it: it was
 * sent to be seen by another listener. */
static bool take_marked(struct frames *f, const uint8_t *data, size_t len, const uint8_t *mac) {
    const struct spec *spec = f->spec;
    const uint8_t *at = memmem(data, len, FRAME_MAGIC, FRAME_MAGIC_BYTES);
    size_t rest = at ? len - (size_t)(at - data) : 0;

    if (rest <= FRAME_MAGIC_BYTES + SPEC_MARK_BYTES)
        return false;
    at += FRAME_MAGIC_BYTES;
    if (spec->has_mark && memcmp(at, spec->mark, SPEC_MARK_BYTES) == 0)
        remember_marked(f, at[SPEC_MARK_BYTES], mac);
    return true;
}

bool frames_take(struct frames *frames) {
    uint8_t data[SNAP];
    struct sockaddr_ll from = {0};
    socklen_t from_len = sizeof(from);
    struct frame_source source = {0};
    ssize_t n = recvfrom(frames->fd, data, sizeof(data), 0, (void *)&from, &from_len);

    /* After an error, what was to follow may be missing. */
    if (n < 0 && errno != EAGAIN && !frames->error)
        frames->error = errno;
    if (n < 0)
        return false;
    source.has_mac = from.sll_halen == ETH_ALEN;
    if (source.has_mac)
        memcpy(source.mac, from.sll_addr, ETH_ALEN);
    frames->watched++;
    if (take_marked(frames, data, (size_t)n, source.mac))
        return true;
    if (read_frame(frames, &source, ntohs(from.sll_protocol), data, (size_t)n) ||
        frames->spec->has_mark)
        remember(frames, &source);
    return true;
}

/* ---- the report ---------------------------------------------------------------------------- */

static size_t source_text(char *text, size_t size, const struct frame_source *s) {
    const uint8_t *m = s->mac;
    char address[ADDRESS_TEXT];
    char count[16] = "";
    char mac[20] = "-";

    address_text(address, (const void *)&s->addr);
    if (s->has_mac)
        snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4],
                 m[5]);
    if (s->count > 1)
        snprintf(count, sizeof(count), "*%u", s->count);
    return (size_t)snprintf(text, size, "%s:%s@%s%s", s->kind, address, mac, count);
}

static void add_marked(const struct frames *f, struct line *line) {
    char text[SOURCES_TEXT];
    size_t len = 0;

    for (size_t i = 0; i < f->marked_count; i++) {
        const struct frame_marked *m = &f->marked[i];
        const uint8_t *a = m->mac;

        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "%s%u@%02x:%02x:%02x:%02x:%02x:%02x*%u", i ? ";" : "", m->number,
                                a[0], a[1], a[2], a[3], a[4], a[5], m->count);
    }
    if (len > 0)
        line_add(line, "marked", "%s", text);
}

static unsigned lost(const struct frames *f) {
    struct tpacket_stats stats = {0};
    socklen_t len = sizeof(stats);

    getsockopt(f->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len);
    return stats.tp_drops;
}

void frames_add(struct frames *frames, struct line *line) {
    char text[SOURCES_TEXT];
    unsigned drops = frames->fd >= 0 ? lost(frames) : 0;
    size_t len = 0;

    for (size_t i = 0; i < frames->source_count && len + ADDRESS_TEXT + 64 < sizeof(text); i++) {
        if (i)
            text[len++] = ';';
        len += source_text(text + len, sizeof(text) - len, &frames->sources[i]);
    }
    if (frames->fd >= 0 && frames->spec->has_mark) {
        line_add(line, "watched", "%u", frames->watched);
        add_marked(frames, line);
    }
    if (frames->fd >= 0)
        line_add(line, "frames", "%u", frames->count);
    if (len > 0)
        line_add(line, "frames-seen", "%s", text);
    if (frames->more)
        line_add(line, "frames-more", "%u", frames->more);
    if (drops)
        line_add(line, "frames-lost", "%u", drops);
    if (frames->error)
        line_add(line, "frames-errno", "%s", line_errno_name(frames->error));
}
