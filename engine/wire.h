/* Frames between the broker and its workers, and the growing buffer they are built in.
 * Used on both sides of the socket; docs/requests.md has the format. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAX_FRAME   (8U << 20)
#define WIRE_MAX_STRINGS 4096U

/* Bytes that grow. Zero it to start; free with buffer_free (or cleanup_buffer). */
struct buffer {
    char *data;
    size_t len;
    size_t size;
};

/* A byte string that lies in somebody else's memory; not NUL-terminated. */
struct slice {
    const char *data;
    size_t len;
};

/* One decoded frame: strings points into the bytes it was decoded from. */
struct frame {
    uint32_t id;
    unsigned count;
    struct slice *strings;
};

/* Appends len bytes. Aborts the process when there is no memory: neither side can go on then. */
void buffer_add(struct buffer *b, const void *data, size_t len);
void buffer_add_text(struct buffer *b, const char *text);
/* Appends formatted text. */
void buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes room for len more bytes at data + len. */
void buffer_reserve(struct buffer *b, size_t len);
/* Removes the first len bytes. */
void buffer_consume(struct buffer *b, size_t len);
void buffer_free(struct buffer *b);
#define cleanup_buffer __attribute__((cleanup(buffer_free)))

/* Starts a frame at the end of b; returns its offset, for wire_end. */
size_t wire_begin(struct buffer *b, uint32_t id);
void wire_add(struct buffer *b, size_t frame, const void *data, size_t len);
void wire_add_text(struct buffer *b, size_t frame, const char *text);
/* Closes the frame. Returns 0, or -EMSGSIZE when it is over the limits; it is removed then. */
int wire_end(struct buffer *b, size_t frame);

/* Decodes the first frame of data. Returns the bytes it takes, 0 when it is not complete yet, or
 * -EPROTO when it is malformed or over the limits. On success frame_free(out) when done. */
int64_t wire_decode(const char *data, size_t len, struct frame *out);
void frame_free(struct frame *f);
/* Whether wire_decode would return something other than 0: a frame, or an error. */
bool wire_complete(const char *data, size_t len);

/* Whether a slice is exactly this text. */
bool slice_is(struct slice s, const char *text);
/* A NUL-terminated copy; NULL when it holds a NUL. Free it. */
char *slice_dup(struct slice s);
