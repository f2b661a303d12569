#define _GNU_SOURCE
#include "line.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX 1024

static const char *the_nonce = "";

void line_nonce(const char *nonce) {
    the_nonce = nonce;
}

bool line_is_token(const char *text) {
    size_t len = strlen(text);

    return len >= 8 && len <= 64 && strspn(text, "0123456789abcdef") == len;
}

/* Appends, or nothing at all if it does not fit: a cut value would be a false one. One byte
 * stays free for the newline. */
static void append(struct line *line, const char *text, size_t len) {
    if (len >= sizeof(line->text) - line->len)
        return;
    memcpy(line->text + line->len, text, len);
    line->len += len;
}

static void append_key(struct line *line, const char *key) {
    append(line, " ", 1);
    append(line, key, strlen(key));
    append(line, "=", 1);
}

void line_begin(struct line *line) {
    line->len = 0;
    append(line, the_nonce, strlen(the_nonce));
}

void line_add(struct line *line, const char *key, const char *format, ...) {
    char value[8192];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    append_key(line, key);
    if (n > 0 && (size_t)n < sizeof(value))
        append(line, value, (size_t)n);
}

/* Writes text to out with everything but plain printable ASCII as %XX. Returns the length;
 * stops where size would be exceeded. */
static size_t escape(char *out, size_t size, const char *text, size_t len) {
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = c > ' ' && c <= '~' && c != '%';

        if (n + 3 > size)
            break;
        if (plain) {
            out[n++] = (char)c;
            continue;
        }
        out[n++] = '%';
        out[n++] = digits[c >> 4];
        out[n++] = digits[c & 15];
    }
    return n;
}

void line_add_text(struct line *line, const char *key, const char *text, size_t len) {
    char value[TEXT_MAX * 3];
    size_t n = escape(value, sizeof(value), text, len < TEXT_MAX ? len : TEXT_MAX);

    append_key(line, key);
    append(line, value, n);
}

void line_add_hex(struct line *line, const char *key, const uint8_t *data, size_t len) {
    static const char digits[] = "0123456789abcdef";

    append_key(line, key);
    for (size_t i = 0; i < len; i++) {
        char pair[2] = {digits[data[i] >> 4], digits[data[i] & 15]};

        append(line, pair, 2);
    }
}

void line_add_errno(struct line *line, int error) {
    line_add(line, "errno", "%s", line_errno_name(error));
    line_add(line, "errnum", "%d", error);
}

void line_add_ms(struct line *line, const char *key, int64_t us) {
    line_add(line, key, "%lld.%03lld", (long long)(us / 1000), (long long)(us % 1000));
}

void line_end(struct line *line) {
    const char *p = line->text;

    line->text[line->len++] = '\n';
    while (line->len > 0) {
        ssize_t n = write(STDOUT_FILENO, p, line->len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(3);
        p += n;
        line->len -= (size_t)n;
    }
}

const char *line_errno_name(int error) {
    static char number[16];
    const char *name = strerrorname_np(error);

    if (name)
        return name;
    snprintf(number, sizeof(number), "E%d", error);
    return number;
}

static void scope_text(char *out, size_t size, unsigned index) {
    char name[IF_NAMESIZE];
    size_t n;

    if (if_indextoname(index, name)) {
        n = escape(out, size - 1, name, strlen(name));
        out[n] = '\0';
    } else {
        snprintf(out, size, "%u", index);
    }
}

void address_text(char *text, const struct sockaddr *addr) {
    const struct sockaddr_in *in = (const void *)addr;
    const struct sockaddr_in6 *in6 = (const void *)addr;
    char scope[IF_NAMESIZE * 3 + 1];
    size_t n;

    snprintf(text, ADDRESS_TEXT, "?");
    if (addr->sa_family == AF_INET) {
        inet_ntop(AF_INET, &in->sin_addr, text, ADDRESS_TEXT);
    } else if (addr->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], text, ADDRESS_TEXT);
    } else if (addr->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &in6->sin6_addr, text, ADDRESS_TEXT);
        if (!in6->sin6_scope_id)
            return;
        scope_text(scope, sizeof(scope), in6->sin6_scope_id);
        n = strlen(text);
        snprintf(text + n, ADDRESS_TEXT - n, "%%%s", scope);
    }
}

void endpoint_text(char *text, const struct sockaddr *addr, unsigned port) {
    char address[ADDRESS_TEXT];

    address_text(address, addr);
    if (strchr(address, ':'))
        snprintf(text, ADDRESS_TEXT, "[%.110s]:%u", address, port);
    else
        snprintf(text, ADDRESS_TEXT, "%.110s:%u", address, port);
}

int64_t clock_us(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}
