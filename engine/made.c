#define _GNU_SOURCE
#include "made.h"

#include "broker.h"
#include "journal.h"
#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct made {
    struct made *next; /* older */
    struct journal_line line;
    bool kept;
    pid_t by; /* the worker that made it; 0: an earlier run */
};

static struct made *list;
static bool journaled;  /* the lock is ours, and lines are written */
static bool unreadable; /* the journal has what we could not read: it stays */

static void copy_text(char *out, size_t size, struct slice s) {
    snprintf(out, size, "%.*s", (int)s.len, s.data);
}

static bool is(const struct made *m, struct slice kind, struct slice project, struct slice name) {
    return slice_is(kind, m->line.kind) && slice_is(project, m->line.project) &&
           slice_is(name, m->line.name);
}

static struct made *find(struct slice kind, struct slice project, struct slice name) {
    struct made *m = list;
    while (m && !is(m, kind, project, name))
        m = m->next;
    return m;
}

static struct made *find_instance(struct slice project, struct slice name) {
    return find((struct slice){"instance", 8}, project, name);
}

static void drop(struct made *gone) {
    struct made **p = &list;
    while (*p != gone)
        p = &(*p)->next;
    *p = gone->next;
    free(gone);
}

static struct made *push(const struct journal_line *line, pid_t by) {
    struct made *m = calloc(1, sizeof(*m));
    if (!m)
        abort();
    *m = (struct made){.next = list, .line = *line, .by = by};
    list = m;
    return m;
}

/* Writes a line about an entry. */
static int note(const struct made *m, const char *verb) {
    struct journal_line line = m->line;
    if (!journaled)
        return 0;
    snprintf(line.verb, sizeof(line.verb), "%s", verb);
    return journal_append(&line);
}

/* As note, for what a run cannot go on without: where it cannot be written (a full disk), the run
 * is at its end. */
static int must_note(const struct made *m, const char *verb) {
    char why[160];
    int r = note(m, verb);
    if (r < 0) {
        snprintf(why, sizeof(why), "%s: the journal cannot be written: %s", JOURNAL_FILE,
                 strerror(-r));
        broker_stop(why);
    }
    return r;
}

/* -- the journal of earlier runs ----------------------------------------------------------------
 */

/* Replays one line into the list. */
static void replay(void *data, const struct journal_line *line) {
    (void)data;
    struct slice kind = {line->kind, strlen(line->kind)};
    struct slice project = {line->project, strlen(line->project)};
    struct made *m = find(kind, project, (struct slice){line->name, strlen(line->name)});
    if (!m && strcmp(line->verb, "made") == 0)
        push(line, 0);
    else if (m && strcmp(line->verb, "gone") == 0)
        drop(m);
    else if (m && strcmp(line->verb, "kept") == 0)
        m->kept = true;
    else if (m && strcmp(line->verb, "uuid") == 0)
        memcpy(m->line.extra, line->extra, sizeof(m->line.extra));
}

static int obstacle(int state) {
    if (state < 0)
        return state;
    if (state == JOURNAL_DAMAGED || state == JOURNAL_VERSION) {
        unreadable = true;
        return MADE_UNREADABLE;
    }
    return made_pending() || state == JOURNAL_CUT ? MADE_LEFTOVERS : MADE_FREE;
}

static int take_over(pid_t *holder) {
    int r = journal_lock(holder);
    if (r < 0)
        return r == -EAGAIN ? MADE_LOCKED : r;
    r = obstacle(journal_read(replay, NULL));
    journaled = r >= 0;
    return r;
}

int made_begin(pid_t *holder, struct buffer *left) {
    if (journaled)
        return MADE_FREE;
    int r = take_over(holder);
    if (r == MADE_FREE)
        return r;
    if (left)
        made_describe(left);
    /* What is left is not this run's to remove. */
    while (list)
        drop(list);
    journaled = false;
    return r;
}

int made_adopt(pid_t *holder) {
    return journaled ? MADE_FREE : take_over(holder);
}

int made_show(void (*each)(void *, const char *), void *data) {
    struct made *mine = list;
    list = NULL;
    int state = journal_read(replay, NULL);
    for (const struct made *m = list; m; m = m->next) {
        char when[24];
        snprintf(when, sizeof(when), "%lld", (long long)m->line.time);
        const char *texts[] = {m->kept ? "kept" : "open", m->line.run,  m->line.kind,
                               m->line.project,           m->line.name, when};
        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
            each(data, texts[i]);
    }
    while (list)
        drop(list);
    list = mine;
    return state;
}

/* -- this run ------------------------------------------------------------------------------------
 */

/* Notes one thing; extra as of struct journal_line. */
static int add(const char *kind, struct slice project, struct slice name, const char *extra,
               pid_t by) {
    static time_t begun_at; /* an instance is as old as its first name: a rename has a second one */
    struct journal_line line = {0};
    pid_t holder = 0;
    int begun =
        options.root ? made_begin(&holder, NULL) : MADE_FREE; /* a grant of the command line's */
    if (begun != MADE_FREE)
        return begun == MADE_LOCKED ? -EBUSY : begun < 0 ? begun : -EEXIST;
    if (find((struct slice){kind, strlen(kind)}, project, name))
        return 0;
    snprintf(line.extra, sizeof(line.extra), "%s", extra);
    if (!begun_at)
        begun_at = time(NULL);
    line.time = begun_at;
    snprintf(line.kind, sizeof(line.kind), "%s", kind);
    snprintf(line.run, sizeof(line.run), "%s", run_id);
    copy_text(line.project, sizeof(line.project), project);
    copy_text(line.name, sizeof(line.name), name);
    struct made *m = push(&line, by);
    int r = must_note(m, "made");
    if (r < 0)
        drop(m);
    return r;
}

int made_add(const char *kind, struct slice project, struct slice name, pid_t by) {
    return add(kind, project, name, "-", by);
}

static struct made *find_key(struct slice project, const char *name) {
    return find((struct slice){"key", 3}, project, (struct slice){name, strlen(name)});
}

int made_change(struct slice project, const char *name, struct slice before, struct slice after,
                pid_t by) {
    char extra[112];
    if (find_key(project, name))
        return -EEXIST;
    snprintf(extra, sizeof(extra), "%.*s>%.*s", (int)before.len, before.data, (int)after.len,
             after.data);
    return add("key", project, (struct slice){name, strlen(name)}, extra, by);
}

bool made_before(struct slice project, const char *name, char *before, size_t size) {
    const struct made *m = find_key(project, name);
    if (!m)
        return false;
    snprintf(before, size, "%.*s", (int)strcspn(m->line.extra, ">"), m->line.extra);
    return true;
}

int made_uuid(struct slice project, struct slice name, struct slice uuid) {
    struct made *m = find_instance(project, name);
    if (!m)
        return -ENOENT;
    copy_text(m->line.extra, sizeof(m->line.extra), uuid);
    return must_note(m, "uuid");
}

int made_gone(struct slice kind, struct slice project, struct slice name) {
    struct made *m = find(kind, project, name);
    if (!m)
        return -ENOENT;
    (void)note(m, "gone"); /* where that fails, no harm: it would be looked for once more */
    drop(m);
    return 0;
}

bool made_has(const char *kind, struct slice project, struct slice name) {
    return find((struct slice){kind, strlen(kind)}, project, name) != NULL;
}

bool made_by(const char *kind, struct slice project, struct slice name, pid_t by) {
    const struct made *m = find((struct slice){kind, strlen(kind)}, project, name);
    return m && m->by == by;
}

const char *made_run(const char *kind, struct slice project, struct slice name) {
    const struct made *m = find((struct slice){kind, strlen(kind)}, project, name);
    return m ? m->line.run : "";
}

bool made_instance(struct slice project, struct slice name) {
    return made_has("instance", project, name);
}

void made_keep(void) {
    for (struct made *m = list; m; m = m->next) {
        if (m->kept || strcmp(m->line.kind, "instance") != 0)
            continue;
        m->kept = must_note(m, "kept") == 0; /* what is not noted as kept would stand in the way */
    }
}

bool made_pending(void) {
    for (const struct made *m = list; m; m = m->next)
        if (!m->kept)
            return true;
    return false;
}

void made_list(void (*each)(void *, const char *), void *data) {
    for (const struct made *m = list; m; m = m->next) {
        if (m->kept)
            continue;
        char when[24];
        snprintf(when, sizeof(when), "%lld", (long long)m->line.time);
        const char *texts[] = {m->line.kind, m->line.project, m->line.name,
                               m->line.run,  m->line.extra,   when};
        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
            each(data, texts[i]);
    }
}

void made_describe(struct buffer *b) {
    for (const struct made *m = list; m; m = m->next)
        if (!m->kept)
            buffer_printf(b, "\n  %s %s (project %s)", m->line.kind, m->line.name, m->line.project);
}

bool made_locked(void) {
    return journaled;
}

void made_end(void) {
    if (journaled && !list && !unreadable && journal_remove() < 0)
        output_message("%s: could not be removed: %s", JOURNAL_FILE, strerror(errno));
}
