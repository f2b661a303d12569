#include "json.h"

#include <string.h>

/* Length of the UTF-8 sequence at s (1 to 4), or 0 when it is not one (RFC 3629). */
static size_t utf8_length(const unsigned char *s, size_t left) {
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xf0 && s[0] <= 0xf4   ? 4
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xc2 && s[0] <= 0xdf ? 2
                                              : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
               (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : n;
}

bool json_is_utf8(struct slice s) {
    for (size_t i = 0; i < s.len;) {
        size_t n = utf8_length((const unsigned char *)s.data + i, s.len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

static void add_char(struct buffer *b, const char *at, size_t n) {
    unsigned char c = (unsigned char)*at;
    if (n == 0)
        buffer_add_text(b, "\\ufffd");
    else if (n == 1 && (c < 0x20 || c == 0x7f))
        buffer_printf(b, "\\u%04x", c);
    else if (c == '"' || c == '\\')
        buffer_printf(b, "\\%c", c);
    else
        buffer_add(b, at, n);
}

void json_string(struct buffer *b, struct slice s) {
    buffer_add_text(b, "\"");
    for (size_t i = 0; i < s.len;) {
        size_t n = utf8_length((const unsigned char *)s.data + i, s.len - i);
        add_char(b, s.data + i, n);
        i += n ? n : 1;
    }
    buffer_add_text(b, "\"");
}

void json_text(struct buffer *b, const char *text) {
    json_string(b, (struct slice){text, strlen(text)});
}

/* -- bodies ---------------------------------------------------------------------------------- */

enum { SECTION, NAME, KEY, VALUE, QUAD };

static bool same(struct slice a, struct slice b) {
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static void comma(struct buffer *b, bool *first) {
    if (!*first)
        buffer_add_text(b, ",");
    *first = false;
}

/* {"key":"value",…} of the section's quads with that name (any name when NULL). */
static void add_map(struct buffer *b, struct quads q, const char *section,
                    const struct slice *name) {
    bool first = true;
    buffer_add_text(b, "{");
    for (unsigned i = 0; i < q.count; i += QUAD) {
        const struct slice *s = q.strings + i;
        if (!slice_is(s[SECTION], section) || (name && !same(s[NAME], *name)) || !s[KEY].len)
            continue;
        comma(b, &first);
        json_string(b, s[KEY]);
        buffer_add_text(b, ":");
        json_string(b, s[VALUE]);
    }
    buffer_add_text(b, "}");
}

static bool named_before(struct quads q, unsigned at, const char *section) {
    for (unsigned i = 0; i < at; i += QUAD)
        if (slice_is(q.strings[i + SECTION], section) &&
            same(q.strings[i + NAME], q.strings[at + NAME]))
            return true;
    return false;
}

/* One map a name: an object of objects for devices, an array of objects for rules. */
static void add_maps(struct buffer *b, struct quads q, const char *section, bool array) {
    bool first = true;
    buffer_add_text(b, array ? "[" : "{");
    for (unsigned i = 0; i < q.count; i += QUAD) {
        if (!slice_is(q.strings[i + SECTION], section) || named_before(q, i, section))
            continue;
        comma(b, &first);
        if (!array) {
            json_string(b, q.strings[i + NAME]);
            buffer_add_text(b, ":");
        }
        add_map(b, q, section, &q.strings[i + NAME]);
    }
    buffer_add_text(b, array ? "]" : "}");
}

static void add_values(struct buffer *b, struct quads q, const char *section) {
    bool first = true;
    buffer_add_text(b, "[");
    for (unsigned i = 0; i < q.count; i += QUAD) {
        if (!slice_is(q.strings[i + SECTION], section))
            continue;
        comma(b, &first);
        json_string(b, q.strings[i + VALUE]);
    }
    buffer_add_text(b, "]");
}

static bool occurs(struct quads q, const char *section) {
    for (unsigned i = 0; i < q.count; i += QUAD)
        if (slice_is(q.strings[i + SECTION], section))
            return true;
    return false;
}

static void add_top(struct buffer *b, struct quads q, bool *first) {
    for (unsigned i = 0; i < q.count; i += QUAD) {
        const struct slice *s = q.strings + i;
        if (!slice_is(s[SECTION], "top"))
            continue;
        comma(b, first);
        json_string(b, s[KEY]);
        buffer_add_text(b, ":");
        json_string(b, s[VALUE]);
    }
}

void json_body(struct buffer *b, struct quads q, const char *always) {
    static const char *const sections[] = {"config", "devices", "profiles", "egress", "ingress"};
    bool first = true;
    add_top(b, q, &first);
    for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
        const char *name = sections[i];
        if (!occurs(q, name) && !strstr(always, name))
            continue;
        comma(b, &first);
        buffer_printf(b, "\"%s\":", name);
        if (strcmp(name, "config") == 0)
            add_map(b, q, name, NULL);
        else if (strcmp(name, "profiles") == 0)
            add_values(b, q, name);
        else
            add_maps(b, q, name, strcmp(name, "devices") != 0);
    }
}
