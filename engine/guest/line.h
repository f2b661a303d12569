/*
 * The lines the guest program prints: built in a bounded buffer, every value safe for a line-based
 * reader, written whole. docs/guest.md is the format. For the guest program only.
 */
#ifndef BOXDRILL_GUEST_LINE_H
#define BOXDRILL_GUEST_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/** The longest line, its newline included. */
#define LINE_MAX_BYTES 16000

/** A line being built. */
struct line {
    char text[LINE_MAX_BYTES];
    size_t len;
};

/**
 * Says what every line begins with. Call once, before any other function here.
 *
 * @param nonce lower-case hexadecimal digits; must stay valid
 */
void line_nonce(const char *nonce);

/**
 * Whether a string is a nonce or token: 8 to 64 lower-case hexadecimal digits.
 *
 * @param text NUL-terminated
 * @return true if it is
 */
bool line_is_token(const char *text);

/**
 * Begins a line with the nonce.
 *
 * @param line overwritten
 */
void line_begin(struct line *line);

/**
 * Appends ` key=` and a formatted value that is known to be safe (numbers, names of ours).
 *
 * @param line   a begun line
 * @param key    the key
 * @param format as printf
 */
void line_add(struct line *line, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Appends ` key=` and bytes from outside: what is not plain printable ASCII becomes %XX.
 *
 * @param line a begun line
 * @param key  the key
 * @param text the bytes
 * @param len  how many; what exceeds 1024 is cut
 */
void line_add_text(struct line *line, const char *key, const char *text, size_t len);

/**
 * Appends ` key=` and bytes in hexadecimal.
 *
 * @param line a begun line
 * @param key  the key
 * @param data the bytes
 * @param len  how many
 */
void line_add_hex(struct line *line, const char *key, const uint8_t *data, size_t len);

/**
 * Appends ` errno=NAME errnum=N`.
 *
 * @param line  a begun line
 * @param error an errno
 */
void line_add_errno(struct line *line, int error);

/**
 * Appends ` key=` and microseconds as milliseconds with three decimals.
 *
 * @param line a begun line
 * @param key  the key
 * @param us   microseconds
 */
void line_add_ms(struct line *line, const char *key, int64_t us);

/**
 * Writes the line and its newline to stdout with as few writes as possible. A reader that is gone
 * ends the program with status 3: a run whose lines are lost is lost.
 *
 * @param line a begun line
 */
void line_end(struct line *line);

/**
 * The name of an errno.
 *
 * @param error an errno
 * @return its name, or `E` and the number (in a static buffer, until the next call)
 */
const char *line_errno_name(int error);

/** Room for any address as text: `[IPV6%SCOPE]:PORT` with the scope escaped. */
#define ADDRESS_TEXT 128

/**
 * An address as text: `10.0.0.1`, `fe80::1%eth0`. An IPv4-mapped one is written as IPv4.
 *
 * @param text  ADDRESS_TEXT bytes
 * @param addr  AF_INET or AF_INET6; anything else gives `?`
 */
void address_text(char *text, const struct sockaddr *addr);

/**
 * An address and a port as text: `10.0.0.1:80`, `[fe80::1%eth0]:80`.
 *
 * @param text ADDRESS_TEXT bytes
 * @param addr AF_INET or AF_INET6
 * @param port written whatever port addr holds
 */
void endpoint_text(char *text, const struct sockaddr *addr, unsigned port);

/**
 * Microseconds of the monotonic clock.
 *
 * @return microseconds since some moment in the past
 */
int64_t clock_us(void);

#endif
