/* client: the `incus` command, for the assumptions that a box CLI makes about it (phase A). Each
 * form is a fixed argv, and every instance it names is one of this run. */
#define _GNU_SOURCE
#include "job.h"
#include "made.h"
#include "ops.h"

#include <stdlib.h>
#include <string.h>

enum { CLIENT_MS = 60000, MAX_ARGV = 32 };

/* The words of a form's argv. `=N` is an instance's name, `+N` one that may come to be by this
 * command, `*N` every name from there on, `@N` other text; N counts from the form's first argument.
 * */
static const struct {
    const char *name;
    unsigned args; /* at least */
    const char *argv[12];
} forms[] = {
    {"get", 2, {"config", "get", "=0", "@1"}},
    {"list-filter", 1, {"list", "@0", "--format", "csv", "--columns", "n"}},
    {"list-columns", 2, {"list", "=0", "--format", "csv", "--columns", "@1"}},
    {"rename", 2, {"rename", "=0", "+1"}},
    {"snapshot", 2, {"snapshot", "create", "=0", "@1"}},
    {"snapshot-list", 1, {"snapshot", "list", "=0", "--format", "csv"}},
    {"copy", 2, {"copy", "=0", "+1"}},
    {"delete", 1, {"delete", "-f", "*0"}},
};

static void on_done(struct request *r, const struct exec_result *result, int error) {
    broker_changing(-1);
    job_reply(r, result, error);
}

/* A name of this run, whether it exists or not. */
static bool name_ok(struct request *r, unsigned i) {
    if (!arg_name(r, i))
        return false;
    bool known = made_instance(arg(r, 1), arg(r, i));
    if (box_name_is_ours(arg(r, i)) && (!known || box_may_touch(r->worker, arg(r, 1), arg(r, i))))
        return true;
    reply_error(r, "EPERM", "client: '%.*s' is not a name that this worker may use",
                (int)arg(r, i).len, arg(r, i).data);
    return false;
}

/* Text that the client could take for an option, or for a remote, is refused. */
static bool text_ok(struct request *r, unsigned i) {
    struct slice s = arg(r, i);
    if (s.len && s.data[0] != '-' && !memchr(s.data, ':', s.len))
        return true;
    reply_error(r, "EINVAL", "client: argument %u is empty, begins with '-' or has a ':'", i + 1);
    return false;
}

static bool add_word(struct request *r, const char *word, char **argv, unsigned *n) {
    bool reference = strchr("=+*@", word[0]) != NULL;
    if (!reference) {
        argv[(*n)++] = strdup(word);
        return true;
    }
    unsigned i = 2 + (unsigned)(word[1] - '0');
    unsigned end = word[0] == '*' ? r->argc : i + 1;
    for (; i < end && *n < MAX_ARGV - 1; i++) {
        if (word[0] == '@' ? !text_ok(r, i) : !name_ok(r, i))
            return false;
        int error = word[0] == '+' ? made_add("instance", arg(r, 1), arg(r, i), r->worker->pid) : 0;
        if (error < 0) {
            reply_errno(r, -error, "client: not run, since the journal cannot be written");
            return false;
        }
        argv[(*n)++] = arg_text(r, i);
    }
    return true;
}

static void run_form(struct request *r, const char *const *words) {
    char *argv[MAX_ARGV] = {strdup("incus"), strdup("--project"), arg_text(r, 1)};
    unsigned n = 3;
    bool ok = true;
    for (unsigned i = 0; ok && i < 12 && words[i]; i++)
        ok = add_word(r, words[i], argv, &n);
    if (ok) {
        job_make_folder();
        broker_changing(1);
        job_run(r, argv, NULL, CLIENT_MS, on_done);
        r->cancel = NULL; /* what it began goes on in incusd: the end of the run waits for it */
    }
    for (unsigned i = 0; i < n; i++)
        free(argv[i]);
}

/* client FORM PROJECT ARG... */
void op_client(struct request *r) {
    if (!arg_name(r, 1))
        return;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        if (!slice_is(arg(r, 0), forms[i].name))
            continue;
        if (r->argc - 2 < forms[i].args)
            reply_error(r, "EINVAL", "client %s: needs %u arguments", forms[i].name, forms[i].args);
        else
            run_form(r, forms[i].argv);
        return;
    }
    reply_error(r, "EINVAL", "client: no form '%.*s'", (int)arg(r, 0).len, arg(r, 0).data);
}
