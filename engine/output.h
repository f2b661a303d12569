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
/* A line on stderr, "boxdrill: …", escaped. */
void output_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Appends text with every control character, and every byte that is not UTF-8, made visible. */
void output_escape(struct buffer *b, struct slice text);
