/* One eye of a witness: a socket that sees frames and keeps them as they came, counted, never
 * parsed. For op_witness.c. */
#pragma once

#include "wire.h"

#include <net/if.h>
#include <netinet/in.h>

enum {
    EYE_MAX_IPV4 =
        48, /* addresses: so that the filter fits into an unchanged net.core.optmem_max */
    EYE_MAX_IPV6 = 16,
};

/* Whose frames are let through: those from, to, or about (ARP, ND, an ICMP error) one of these
 * addresses. With `all`: every one. */
struct eye_filter {
    bool all;
    unsigned count4, count6;
    struct in_addr v4[EYE_MAX_IPV4];
    struct in6_addr v6[EYE_MAX_IPV6];
};

struct eye {
    const char *role;    /* "port", "link" or "input" */
    char *box;           /* of a port: whose it is; else NULL */
    char name[IFNAMSIZ]; /* the link's; of an input eye "tcp4" and the like */
    unsigned index;      /* the link's */
    int family, protocol;
    int fd;
    int error;     /* errno of what blinded it for a time; 0 */
    uint64_t kept; /* frames */
    uint64_t lost; /* frames that passed the filter and were not kept: no room, or too many */
    struct buffer frames; /* records, docs/witness.md */
};

/* Opens an eye on a link (its `name` is set): what comes in and goes out there, before any
 * firewall. The frames wait in the socket, within its bounds: a flood costs the broker nothing.
 * Returns 0 or -errno; nothing is open then. */
int eye_open_link(struct eye *e, const struct eye_filter *filter);
/* Opens an eye on what this host's own input hook let through, of one family and protocol (both
 * set). Returns 0 or -errno. */
int eye_open_input(struct eye *e, const struct eye_filter *filter);
/* Sees no more: takes what came, and counts what was lost. */
void eye_shut(struct eye *e);
/* Closes it, open or shut, and frees what it holds. */
void eye_free(struct eye *e);
