#define _GNU_SOURCE
#include "spec.h"

#include "line.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HAS_PROTO = 1 << 0,
    HAS_TO = 1 << 1,
    HAS_PORT = 1 << 2,
    HAS_MS = 1 << 3,
    HAS_FROM = 1 << 4,
    HAS_SEND = 1 << 5,
    HAS_RECV = 1 << 6,
    HAS_TTL = 1 << 7,
    HAS_TOKEN = 1 << 8,
    HAS_BIND = 1 << 9,
    HAS_LINK = 1 << 10,
    HAS_MARK = 1 << 11,
    HAS_FRAMED = 1 << 12,
};

/** Which keys each protocol must and may have; indexed by enum spec_proto. */
static const struct {
    const char *name;
    unsigned must;
    unsigned may;
} protos[] = {
    {"tcp", HAS_TO | HAS_PORT | HAS_MS, HAS_FROM | HAS_SEND | HAS_RECV | HAS_FRAMED | HAS_TTL},
    {"udp", HAS_TO | HAS_PORT | HAS_MS, HAS_FROM | HAS_SEND | HAS_RECV | HAS_TTL},
    {"icmp", HAS_TO | HAS_MS, HAS_FROM | HAS_TTL},
    {"frame", HAS_LINK | HAS_SEND | HAS_MS, 0},
    {"listen", HAS_PORT | HAS_MS | HAS_TOKEN, HAS_BIND | HAS_LINK | HAS_MARK},
    {"await", HAS_PORT | HAS_MS | HAS_TOKEN, HAS_TO},
    {"stop", HAS_PORT | HAS_TOKEN, HAS_TO | HAS_MS},
};

const char *spec_proto_name(enum spec_proto proto) {
    return protos[proto].name;
}

bool parse_number(const char *text, unsigned low, unsigned high, unsigned *value) {
    unsigned long long n = 0;
    size_t len = strlen(text);

    if (len < 1 || len > 10 || strspn(text, "0123456789") != len)
        return false;
    n = strtoull(text, NULL, 10);
    *value = (unsigned)n;
    return n >= low && n <= high;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Reads len bytes, of twice as many digits. */
static int parse_hex(const char *text, uint8_t *out, size_t len) {
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text[2 * i]);
        int low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

        if (low < 0)
            return -EINVAL;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* A link-local address says nothing without its link; an IPv4-mapped one would silently send
 * IPv4. */
static int check_in6(const struct spec_address *a) {
    bool local = IN6_IS_ADDR_LINKLOCAL(&a->in6);

    if (IN6_IS_ADDR_MULTICAST(&a->in6) || IN6_IS_ADDR_V4MAPPED(&a->in6))
        return -EINVAL;
    return local == (a->scope[0] != '\0') ? 0 : -EINVAL;
}

static int parse_address(const char *text, struct spec_address *a) {
    char address[INET6_ADDRSTRLEN];
    const char *percent = strchrnul(text, '%');
    size_t len = (size_t)(percent - text);

    if (len >= sizeof(address))
        return -EINVAL;
    memcpy(address, text, len);
    address[len] = '\0';
    if (*percent) {
        if (!percent[1] || strlen(percent + 1) >= sizeof(a->scope))
            return -EINVAL;
        snprintf(a->scope, sizeof(a->scope), "%s", percent + 1);
    }
    if (!*percent && inet_pton(AF_INET, address, &a->in) == 1) {
        a->family = AF_INET;
        return IN_MULTICAST(ntohl(a->in.s_addr)) ? -EINVAL : 0;
    }
    if (inet_pton(AF_INET6, address, &a->in6) != 1)
        return -EINVAL;
    a->family = AF_INET6;
    return check_in6(a);
}

/* A target that is no single host cannot answer from the address asked. */
static int parse_target(const char *text, struct spec_address *a) {
    int r = parse_address(text, a);

    if (r)
        return r;
    if (a->family == AF_INET)
        return a->in.s_addr == INADDR_ANY || a->in.s_addr == INADDR_BROADCAST ? -EINVAL : 0;
    return IN6_IS_ADDR_UNSPECIFIED(&a->in6) ? -EINVAL : 0;
}

static int parse_proto(const char *text, enum spec_proto *proto) {
    for (size_t i = 0; i < sizeof(protos) / sizeof(protos[0]); i++) {
        if (strcmp(protos[i].name, text) == 0) {
            *proto = (enum spec_proto)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int set_proto(struct spec *spec, const char *value) {
    return parse_proto(value, &spec->proto);
}

static int set_to(struct spec *spec, const char *value) {
    return parse_target(value, &spec->to);
}

static int set_from(struct spec *spec, const char *value) {
    return parse_address(value, &spec->from);
}

static int set_port(struct spec *spec, const char *value) {
    unsigned n;

    if (!parse_number(value, 1, 65535, &n))
        return -EINVAL;
    spec->port = (uint16_t)n;
    return 0;
}

static int set_ms(struct spec *spec, const char *value) {
    return parse_number(value, 1, SPEC_MAX_MS, &spec->ms) ? 0 : -EINVAL;
}

static int set_recv(struct spec *spec, const char *value) {
    unsigned n;

    if (!parse_number(value, 0, SPEC_MAX_BYTES, &n))
        return -EINVAL;
    spec->recv = n;
    spec->has_recv = true;
    return 0;
}

static int set_framed(struct spec *spec, const char *value) {
    spec->framed = strcmp(value, "1") == 0;
    return spec->framed ? 0 : -EINVAL;
}

static int set_ttl(struct spec *spec, const char *value) {
    unsigned n;

    if (!parse_number(value, 1, 255, &n))
        return -EINVAL;
    spec->ttl = (int)n;
    return 0;
}

static int set_send(struct spec *spec, const char *value) {
    size_t len = strlen(value);

    if (len < 2 || len % 2 || len / 2 > SPEC_MAX_BYTES)
        return -EINVAL;
    spec->send = malloc(len / 2);
    if (!spec->send)
        return -ENOMEM;
    spec->send_len = len / 2;
    return parse_hex(value, spec->send, len / 2);
}

static int set_mark(struct spec *spec, const char *value) {
    spec->has_mark = true;
    return strlen(value) == 2 * sizeof(spec->mark) ? parse_hex(value, spec->mark, SPEC_MARK_BYTES)
                                                   : -EINVAL;
}

static int set_link(struct spec *spec, const char *value) {
    if (!value[0] || strlen(value) >= sizeof(spec->link))
        return -EINVAL;
    snprintf(spec->link, sizeof(spec->link), "%s", value);
    return 0;
}

static int set_token(struct spec *spec, const char *value) {
    if (!line_is_token(value))
        return -EINVAL;
    snprintf(spec->token, sizeof(spec->token), "%s", value);
    return 0;
}

static const struct {
    const char *name;
    unsigned bit;
    int (*set)(struct spec *spec, const char *value);
} keys[] = {
    {"proto", HAS_PROTO, set_proto},    {"to", HAS_TO, set_to},
    {"port", HAS_PORT, set_port},       {"ms", HAS_MS, set_ms},
    {"from", HAS_FROM, set_from},       {"send", HAS_SEND, set_send},
    {"recv", HAS_RECV, set_recv},       {"ttl", HAS_TTL, set_ttl},
    {"token", HAS_TOKEN, set_token},    {"bind", HAS_BIND, set_from},
    {"link", HAS_LINK, set_link},       {"mark", HAS_MARK, set_mark},
    {"framed", HAS_FRAMED, set_framed},
};

static int parse_pair(struct spec *spec, const char *key, const char *value, unsigned *given) {
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(keys[i].name, key) != 0)
            continue;
        if (*given & keys[i].bit)
            return -EINVAL;
        *given |= keys[i].bit;
        return keys[i].set(spec, value);
    }
    return -EINVAL;
}

static int check_spec(struct spec *spec, unsigned given) {
    unsigned must = protos[spec->proto].must | HAS_PROTO;
    unsigned may = protos[spec->proto].may | must;

    if ((given & must) != must || (given & ~may))
        return -EINVAL;
    if ((given & HAS_FROM) && spec->from.family != spec->to.family)
        return -EINVAL;
    if (spec->framed && !spec->has_recv)
        return -EINVAL;
    if (spec->proto == SPEC_FRAME && spec->send_len < ETH_HLEN)
        return -EINVAL;
    if (spec->proto == SPEC_LISTEN && !(given & HAS_MARK) != !(given & HAS_LINK))
        return -EINVAL;
    if (spec->proto == SPEC_STOP && !(given & HAS_MS))
        spec->ms = 1000;
    if (spec->proto == SPEC_UDP && !spec->has_recv)
        spec->recv = 512;
    if (spec->proto >= SPEC_AWAIT && !(given & HAS_TO)) {
        spec->to.family = AF_INET;
        spec->to.in.s_addr = htonl(INADDR_LOOPBACK);
    }
    return 0;
}

/* Cuts text, a private copy, at its commas. */
static int parse_spec(struct spec *spec, char *text) {
    unsigned given = 0;
    char *pair;

    while ((pair = strsep(&text, ","))) {
        char *value = strchr(pair, '=');
        int r;

        if (!value)
            return -EINVAL;
        *value++ = '\0';
        r = parse_pair(spec, pair, value, &given);
        if (r)
            return r;
    }
    return check_spec(spec, given);
}

static int add_spec(struct plan *plan, const char *arg) {
    struct spec *spec = &plan->specs[plan->count];
    char *copy;
    int r;

    if (plan->count >= SPEC_MAX_COUNT)
        return -EINVAL;
    copy = strdup(arg);
    if (!copy)
        return -ENOMEM;
    plan->count++;
    spec->stage = plan->stages;
    r = parse_spec(spec, copy);
    free(copy);
    return r;
}

static int end_stage(struct plan *plan) {
    if (plan->count == 0 || plan->specs[plan->count - 1].stage != plan->stages)
        return -EINVAL;
    plan->stages++;
    return plan->stages > SPEC_MAX_STAGES ? -EINVAL : 0;
}

int plan_parse(struct plan *plan, int count, char *const *args, char *why, size_t size) {
    *plan = (struct plan){.specs = calloc(SPEC_MAX_COUNT + 1, sizeof(struct spec))};
    if (!plan->specs)
        return -ENOMEM;
    for (int i = 0; i < count; i++) {
        int r = strcmp(args[i], "--") == 0 ? end_stage(plan) : add_spec(plan, args[i]);

        if (r) {
            snprintf(why, size, "argument %d is not a SPEC: %.200s", i + 1, args[i]);
            return r;
        }
    }
    if (end_stage(plan)) {
        snprintf(why, size, "a stage without a SPEC, or too many stages");
        return -EINVAL;
    }
    return 0;
}

void plan_clear(struct plan *plan) {
    for (size_t i = 0; plan->specs && i < plan->count; i++)
        free(plan->specs[i].send);
    free(plan->specs);
    memset(plan, 0, sizeof(*plan));
}
