#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 4 + 4 + 2 };

void buffer_reserve(struct buffer *b, size_t len) {
    if (b->size - b->len >= len)
        return;
    size_t size = b->size ? b->size : 256;
    while (size - b->len < len)
        size *= 2;
    char *data = realloc(b->data, size);
    if (!data)
        abort();
    b->data = data;
    b->size = size;
}

void buffer_add(struct buffer *b, const void *data, size_t len) {
    buffer_reserve(b, len);
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

void buffer_add_text(struct buffer *b, const char *text) {
    buffer_add(b, text, strlen(text));
}

void buffer_printf(struct buffer *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        abort();
    buffer_add(b, text, (size_t)len);
    free(text);
}

void buffer_consume(struct buffer *b, size_t len) {
    b->len -= len;
    if (b->len)
        memmove(b->data, b->data + len, b->len);
}

void buffer_free(struct buffer *b) {
    free(b->data);
    *b = (struct buffer){0};
}

static void put_u32(char *at, uint32_t v) {
    for (int i = 0; i < 4; i++)
        at[i] = (char)(v >> (8 * i));
}

static void put_u16(char *at, uint16_t v) {
    at[0] = (char)v;
    at[1] = (char)(v >> 8);
}

static uint32_t get_u32(const char *at) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)(unsigned char)at[i] << (8 * i);
    return v;
}

static uint16_t get_u16(const char *at) {
    return (uint16_t)((unsigned char)at[0] | (unsigned char)at[1] << 8);
}

size_t wire_begin(struct buffer *b, uint32_t id) {
    size_t frame = b->len;
    buffer_reserve(b, HEADER);
    put_u32(b->data + frame, 0);
    put_u32(b->data + frame + 4, id);
    put_u16(b->data + frame + 8, 0);
    b->len += HEADER;
    return frame;
}

void wire_add(struct buffer *b, size_t frame, const void *data, size_t len) {
    char prefix[4];
    put_u32(prefix, (uint32_t)len);
    buffer_add(b, prefix, sizeof(prefix));
    buffer_add(b, data, len);
    /* The limit is far under what a u16 counts to, and wire_end enforces it. */
    unsigned count = get_u16(b->data + frame + 8);
    if (count <= WIRE_MAX_STRINGS)
        put_u16(b->data + frame + 8, (uint16_t)(count + 1));
}

void wire_add_text(struct buffer *b, size_t frame, const char *text) {
    wire_add(b, frame, text, strlen(text));
}

int wire_end(struct buffer *b, size_t frame) {
    size_t len = b->len - frame - 4;
    if (len > WIRE_MAX_FRAME || get_u16(b->data + frame + 8) > WIRE_MAX_STRINGS) {
        b->len = frame;
        return -EMSGSIZE;
    }
    put_u32(b->data + frame, (uint32_t)len);
    return 0;
}

static int decode_strings(const char *at, size_t left, struct frame *out) {
    for (unsigned i = 0; i < out->count; i++) {
        if (left < 4)
            return -EPROTO;
        size_t len = get_u32(at);
        at += 4;
        left -= 4;
        if (len > left)
            return -EPROTO;
        out->strings[i] = (struct slice){at, len};
        at += len;
        left -= len;
    }
    return left == 0 ? 0 : -EPROTO;
}

int64_t wire_decode(const char *data, size_t len, struct frame *out) {
    if (len < 4)
        return 0;
    size_t body = get_u32(data);
    if (body < HEADER - 4 || body > WIRE_MAX_FRAME)
        return -EPROTO;
    if (len < 4 + body)
        return 0;
    *out = (struct frame){.id = get_u32(data + 4), .count = get_u16(data + 8)};
    if (out->count == 0 || out->count > WIRE_MAX_STRINGS)
        return -EPROTO;
    out->strings = calloc(out->count, sizeof(*out->strings));
    if (!out->strings)
        abort();
    int r = decode_strings(data + HEADER, body - (HEADER - 4), out);
    if (r < 0) {
        frame_free(out);
        return r;
    }
    return (int64_t)(4 + body);
}

bool wire_complete(const char *data, size_t len) {
    return len >= 4 && (get_u32(data) > WIRE_MAX_FRAME || len >= 4 + (size_t)get_u32(data));
}

void frame_free(struct frame *f) {
    free(f->strings);
    *f = (struct frame){0};
}

bool slice_is(struct slice s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

char *slice_dup(struct slice s) {
    if (memchr(s.data, 0, s.len))
        return NULL;
    return strndup(s.data, s.len);
}
