/* What a worker asks about itself, the library and the operator. */
#define _GNU_SOURCE
#include "made.h"
#include "ops.h"
#include "output.h"
#include "progress.h"
#include "sandbox.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { MAX_SOURCE = 2 << 20, MAX_PRINT = 256 << 10 };

void op_self(struct request *r) {
    static const char *const kinds[] = {
        [KIND_SCRIPT] = "script", [KIND_PROBE] = "probe", [KIND_REVERT] = "revert"};
    const struct worker *w = r->worker;
    reply_begin(r);
    reply_add_text(r, kinds[w->kind]);
    reply_add_text(r, w->chunk);
    reply_add_text(r, w->source);
    reply_add_text(r, run_id);
    for (int i = 0; w->kind == KIND_SCRIPT && i < options.nargs; i++)
        reply_add_text(r, options.args[i]);
    reply_send(r);
}

/* Answers with a name and a file's text. */
static void add_source(struct request *r, const char *chunk, const char *path) {
    size_t len = 0;
    char *text = read_file(path, MAX_SOURCE, &len);
    if (!text) {
        reply_errno(r, errno, path);
        return;
    }
    reply_begin(r);
    reply_add_text(r, chunk);
    reply_add(r, text, len);
    free(text);
    reply_send(r);
}

/* module NAME: lua/NAME.lua of the installation, and nothing else. A script that has its grants
 * because nobody else can write it gets no module that somebody else can. */
void op_module(struct request *r) {
    if (!arg_name(r, 0))
        return;
    char path[4096], chunk[80];
    char *name = arg_text(r, 0);
    snprintf(chunk, sizeof(chunk), "%s.lua", name);
    snprintf(path, sizeof(path), "%s/lua/%s.lua", options.share, name);
    free(name);
    if (r->worker->shipped && access(path, F_OK) == 0 && !file_trusted(path))
        reply_error(r, "EPERM", "%s: refused, others can write it (chown root, chmod go-w)", path);
    else
        add_source(r, chunk, path);
}

void op_contract(struct request *r) {
    char path[4096];
    size_t len = 0, site_len = 0;
    snprintf(path, sizeof(path), "%s/host/contract.lua", options.share);
    char *text = read_file(path, MAX_SOURCE, &len);
    char *site = options.site ? read_file(options.site, MAX_SOURCE, &site_len) : NULL;
    if (!text || (options.site && !site)) {
        reply_errno(r, errno, text ? options.site : path);
    } else {
        reply_begin(r);
        reply_add(r, text, len);
        reply_add_text(r, options.site ? options.site : "");
        reply_add(r, site ? site : "", site_len);
        reply_send(r);
    }
    free(text);
    free(site);
}

static void add_option(struct request *r, const char *name, bool on) {
    reply_add_text(r, name);
    reply_add_text(r, on ? "1" : "0");
}

void op_options(struct request *r) {
    reply_begin(r);
    add_option(r, "json", options.json);
    add_option(r, "color", options.color);
    add_option(r, "yes", options.yes);
    add_option(r, "root", options.root);
    add_option(r, "log", options.log != NULL);
    add_option(r, "landlock", sandbox_landlock_abi() > 0);
    reply_send(r);
}

static void on_slept(void *data) {
    reply_ok(data);
}

void op_sleep(struct request *r) {
    int64_t ms = 0;
    if (arg_number(r, 0, 0, 600000, &ms))
        timer_start(ms, on_slept, r);
}

/* -- output ---------------------------------------------------------------------------------- */

/* A worker that prints faster than the reader reads waits here. */
static void answer_printers(void) {
    for (struct request *r = request_list(), *next; r; r = next) {
        next = r->next;
        if (!r->op || r->op->start != op_print || !r->data)
            continue;
        r->data = NULL;
        reply_ok(r);
    }
}

/* print STYLE TEXT ... */
void op_print(struct request *r) {
    for (unsigned i = 0; i + 1 < r->argc; i += 2) {
        if (arg(r, i + 1).len > MAX_PRINT) {
            reply_error(r, "EINVAL", "print: at most %d bytes at once", MAX_PRINT);
            return;
        }
        if (output_text(arg(r, i), arg(r, i + 1)) < 0) {
            reply_error(r, "EPIPE", "print: stdout is closed");
            return;
        }
    }
    if (!output_full()) {
        reply_ok(r);
        return;
    }
    r->data = r; /* marks it as waiting */
    output_on_drain(answer_printers);
}

/* progress: from here on what is waited for is shown. */
void op_progress(struct request *r) {
    progress_on();
    reply_ok(r);
}

/* warn TEXT: on stderr. */
void op_warn(struct request *r) {
    output_stderr(arg(r, 0));
    reply_ok(r);
}

void op_exit(struct request *r) {
    int64_t code = 0;
    if (!arg_number(r, 0, 0, 255, &code))
        return;
    broker_exit_code((int)code);
    reply_ok(r);
}

/* refuse MESSAGE: what the operator gave cannot be used; one line on stderr, exit status 2. */
void op_refuse(struct request *r) {
    output_message("%.*s", (int)arg(r, 0).len, arg(r, 0).data);
    broker_exit_code(STATUS_USAGE);
    reply_ok(r);
}

/* fail MESSAGE LAST-OPERATION: how the prelude reports an error that nobody caught. */
void op_fail(struct request *r) {
    free(r->worker->failure);
    if (asprintf(&r->worker->failure, "%.*s\nlast primitive: %.*s", (int)arg(r, 0).len,
                 arg(r, 0).data, (int)arg(r, 1).len, arg(r, 1).data) < 0)
        r->worker->failure = NULL;
    reply_ok(r);
}

/* -- asking the operator ------------------------------------------------------------------------
 */

/* One question at a time; the answer is read by the loop, so that nothing stands still meanwhile.
 */
static struct request *asking;
static struct watch *asking_watch;
static void (*on_answer)(struct request *, bool yes);

static void answered(void *data) {
    struct request *r = data;
    char line[64] = "";
    ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);
    watch_stop(asking_watch);
    asking = NULL;
    on_answer(r, n > 0 && (line[0] == 'y' || line[0] == 'Y'));
}

static void forget_question(struct request *r) {
    watch_stop(asking_watch);
    asking = NULL;
    request_free(r);
}

/* Asks "… [y/N] " and calls back. Without a terminal, or while another question is open: no. */
static void ask(struct request *r, const char *question,
                void (*callback)(struct request *, bool yes)) {
    if (options.yes || asking || !isatty(STDIN_FILENO)) {
        callback(r, options.yes);
        return;
    }
    tcflush(STDIN_FILENO, TCIFLUSH); /* what was typed before the question is no answer to it */
    output_stderr((struct slice){question, strlen(question)});
    output_stderr((struct slice){" [y/N] ", 7});
    asking = r;
    on_answer = callback;
    r->cancel = forget_question;
    asking_watch = watch_start(STDIN_FILENO, POLLIN, answered, r);
}

static void on_confirmed(struct request *r, bool yes) {
    r->cancel = NULL;
    reply_begin(r);
    reply_add_text(r, yes ? "1" : "0");
    reply_send(r);
}

/* confirm TEXT */
void op_confirm(struct request *r) {
    char *text = arg_text(r, 0);
    ask(r, text, on_confirmed);
    free(text);
}

/* The grants a request names, or 0 after replying EINVAL. */
static uint32_t asked_grants(struct request *r) {
    uint32_t grants = 0;
    for (unsigned i = 0; i < r->argc; i++) {
        uint32_t one = grant_find(arg(r, i));
        if (!one) {
            reply_error(r, "EINVAL", "no grant '%.*s'", (int)arg(r, i).len, arg(r, i).data);
            return 0;
        }
        grants |= one;
    }
    return grants;
}

/* Grants whose use changes the host: one run at a time, and none on what another left behind. */
static const uint32_t CHANGING =
    GRANT_SETUP | GRANT_BOX_MINT | GRANT_BOX_CLI | GRANT_CLIENT | GRANT_REHEARSE;

/* Ends the script before it has done anything: one line, and the exit status. */
static void refuse_start(struct request *r, enum exit_status status, const char *why) {
    output_message("%s: %s", r->worker->chunk, why);
    broker_exit_code(status);
    r->worker->refused = true;
    worker_kill(r->worker, why);
    reply_error(r, "EPERM", "%s", why);
}

static bool may_begin(struct request *r) {
    pid_t holder = 0;
    struct buffer left = {0}, why = {0};
    int found = made_begin(&holder, &left);
    if (found == MADE_LOCKED)
        buffer_printf(&why, "another run is changing this host: process %d", (int)holder);
    else if (found == MADE_LEFTOVERS)
        buffer_printf(&why,
                      "an earlier run left something behind:%.*s\n'boxdrill journal' shows it, "
                      "'boxdrill journal revert' removes it, and so does 'boxdrill doctor.lua "
                      "--fix'",
                      (int)left.len, left.data ? left.data : "");
    else if (found == MADE_UNREADABLE)
        buffer_add_text(&why,
                        "the journal of an earlier run cannot be read: see 'boxdrill journal'");
    else if (found != MADE_FREE)
        buffer_printf(&why, "the journal: %s", strerror(-found));
    buffer_add(&why, "", 1);
    if (found != MADE_FREE)
        refuse_start(r, STATUS_REFUSED, why.data);
    buffer_free(&left);
    buffer_free(&why);
    return found == MADE_FREE;
}

static void on_granted(struct request *r, bool yes) {
    r->cancel = NULL;
    if (!yes) {
        reply_error(r, "EPERM", "not granted; give it on the command line with --grant or --yes");
        return;
    }
    uint32_t grants = asked_grants(r);
    if ((grants & CHANGING) && !may_begin(r))
        return;
    r->worker->grants |= grants;
    reply_ok(r);
}

static void add_words(struct buffer *b, uint32_t grants) {
    for (uint32_t bit = 1; bit && bit <= grants; bit <<= 1)
        if ((grants & bit) && grant_words(bit))
            buffer_printf(b, "\n  %-13s %s", grant_name(bit), grant_words(bit));
}

/* grant NAME...: a shipped script has what it asks for (its text says so, and it asks for consent
 * itself); anybody else's is asked about, in our words. */
void op_grant(struct request *r) {
    uint32_t grants = asked_grants(r), open = 0;
    if (!grants)
        return;
    if (!options.root && (grants & CHANGING)) {
        refuse_start(r, STATUS_USAGE, "it changes this host: run it as root");
        return;
    }
    open = r->worker->shipped ? 0 : grants & ~options.given;
    for (uint32_t bit = 1; bit && bit <= open; bit <<= 1)
        if (!grant_words(bit))
            open &= ~bit;
    if (!open) {
        on_granted(r, true);
        return;
    }
    struct buffer question = {0};
    buffer_printf(&question, "%s wants to:", r->worker->chunk);
    add_words(&question, open);
    buffer_add(&question, "\nAllow it?", sizeof("\nAllow it?"));
    ask(r, question.data, on_granted);
    buffer_free(&question);
}
