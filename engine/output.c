#define _GNU_SOURCE
#include "output.h"

#include "broker.h"
#include "json.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { FULL = 1 << 20 };

static struct buffer queue;
static struct watch *watch;
static bool closed;
static void (*on_drain)(void);
static bool live; /* a line of output_live stands on the terminal */
static int64_t last_ms;

/* Two-byte UTF-8 of C1 controls (U+0080 to U+009F): terminals act on them too. */
static bool is_c1(struct slice s, size_t i) {
    return (unsigned char)s.data[i] == 0xc2 && i + 1 < s.len &&
           (unsigned char)s.data[i + 1] >= 0x80 && (unsigned char)s.data[i + 1] <= 0x9f;
}

void output_escape(struct buffer *b, struct slice s) {
    bool utf8 = json_is_utf8(s);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool hidden = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || (c >= 0x80 && !utf8);
        if (is_c1(s, i)) {
            buffer_printf(b, "\\x%02x\\x%02x", c, (unsigned char)s.data[i + 1]);
            i++;
        } else if (hidden) {
            buffer_printf(b, "\\x%02x", c);
        } else {
            buffer_add(b, s.data + i, 1);
        }
    }
}

static const char *sgr(struct slice style) {
    static const struct {
        const char *name, *code;
    } styles[] = {{"bold", "1"},   {"dim", "2"},     {"red", "1;31"},
                  {"green", "32"}, {"yellow", "33"}, {"cyan", "36"}};
    for (size_t i = 0; i < sizeof(styles) / sizeof(*styles); i++)
        if (slice_is(style, styles[i].name))
            return styles[i].code;
    return NULL;
}

/* Whether stderr takes a line now, or within ms: a reader that stands still must not stop us. */
static bool stderr_ready(int ms) {
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&p, 1, ms) > 0 && (p.revents & POLLOUT);
}

void output_make_room(void) {
    last_ms = now_ms();
    if (live && stderr_ready(0))
        fputs("\r\033[K", stderr);
    live = false;
}

/* Poll said that stdout takes PIPE_BUF bytes without blocking (pipe(7)). */
static void on_writable(void *data) {
    (void)data;
    size_t n = queue.len < 4096 ? queue.len : 4096;
    output_make_room();
    ssize_t written = write(STDOUT_FILENO, queue.data, n);
    if (written > 0) {
        buffer_consume(&queue, (size_t)written);
    } else if (written < 0 && errno != EINTR && errno != EAGAIN) {
        closed = true;
        queue.len = 0;
    }
    if (queue.len == 0) {
        watch_stop(watch);
        watch = NULL;
        if (on_drain)
            on_drain();
    }
}

int output_text(struct slice style, struct slice text) {
    if (closed)
        return -EPIPE;
    const char *code = options.color ? sgr(style) : NULL;
    if (code)
        buffer_printf(&queue, "\033[%sm", code);
    output_escape(&queue, text);
    if (code)
        buffer_add_text(&queue, "\033[0m");
    if (!watch && queue.len)
        watch = watch_start(STDOUT_FILENO, POLLOUT, on_writable, NULL);
    return 0;
}

bool output_full(void) {
    return queue.len > FULL;
}

bool output_closed(void) {
    return closed;
}

void output_on_drain(void (*callback)(void)) {
    on_drain = callback;
}

bool output_pending(void) {
    return queue.len && !closed;
}

int64_t output_last_ms(void) {
    return last_ms ? last_ms : (last_ms = now_ms());
}

bool output_live_possible(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void output_live(const char *text) {
    struct winsize size = {0};
    cleanup_buffer struct buffer line = {0};
    if (!stderr_ready(0) || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0)
        return;
    output_escape(&line, (struct slice){text, strlen(text)});
    size_t room = size.ws_col > 1 ? size.ws_col - 1U : 79;
    fprintf(stderr, "\r\033[K%.*s", (int)(line.len < room ? line.len : room), line.data);
    live = true;
}

void output_stderr(struct slice text) {
    cleanup_buffer struct buffer b = {0};
    output_escape(&b, text);
    output_make_room();
    if (stderr_ready(1000))
        fwrite(b.data, 1, b.len, stderr);
}

void output_message(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        return;
    cleanup_buffer struct buffer line = {0};
    buffer_printf(&line, "boxdrill: %s\n", text);
    output_stderr((struct slice){line.data, line.len});
    free(text);
}
