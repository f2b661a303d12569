/*
 * `info`: what the box knows of itself. Asked of the kernel, not of programs that may be missing.
 */
#define _GNU_SOURCE
#include "line.h"
#include "modes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#define KIND_MAX 512
/* The kernel's dumps come in messages of at most 32 KiB (NLMSG_GOODSIZE, netlink_dump()). */
#define DUMP_BYTES 65536

static unsigned printed;

static void print(struct line *line) {
    line_end(line);
    printed++;
}

/* ---- files ------------------------------------------------------------------------------- */

static ssize_t read_file(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t len = 0;
    ssize_t n = 0;
    int error;

    if (fd < 0)
        return -errno;
    while (len < size && (n = read(fd, text + len, size - len)) > 0)
        len += (size_t)n;
    error = errno;
    close(fd);
    return n < 0 ? -error : (ssize_t)len;
}

static void print_missing(const char *key, int error) {
    struct line line;

    line_begin(&line);
    line_add(&line, key, "%s", "");
    line_add_errno(&line, error);
    print(&line);
}

static size_t first_line(const char *text, size_t len) {
    const char *end = memchr(text, '\n', len);

    return end ? (size_t)(end - text) : len;
}

/* The first line of a file. */
static void print_file(const char *key, const char *path) {
    char text[256];
    ssize_t len = read_file(path, text, sizeof(text));
    struct line line;

    if (len < 0) {
        print_missing(key, (int)-len);
        return;
    }
    line_begin(&line);
    line_add_text(&line, key, text, first_line(text, (size_t)len));
    print(&line);
}

static void print_names(void) {
    struct utsname names;
    struct line line;

    if (uname(&names)) {
        print_missing("hostname", errno);
        return;
    }
    line_begin(&line);
    line_add_text(&line, "hostname", names.nodename, strlen(names.nodename));
    print(&line);
    line_begin(&line);
    line_add_text(&line, "kernel", names.release, strlen(names.release));
    print(&line);
}

/* ---- links, addresses, routes ------------------------------------------------------------ */

/** A kind of thing the kernel is asked to list. */
struct dump {
    const char *key;
    uint16_t request;
    /** Prints one, or returns false: not one that is wanted. */
    bool (*show)(struct line *line, struct nlmsghdr *message);
    unsigned shown;
    unsigned more;
};

/* The value of one attribute, and its length; NULL if it is not there. */
static const void *attribute(const struct rtattr *first, size_t len, unsigned short type,
                             size_t *value_len) {
    const struct rtattr *a = first;

    for (; RTA_OK(a, len); a = RTA_NEXT(a, len)) {
        if (a->rta_type != type)
            continue;
        *value_len = RTA_PAYLOAD(a);
        return RTA_DATA(a);
    }
    return NULL;
}

static void add_link(struct line *line, unsigned index) {
    char name[IF_NAMESIZE];

    if (if_indextoname(index, name))
        line_add_text(line, "link", name, strlen(name));
    else
        line_add(line, "link", "%u", index);
}

static bool show_link(struct line *line, struct nlmsghdr *message) {
    const struct ifinfomsg *info = NLMSG_DATA(message);
    size_t rest = IFLA_PAYLOAD(message);
    size_t len;
    const uint8_t *mac = attribute(IFLA_RTA(info), rest, IFLA_ADDRESS, &len);

    add_link(line, (unsigned)info->ifi_index);
    if (mac && len == 6)
        line_add(line, "mac", "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
                 mac[4], mac[5]);
    line_add(line, "up", "%d", (info->ifi_flags & IFF_UP) != 0);
    return true;
}

/* Address bytes as text; false if they are of no family we know. */
static bool bytes_text(char *text, int family, const void *bytes, size_t len) {
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

    if (family == AF_INET && len == sizeof(in.sin_addr)) {
        memcpy(&in.sin_addr, bytes, len);
        address_text(text, (const void *)&in);
    } else if (family == AF_INET6 && len == sizeof(in6.sin6_addr)) {
        memcpy(&in6.sin6_addr, bytes, len);
        address_text(text, (const void *)&in6);
    } else {
        return false;
    }
    return true;
}

static void add_scope(struct line *line, unsigned scope) {
    const char *name = scope == RT_SCOPE_UNIVERSE ? "global"
                       : scope == RT_SCOPE_SITE   ? "site"
                       : scope == RT_SCOPE_LINK   ? "link"
                       : scope == RT_SCOPE_HOST   ? "host"
                                                  : NULL;
    if (name)
        line_add(line, "scope", "%s", name);
    else
        line_add(line, "scope", "%u", scope);
}

/* IFA_LOCAL is the own address; IFA_ADDRESS is the peer's on a point-to-point link, and the only
 * one for IPv6. */
static bool show_address(struct line *line, struct nlmsghdr *message) {
    const struct ifaddrmsg *info = NLMSG_DATA(message);
    size_t rest = IFA_PAYLOAD(message);
    char text[ADDRESS_TEXT];
    size_t len = 0;
    const void *bytes = attribute(IFA_RTA(info), rest, IFA_LOCAL, &len);

    if (!bytes)
        bytes = attribute(IFA_RTA(info), rest, IFA_ADDRESS, &len);
    if (!bytes || !bytes_text(text, info->ifa_family, bytes, len))
        return false;
    line_add(line, "addr", "%s/%u", text, info->ifa_prefixlen);
    add_link(line, info->ifa_index);
    line_add(line, "family", "%d", info->ifa_family == AF_INET ? 4 : 6);
    add_scope(line, info->ifa_scope);
    if (info->ifa_flags & IFA_F_TENTATIVE)
        line_add(line, "tentative", "%d", 1);
    return true;
}

static bool get_u32(const struct rtattr *first, size_t rest, unsigned short type, uint32_t *value) {
    size_t len;
    const void *bytes = attribute(first, rest, type, &len);

    if (!bytes || len != sizeof(*value))
        return false;
    memcpy(value, bytes, len);
    return true;
}

static bool show_route(struct line *line, struct nlmsghdr *message) {
    const struct rtmsg *info = NLMSG_DATA(message);
    const struct rtattr *first = RTM_RTA(info);
    size_t rest = RTM_PAYLOAD(message);
    char text[ADDRESS_TEXT];
    uint32_t value = info->rtm_table;
    size_t len = 0;
    const void *bytes;

    get_u32(first, rest, RTA_TABLE, &value);
    if (value != RT_TABLE_MAIN || info->rtm_type != RTN_UNICAST ||
        (info->rtm_family != AF_INET && info->rtm_family != AF_INET6))
        return false;
    bytes = attribute(first, rest, RTA_DST, &len);
    if (bytes && bytes_text(text, info->rtm_family, bytes, len))
        line_add(line, "route", "%s/%u", text, info->rtm_dst_len);
    else
        line_add(line, "route", "default");
    bytes = attribute(first, rest, RTA_GATEWAY, &len);
    if (bytes && bytes_text(text, info->rtm_family, bytes, len))
        line_add(line, "via", "%s", text);
    if (get_u32(first, rest, RTA_OIF, &value))
        add_link(line, value);
    line_add(line, "family", "%d", info->rtm_family == AF_INET ? 4 : 6);
    if (!get_u32(first, rest, RTA_PRIORITY, &value))
        value = 0;
    line_add(line, "metric", "%u", value);
    return true;
}

/* Reads one batch. Returns 1: more to come; 0: done; -errno. */
static int show_batch(struct dump *dump, char *buffer, size_t len) {
    struct nlmsghdr *m = (void *)buffer;

    for (; NLMSG_OK(m, len); m = NLMSG_NEXT(m, len)) {
        struct line line;

        if (m->nlmsg_type == NLMSG_DONE)
            return 0;
        if (m->nlmsg_type == NLMSG_ERROR)
            return ((struct nlmsgerr *)NLMSG_DATA(m))->error;
        line_begin(&line);
        if (!dump->show(&line, m))
            continue;
        if (dump->shown == KIND_MAX) {
            dump->more++;
            continue;
        }
        dump->shown++;
        print(&line);
    }
    return 1;
}

static int run_dump(struct dump *dump, int fd, char *buffer) {
    struct {
        struct nlmsghdr header;
        struct rtgenmsg family;
    } request = {
        .header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtgenmsg)),
                   .nlmsg_type = dump->request,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .family = {.rtgen_family = AF_UNSPEC},
    };
    struct timeval patience = {.tv_sec = 5};
    int r;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (send(fd, &request, request.header.nlmsg_len, 0) < 0)
        return -errno;
    do {
        ssize_t n = recv(fd, buffer, DUMP_BYTES, 0);

        if (n < 0)
            return -errno;
        r = show_batch(dump, buffer, (size_t)n);
    } while (r > 0);
    return r;
}

static void print_dump(struct dump dump) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    char *buffer = malloc(DUMP_BYTES);
    int r = fd < 0 ? -errno : -ENOMEM;
    struct line line;

    if (fd >= 0 && buffer)
        r = run_dump(&dump, fd, buffer);
    if (r)
        print_missing(dump.key, -r);
    if (dump.more) {
        line_begin(&line);
        line_add(&line, dump.key, "%s", "");
        line_add(&line, "more", "%u", dump.more);
        print(&line);
    }
    free(buffer);
    if (fd >= 0)
        close(fd);
}

/* ---- the resolver ------------------------------------------------------------------------ */

static void print_nameserver(const char *text, size_t len) {
    struct line line;

    line_begin(&line);
    line_add_text(&line, "nameserver", text, len);
    print(&line);
}

static void print_nameservers(void) {
    static char text[65536];
    ssize_t len = read_file("/etc/resolv.conf", text, sizeof(text) - 1);
    unsigned count = 0;

    if (len < 0) {
        print_missing("nameserver", (int)-len);
        return;
    }
    text[len] = '\0';
    for (char *rest = text, *next; (next = strsep(&rest, "\n")) && count < KIND_MAX;) {
        size_t word = strcspn(next, " \t");

        if (word != 10 || strncmp(next, "nameserver", 10) != 0)
            continue;
        next += word + strspn(next + word, " \t");
        print_nameserver(next, strcspn(next, " \t\r"));
        count++;
    }
}

int mode_info(void) {
    struct line line;

    print_names();
    print_file("machine-id", "/etc/machine-id");
    print_file("boot-id", "/proc/sys/kernel/random/boot_id");
    print_file("icmp_echo_ignore_all", "/proc/sys/net/ipv4/icmp_echo_ignore_all");
    print_dump((struct dump){.key = "link", .request = RTM_GETLINK, .show = show_link});
    print_dump((struct dump){.key = "addr", .request = RTM_GETADDR, .show = show_address});
    print_dump((struct dump){.key = "route", .request = RTM_GETROUTE, .show = show_route});
    print_nameservers();
    line_begin(&line);
    line_add(&line, "end", "%u", printed);
    line_end(&line);
    return 0;
}
