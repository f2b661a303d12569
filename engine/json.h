/* Writing JSON. The broker writes it and never reads any. */
#pragma once

#include "wire.h"

/* Appends the slice as a JSON string. Bytes that are not UTF-8 become U+FFFD, so the result is
 * always valid; json_is_utf8 tells beforehand where that would change the meaning. */
void json_string(struct buffer *b, struct slice s);
void json_text(struct buffer *b, const char *text);
bool json_is_utf8(struct slice s);

/* A request body's quadruples SECTION NAME KEY VALUE (docs/requests.md). */
struct quads {
    const struct slice *strings;
    unsigned count; /* of strings: a multiple of four */
};

/* Appends the members of a body object, without the braces: `"config":{…},"devices":{…}`. Every
 * section that occurs is written, `always` (a comma list, may be empty) even when it does not. */
void json_body(struct buffer *b, struct quads q, const char *always);
