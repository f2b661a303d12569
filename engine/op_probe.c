/* Probes: loaded and run in workers of their own, their verdicts recorded here under the id that
 * their file declared. */
#define _GNU_SOURCE
#include "job.h"
#include "json.h"
#include "ops.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SOURCE = 1 << 20, LOAD_MS = 20000, RUN_MS = 300000 };

static const char *const verdict_names[VERDICTS] = {
    [PASS] = "PASS",       [FAIL] = "FAIL",   [NOTE] = "NOTE", [SKIP] = "SKIP",
    [SUSPECT] = "SUSPECT", [ERROR] = "ERROR", [VETO] = "VETO"};

/* Verdicts by phase: a probe's phase is the first letter of its id. */
static unsigned counts[26][VERDICTS];
static bool any;

static void record(const char *id, enum verdict verdict) {
    int phase = tolower((unsigned char)id[0]) - 'a';
    counts[phase >= 0 && phase < 26 ? phase : 25][verdict]++;
    any = true;
}

int probe_status(void) {
    bool failed = false, unsure = false;
    if (!any)
        return -1;
    for (int phase = 0; phase < 26; phase++) {
        const unsigned *c = counts[phase];
        unsigned ran = 0;
        for (int v = 0; v < VERDICTS; v++)
            ran += v == SKIP ? 0 : c[v];
        failed |= c[FAIL] || c[VETO];
        unsure |= c[SUSPECT] || c[ERROR] || (ran && !c[PASS]);
    }
    return failed ? STATUS_FAIL : unsure ? STATUS_UNSURE : STATUS_OK;
}

/* -- files ------------------------------------------------------------------------------------- */

static int is_probe(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 4 && e->d_name[0] != '.' && strcmp(e->d_name + n - 4, ".lua") == 0;
}

/* probe.files: the installed ones, without ".lua", sorted. */
void op_probe_files(struct request *r) {
    char path[4096];
    struct dirent **entries = NULL;
    snprintf(path, sizeof(path), "%s/probes", options.share);
    int n = scandir(path, &entries, is_probe, alphasort);
    if (n < 0) {
        reply_errno(r, errno, path);
        return;
    }
    reply_begin(r);
    for (int i = 0; i < n; i++) {
        reply_add(r, entries[i]->d_name, strlen(entries[i]->d_name) - 4);
        free(entries[i]);
    }
    free(entries);
    reply_send(r);
}

static bool on_command_line(const char *path) {
    for (int i = 0; i < options.nargs; i++)
        if (strcmp(options.args[i], path) == 0)
            return true;
    return false;
}

/* The path of FILE: a bare name is an installed probe; one with a slash must have been named on the
 * command line. Returns NULL with errno. Free it. */
static char *probe_path(const char *file) {
    char *path = NULL;
    if (strchr(file, '/')) {
        errno = EACCES;
        return on_command_line(file) ? strdup(file) : NULL;
    }
    return asprintf(&path, "%s/probes/%s.lua", options.share, file) < 0 ? NULL : path;
}

static struct worker *find_probe(struct slice file) {
    for (struct worker *w = worker_list(); w; w = w->next)
        if (w->kind == KIND_PROBE && slice_is(file, w->chunk) && !w->killed)
            return w;
    return NULL;
}

/* Reads the file and starts its worker; NULL with errno. */
static struct worker *start_probe(const char *file) {
    char *path = probe_path(file);
    size_t len = 0;
    char *source = path ? read_file(path, MAX_SOURCE, &len) : NULL;
    struct worker *w =
        source ? worker_start(KIND_PROBE, file, source, GRANT_READ | GRANT_PROBE) : NULL;
    int error = errno;
    if (w)
        w->shipped = !strchr(file, '/') && file_trusted(path);
    else
        free(source);
    free(path);
    errno = error;
    return w;
}

/* probe.load FILE: starts its worker, which declares what it is; it then waits to be run. */
void op_probe_load(struct request *r) {
    char *file = arg_text(r, 0);
    struct worker *w = NULL;
    if (find_probe(arg(r, 0)))
        reply_error(r, "EEXIST", "%s is loaded already", file);
    else if (!(w = start_probe(file)))
        reply_errno(r, errno, file);
    if (w) {
        w->loader = r;
        w->deadline_ms = now_ms() + LOAD_MS;
    }
    free(file);
}

/* A verdict stands under an id: no two files may have one. */
static bool id_taken(struct slice id) {
    for (const struct worker *w = worker_list(); w; w = w->next)
        if (w->id && slice_is(id, w->id))
            return true;
    return false;
}

/* declare ID METADATA NEED...: answered when the probe is run. */
void op_declare(struct request *r) {
    struct worker *w = r->worker;
    if (w->id || !w->loader) {
        reply_error(r, "EINVAL", "declare: once, by a probe that is being loaded");
        return;
    }
    if (id_taken(arg(r, 0))) {
        reply_error(r, "EINVAL", "%s: id '%.*s' is another probe's", w->chunk, (int)arg(r, 0).len,
                    arg(r, 0).data);
        return;
    }
    w->id = arg_text(r, 0);
    w->metadata = arg_text(r, 1);
    for (unsigned i = 2; i < r->argc; i++) {
        uint32_t grant = grant_find(arg(r, i));
        if (!grant) {
            reply_error(r, "EINVAL", "%s: needs: no grant '%.*s'", w->chunk, (int)arg(r, i).len,
                        arg(r, i).data);
            return;
        }
        w->needs |= grant;
    }
    w->declared = r;
    w->deadline_ms = 0;
    struct request *loader = w->loader;
    w->loader = NULL;
    reply_begin(loader);
    reply_add_text(loader, w->metadata);
    reply_add_text(loader, w->id);
    reply_send(loader);
}

/* What a probe of the installation may have, run by a script of the installation; an operator's
 * probe has what the command line gave, and an operator's script hands on no more than it has
 * itself. */
static uint32_t allowed(const struct worker *w, const struct worker *script) {
    static const uint32_t probes_may = GRANT_BOX_EXEC | GRANT_BOX_MINT | GRANT_BOX_CLI |
                                       GRANT_CLIENT | GRANT_HOST_CONNECT | GRANT_REHEARSE |
                                       GRANT_WITNESS | GRANT_BOX_LOOK;
    uint32_t base = script->shipped ? probes_may : options.given | script->grants;
    return (w->shipped ? probes_may & base : options.given) | GRANT_READ;
}

static void keep_boxes(struct worker *w, const struct request *r) {
    w->boxes = calloc(r->argc, sizeof(*w->boxes));
    if (!w->boxes)
        abort();
    for (unsigned i = 1; i < r->argc; i++)
        w->boxes[w->nboxes++] = arg_text(r, i);
}

/* probe.limit FILE MS: how long a loaded probe may take, less than what all may. */
void op_probe_limit(struct request *r) {
    struct worker *w = find_probe(arg(r, 0));
    int64_t ms = 0;
    if (!arg_number(r, 1, 1, RUN_MS, &ms))
        return;
    if (!w || !w->declared) {
        reply_error(r, "ENOENT", "probe.limit: %.*s is not loaded, or is running",
                    (int)arg(r, 0).len, arg(r, 0).data);
        return;
    }
    w->limit_ms = ms;
    reply_ok(r);
}

/* probe.run FILE BOX... */
void op_probe_run(struct request *r) {
    struct worker *w = find_probe(arg(r, 0));
    if (!w || !w->declared || w->runner) {
        reply_error(r, "ENOENT", "probe.run: %.*s is not loaded, or is running", (int)arg(r, 0).len,
                    arg(r, 0).data);
        return;
    }
    w->runner = r;
    w->started_ms = now_ms();
    w->deadline_ms = now_ms() + (w->limit_ms ? w->limit_ms : RUN_MS);
    uint32_t missing = w->needs & ~allowed(w, r->worker);
    struct request *declared = w->declared;
    w->declared = NULL;
    if (missing) {
        reply_error(declared, "EPERM",
                    "%s needs the grant '%s' and was not given it; give it with --grant %s", w->id,
                    grant_name(missing), grant_name(missing));
        return;
    }
    w->grants |= w->needs;
    keep_boxes(w, r);
    reply_begin(declared);
    for (unsigned i = 1; i < r->argc; i++)
        reply_add(declared, arg(r, i).data, arg(r, i).len);
    reply_send(declared);
}

/* verdict VERDICT EVIDENCE: once, by a probe that is running. */
void op_verdict(struct request *r) {
    struct worker *w = r->worker;
    int verdict = 0;
    while (verdict < VERDICTS && !slice_is(arg(r, 0), verdict_names[verdict]))
        verdict++;
    if (verdict == VERDICTS || w->verdict >= 0 || !w->runner) {
        reply_error(r, "EINVAL", "verdict: one of the words of the design, once, while it runs");
        return;
    }
    w->verdict = verdict;
    buffer_add(&w->evidence, arg(r, 1).data, arg(r, 1).len);
    reply_ok(r);
}

/* The evidence of a probe that did not get as far as a verdict: why, in its own words or ours. */
static void own_evidence(struct worker *w, const char *how) {
    w->evidence.len = 0;
    buffer_add_text(&w->evidence, "{\"message\":");
    if (w->failure)
        json_text(&w->evidence, w->failure);
    else {
        struct buffer text = {0};
        buffer_printf(&text, "%s; last primitive: %s", *how ? how : "ended without a verdict",
                      w->last_op);
        json_string(&w->evidence, (struct slice){text.data, text.len});
        buffer_free(&text);
    }
    buffer_add_text(&w->evidence, "}");
}

/* A probe that could not even be loaded counts: ERROR, under its file's name. */
static void load_failed(struct worker *w, const char *how) {
    struct request *loader = w->loader;
    const char *file = strrchr(w->chunk, '/') ? strrchr(w->chunk, '/') + 1 : w->chunk;
    record(w->id ? w->id : file, ERROR);
    w->loader = NULL;
    if (w->failure)
        reply_error(loader, "ENOEXEC", "%s", w->failure);
    else
        reply_error(loader, "ENOEXEC", "%s: %s; last primitive: %s", w->chunk,
                    *how ? how : "declared nothing", w->last_op);
}

/* A verdict counts from a worker that ended by itself after it; one that was killed, died or raised
 * an error afterwards is ERROR whatever it had recorded. */
void probe_ended(struct worker *w, const char *how) {
    if (w->loader) {
        load_failed(w, how);
        return;
    }
    if (!w->runner) {
        if (w->id && !w->killed)
            record(w->id, ERROR); /* it declared itself and was gone before it was asked */
        return;
    }
    if (w->verdict < 0 || *how || w->failure) {
        w->verdict = ERROR;
        own_evidence(w, how);
    }
    record(w->id, (enum verdict)w->verdict);
    struct request *runner = w->runner;
    w->runner = NULL;
    reply_begin(runner);
    reply_add_text(runner, verdict_names[w->verdict]);
    reply_add(runner, w->evidence.data, w->evidence.len);
    reply_add_number(runner, now_ms() - w->started_ms);
    reply_send(runner);
}
