/*
 * Sockets as the guest program uses them: addresses with scopes, the options every attempt sets,
 * and the kernel's error queue. For the guest program only.
 */
#ifndef BOXDRILL_GUEST_NET_H
#define BOXDRILL_GUEST_NET_H

#include "spec.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/** A socket address of either family and its length. */
struct endpoint {
    struct sockaddr_storage addr;
    socklen_t len;
};

/**
 * An interface's index.
 *
 * @param name  its name, or the index itself in digits
 * @param index set on success
 * @return 0 or -ENODEV (no such name)
 */
int link_index(const char *name, uint32_t *index);

/**
 * Turns a parsed address into a socket address; a scope's name is looked up now.
 *
 * @param address the address; AF_UNSPEC is the IPv6 wildcard
 * @param port    host byte order
 * @param out     filled
 * @return 0 or -ENODEV (no such interface)
 */
int endpoint_make(const struct spec_address *address, uint16_t port, struct endpoint *out);

/**
 * The port in a socket address.
 *
 * @param addr AF_INET or AF_INET6
 * @return host byte order; 0 for other families
 */
unsigned sockaddr_port(const struct sockaddr *addr);

/**
 * Whether two socket addresses hold the same address, ports and scopes aside; IPv4-mapped ones
 * equal the IPv4 they hold.
 *
 * @param a AF_INET or AF_INET6
 * @param b AF_INET or AF_INET6
 * @return true if so
 */
bool sockaddr_same_host(const struct sockaddr *a, const struct sockaddr *b);

/**
 * Whether an address is a loopback one (127.0.0.0/8, ::1, or the former IPv4-mapped).
 *
 * @param addr AF_INET or AF_INET6
 * @return true if so
 */
bool sockaddr_is_loopback(const struct sockaddr *addr);

/**
 * Whether an address is the unspecified one: a socket that has none yet.
 *
 * @param addr AF_INET or AF_INET6
 * @return true if so
 */
bool sockaddr_is_any(const struct sockaddr *addr);

/**
 * Asks for ICMP errors in the error queue, and sets the time to live.
 *
 * @param fd     a socket
 * @param family AF_INET or AF_INET6
 * @param ttl    0: the system's
 * @return 0 or -errno
 */
int socket_options(int fd, int family, int ttl);

/** An entry of the error queue. */
struct net_error {
    int error;      /**< errno */
    uint8_t origin; /**< SO_EE_ORIGIN_* */
    uint8_t type;   /**< of the ICMP error */
    uint8_t code;   /**< of the ICMP error */
    bool has_offender;
    struct sockaddr_storage offender; /**< who sent the ICMP error */
    uint8_t data[64];                 /**< the start of what was sent and came back */
    size_t data_len;
};

/**
 * Takes one entry from the error queue.
 *
 * @param fd  a socket with socket_options()
 * @param out filled
 * @return 0; -EAGAIN: the queue is empty; -errno
 */
int read_net_error(int fd, struct net_error *out);

#endif
