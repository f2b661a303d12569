/*
 * What `boxdrill-guest attempt` is asked to do, parsed from its arguments. Pure: no socket, no
 * lookup, nothing sent. docs/guest.md is the grammar. For the guest program and its fuzzer.
 */
#ifndef BOXDRILL_GUEST_SPEC_H
#define BOXDRILL_GUEST_SPEC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPEC_MAX_COUNT  1024
#define SPEC_MAX_STAGES 64
#define SPEC_MAX_BYTES  4096
#define SPEC_MAX_MS     600000
#define SPEC_MARK_BYTES 8

/** What a SPEC does. */
enum spec_proto {
    SPEC_TCP,
    SPEC_UDP,
    SPEC_ICMP,
    SPEC_FRAME,
    SPEC_LISTEN,
    SPEC_AWAIT,
    SPEC_STOP,
};

/** A numeric address; the scope stays a name until it is used. */
struct spec_address {
    sa_family_t family; /**< AF_INET, AF_INET6; AF_UNSPEC: not given */
    union {
        struct in_addr in;
        struct in6_addr in6;
    };
    char scope[16]; /**< interface name or index; empty: none */
};

/** One SPEC. */
struct spec {
    enum spec_proto proto;
    unsigned stage;                /**< from 0 */
    struct spec_address to;        /**< also await's and stop's, 127.0.0.1 when left out */
    struct spec_address from;      /**< also listen's bind */
    uint16_t port;                 /**< 0: none */
    unsigned ms;                   /**< budget, milliseconds */
    int ttl;                       /**< 0: the system's */
    uint8_t *send;                 /**< owned; NULL: none */
    size_t send_len;               /**< bytes at send */
    bool has_recv;                 /**< recv was given */
    bool framed;                   /**< tcp: what comes says in two bytes how long it is */
    size_t recv;                   /**< bytes to report */
    char token[65];                /**< empty: none */
    char link[16];                 /**< interface name or index; empty: none */
    bool has_mark;                 /**< mark was given */
    uint8_t mark[SPEC_MARK_BYTES]; /**< listen: which frames are looked for */
};

/** All SPECs of a run. Free with plan_clear(). */
struct plan {
    struct spec *specs;
    size_t count;
    unsigned stages;
};

/**
 * The name of a protocol, as in a SPEC.
 *
 * @param proto one of the enumeration
 * @return a constant string
 */
const char *spec_proto_name(enum spec_proto proto);

/**
 * Parses the arguments after the nonce.
 *
 * @param plan  filled; free with plan_clear() in any case
 * @param count number of arguments
 * @param args  the arguments: SPECs, and `--` between stages
 * @param why   filled with what is wrong, on failure
 * @param size  room at why
 * @return 0, -EINVAL (why says what), -ENOMEM
 */
int plan_parse(struct plan *plan, int count, char *const *args, char *why, size_t size);

/**
 * Frees what a plan holds.
 *
 * @param plan may be zeroed; is left zeroed
 */
void plan_clear(struct plan *plan);

/**
 * Decimal text as a number: digits only.
 *
 * @param text  NUL-terminated
 * @param low   the least that is accepted
 * @param high  the most
 * @param value set on success
 * @return whether it is one, and in the range
 */
bool parse_number(const char *text, unsigned low, unsigned high, unsigned *value);

#endif
