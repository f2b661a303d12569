/* What boxdrill says: stdout for reports, stderr for messages. Text from workers and boxes is
 * escaped here, so that nothing a box says can move a cursor or change a colour.
 * Line breaks are left: that a line is one is the reporter's care (lua/report.lua). */
#pragma once

#include "wire.h"

/* Queues text for stdout in a style (plain, bold, dim, red, green, yellow, cyan). Written by the
 * loop as fast as the reader takes it. Returns 0, or -EPIPE once stdout is closed. */
int output_text(struct slice style, struct slice text);
/* Whether more than a reader's worth is queued: callers hold back. */
bool output_full(void);
/* Called when the queue has drained, or stdout has closed. */
void output_on_drain(void (*callback)(void));
bool output_closed(void);
/* Whether something is still to be written. */
bool output_pending(void);
/* Writes text to stderr, escaped. */
void output_stderr(struct slice text);
/* A line on stderr that the next one replaces, and anything else that is printed takes away; only
 * where output_live_possible: stderr is a terminal that can. */
void output_live(const char *text);
bool output_live_possible(void);
/* Takes that line away. */
void output_make_room(void);
/* When something was last printed (now_ms); at first, when the program began to ask. */
int64_t output_last_ms(void);
/* A line on stderr, "boxdrill: …", escaped. */
void output_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Appends text with every control character, and every byte that is not UTF-8, made visible. */
void output_escape(struct buffer *b, struct slice text);
