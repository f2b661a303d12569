#define _GNU_SOURCE
#include "progress.h"

#include "broker.h"
#include "ops.h"
#include "output.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { BEAT_MS = 4000, LIVE_MS = 500, BETWEEN_MS = 300, WORTH_MS = 1000, SHOWN = 4 };

static int64_t since, last; /* 0: not asked for */

void progress_on(void) {
    since = since ? since : now_ms();
}

/* The probes that run, by phase letter: "C: c.host c.private and 3 more". */
static void add_probes(struct buffer *b) {
    unsigned n = 0;
    for (const struct worker *w = worker_list(); w; w = w->next) {
        if (w->kind != KIND_PROBE || !w->runner || w->killed)
            continue;
        if (n == 0)
            buffer_printf(b, "phase %c:", toupper((unsigned char)w->id[0]));
        if (n++ < SHOWN)
            buffer_printf(b, " %s", w->id);
    }
    if (n > SHOWN)
        buffer_printf(b, " and %u more", n - SHOWN);
}

/* Requests that stand for other requests, or for nothing. */
static bool is_frame(const struct request *r) {
    return !r->op || r->op->start == op_probe_run || r->op->start == op_probe_load ||
           r->op->start == op_declare || r->op->start == op_sleep;
}

/* Whether the operator is being asked: the question stands alone. */
static bool asking(void) {
    for (const struct request *r = request_list(); r; r = r->next)
        if (r->op && (r->op->start == op_confirm || r->op->start == op_grant))
            return true;
    return false;
}

static const struct request *oldest(void) {
    const struct request *found = NULL;
    for (const struct request *r = request_list(); r; r = r->next)
        if (!is_frame(r) && (!found || r->started_ms < found->started_ms))
            found = r;
    return found;
}

/* A pause between two looks at something, which says at what. */
static const struct request *pause_of(void) {
    const struct request *r = request_list();
    while (r && !(r->op && r->op->start == op_sleep && arg(r, 1).len))
        r = r->next;
    return r;
}

/* Returns false when nothing is waited for just now. */
static bool add_wait(struct buffer *b) {
    const struct request *r = oldest(), *pause = pause_of();
    if (r && now_ms() - r->started_ms >= WORTH_MS) {
        bool named = strncmp(r->op->usage, "PROJECT NAME", 12) == 0;
        bool cli = r->op->start == op_box;
        struct slice name = named ? arg(r, 1) : cli ? arg(r, 3) : arg(r, 0);
        buffer_printf(b, " waiting %lld s for %s %.*s",
                      (long long)(now_ms() - r->started_ms) / 1000, r->op->name,
                      (int)(name.len > 40 ? 40 : name.len), name.data);
    } else if (pause) {
        buffer_printf(b, " waiting for %.*s",
                      (int)(arg(pause, 1).len > 60 ? 60 : arg(pause, 1).len), arg(pause, 1).data);
    }
    return r || pause;
}

void progress_tick(void) {
    if (!since)
        return;
    bool live = output_live_possible();
    int64_t now = now_ms(), from = live ? last : output_last_ms();
    int64_t over = now - from - (live ? LIVE_MS : BEAT_MS);
    if (over < 0 || asking())
        return;
    cleanup_buffer struct buffer b = {0};
    buffer_printf(&b, "%lld s: ", (long long)(now - since) / 1000);
    add_probes(&b);
    /* Between an answer and the next request nothing is waited for: look again at the next event.
     */
    if (!add_wait(&b) && over < BETWEEN_MS)
        return;
    last = now;
    for (size_t i = 0; i < b.len; i++) /* a name or a text of a script's may hold line breaks */
        b.data[i] = isspace((unsigned char)b.data[i]) ? ' ' : b.data[i];
    buffer_add(&b, "", 1);
    if (live)
        output_live(b.data);
    else
        output_message("%s", b.data);
}
