/* The box CLI under drill (phase B): which one it is, its installed tree, and runs of it. A run is
 * bounded as `exec`'s are, and its command line is checked word by word, so that no script can aim
 * the CLI at an instance of somebody else's: every name in it is one of this run. What may come to
 * be by it is noted before the CLI is called. */
#define _GNU_SOURCE
#include "job.h"
#include "made.h"
#include "ops.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_WORDS = 64, GRACE_MS = 5000, SAMPLE_MS = 100, TREE_FILE_MAX = 65536, MAX_MS = 600000 };

/* -- which one ----------------------------------------------------------------------------------
 */

static char *in_folder(const char *folder, size_t len, const char *name) {
    char *path = NULL;
    if (asprintf(&path, "%.*s/%s", (int)len, folder, name) < 0)
        abort();
    return path;
}

/* `box` on the fixed PATH that every command gets, or NULL. Free it. */
static char *on_path(void) {
    const char *at = strchr(job_environment()[0], '=') + 1;
    while (*at) {
        size_t len = strcspn(at, ":");
        char *path = in_folder(at, len, "box");
        if (access(path, X_OK) == 0)
            return path;
        free(path);
        at += len + (at[len] == ':');
    }
    return NULL;
}

/* The path of the CLI: --box, else the one on PATH, else NULL. */
static const char *cli_path(void) {
    static char *found;
    if (options.box)
        return options.box;
    if (!found)
        found = on_path();
    return found;
}

/* The folder the CLI is installed in: where its real file lies, or the folder above that
 * (TREE/bin/box), whichever has `templates`; empty when neither has. */
static const char *cli_tree(void) {
    static char tree[PATH_MAX];
    char *real = cli_path() ? realpath(cli_path(), NULL) : NULL;
    tree[0] = 0;
    for (int up = 0; real && up < 2 && !tree[0]; up++) {
        struct stat s;
        char *slash = strrchr(real, '/');
        if (!slash || slash == real)
            break;
        *slash = 0;
        char *templates = in_folder(real, strlen(real), "templates");
        if (stat(templates, &s) == 0 && S_ISDIR(s.st_mode))
            snprintf(tree, sizeof(tree), "%s", real);
        free(templates);
    }
    free(real);
    return tree;
}

static bool have_cli(struct request *r) {
    if (cli_path())
        return true;
    reply_error(r, "ENOENT",
                "no box CLI: there is no `box` on PATH, and none was named with --box");
    return false;
}

/* box.path: the CLI's path and its tree. */
void op_box_path(struct request *r) {
    if (!have_cli(r))
        return;
    reply_begin(r);
    reply_add_text(r, cli_path());
    reply_add_text(r, cli_tree());
    reply_send(r);
}

/* One component of a path, and a harmless one. */
static bool component_ok(struct slice s) {
    if (s.len == 0 || s.len > 60 || s.data[0] == '.' || s.data[0] == '-')
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!isalnum((unsigned char)s.data[i]) && !strchr("._-", s.data[i]))
            return false;
    return true;
}

/* box.tree: VERSION, or `templates` NAME FILE. */
void op_box_tree(struct request *r) {
    bool version = r->argc == 1 && slice_is(arg(r, 0), "VERSION");
    bool template = r->argc == 3 && slice_is(arg(r, 0), "templates") && component_ok(arg(r, 1)) &&
                    component_ok(arg(r, 2));
    if (!version && !template) {
        reply_error(r, "EINVAL", "box.tree: VERSION, or templates NAME FILE");
        return;
    }
    if (!have_cli(r))
        return;
    const char *tree = cli_tree();
    if (!*tree) {
        reply_error(r, "ENOENT", "box.tree: no tree is known of %s", cli_path());
        return;
    }
    char *a = arg_text(r, 0), *b = arg_text(r, 1), *c = arg_text(r, 2), *path = NULL;
    if (asprintf(&path, version ? "%s/%s" : "%s/%s/%s/%s", tree, a, b, c) < 0)
        abort();
    size_t len = 0;
    char *text = read_file(path, TREE_FILE_MAX, &len);
    if (text) {
        reply_begin(r);
        reply_add(r, text, len);
        reply_send(r);
    } else {
        reply_errno(r, errno, path);
    }
    free(text);
    free(a);
    free(b);
    free(c);
    free(path);
}

/* -- the command line ---------------------------------------------------------------------------
 */

enum take { TAKES_NOTHING, TAKES_WORD, TAKES_NAME, TAKES_SOURCE };

/* What may stand on a command line: nothing else does. `lst` and `--labl` are the mistyped ones. */
static const struct {
    const char *name;
    enum take second; /* its second argument; the first is a box's name */
} verbs[] = {
    {"--version", TAKES_NOTHING}, {"--help", TAKES_NOTHING}, {"help", TAKES_NOTHING},
    {"list", TAKES_NOTHING},      {"lst", TAKES_NOTHING},    {"templates", TAKES_NOTHING},
    {"new", TAKES_NOTHING},       {"info", TAKES_NOTHING},   {"exec", TAKES_NOTHING},
    {"snapshot", TAKES_WORD},     {"restore", TAKES_WORD},   {"rename", TAKES_NAME},
    {"down", TAKES_NOTHING},      {"start", TAKES_NOTHING},  {"rm", TAKES_NOTHING},
    {"incus", TAKES_NOTHING},
};
static const struct {
    const char *name;
    enum take value;
} flags[] = {
    {"--name", TAKES_NAME}, {"--from", TAKES_SOURCE},   {"--template", TAKES_WORD},
    {"--cpu", TAKES_WORD},  {"--memory", TAKES_WORD},   {"--container", TAKES_NOTHING},
    {"--labl", TAKES_WORD}, {"--force", TAKES_NOTHING},
};
/* What the escape hatch may be asked: words of `incus`; NULL ends one. */
static const char *const hatch[][8] = {
    {"config", "show"},
    {"config", "device", "add", "{}", "bd-drill", "none"},
};

/* A command line on its way to being argv; `text` holds what is copied from the request. */
struct line {
    struct request *r;
    unsigned at; /* the next argument */
    char *text;
    size_t used;
    char *argv[MAX_WORDS + 1], *envp[MAX_WORDS];
    unsigned n, nenv;
    unsigned names[MAX_WORDS], n_names; /* arguments that name what may come to be */
};

static void line_free(struct line *l) {
    free(l->text);
}

/* Room for every argument and its NUL: it never grows, so that pointers into it hold. */
static void make_room(struct line *l) {
    size_t room = 1;
    for (unsigned i = 0; i < l->r->argc; i++)
        room += arg(l->r, i).len + 1;
    l->text = malloc(room);
    if (!l->text)
        abort();
}

/* Argument l->at as text, and on to the next. */
static char *next_text(struct line *l) {
    struct slice s = arg(l->r, l->at++);
    char *text = l->text + l->used;
    memcpy(text, s.data, s.len);
    text[s.len] = 0;
    l->used += s.len + 1;
    return text;
}

static void push(struct line *l, const char *word) {
    l->argv[l->n++] = (char *)word;
}

static bool refuse(struct request *r, unsigned i, const char *why) {
    reply_error(r, "EPERM", "%s: argument %u, '%.*s', %s", r->op->name, i + 1, (int)arg(r, i).len,
                arg(r, i).data, why);
    return false;
}

/* Takes argument l->at as a value of its kind. */
static bool take(struct line *l, enum take kind) {
    struct request *r = l->r;
    unsigned i = l->at;
    struct slice s = arg(r, i);
    if (i >= r->argc || s.len == 0 || s.data[0] == '-' || memchr(s.data, 0, s.len))
        return refuse(r, i, "is missing, empty or an option");
    if (kind == TAKES_SOURCE) {
        const char *slash = memchr(s.data, '/', s.len);
        s.len = slash ? (size_t)(slash - s.data) : s.len;
    }
    if (kind != TAKES_WORD && !box_name_is_ours(s))
        return refuse(r, i, "is not a name of this run");
    if (kind == TAKES_NAME && !arg_name(r, i))
        return false;
    if (kind == TAKES_NAME)
        l->names[l->n_names++] = i;
    push(l, next_text(l));
    return true;
}

static bool take_flag(struct line *l) {
    for (size_t f = 0; f < sizeof(flags) / sizeof(*flags); f++) {
        if (!slice_is(arg(l->r, l->at), flags[f].name))
            continue;
        push(l, flags[f].name);
        l->at++;
        return flags[f].value == TAKES_NOTHING || take(l, flags[f].value);
    }
    return refuse(l->r, l->at, "is not an option that a drill uses");
}

static bool hatch_ok(const struct line *l) {
    for (size_t h = 0; h < sizeof(hatch) / sizeof(*hatch); h++) {
        unsigned i = 0;
        while (hatch[h][i] && slice_is(arg(l->r, l->at + i), hatch[h][i]))
            i++;
        if (!hatch[h][i] && l->at + i == l->r->argc)
            return true;
    }
    return false;
}

/* `-- WORD...`: for `exec` a command in the box, for `incus` one of ours. */
static bool take_rest(struct line *l, const char *verb) {
    push(l, "--");
    l->at++;
    if (strcmp(verb, "exec") != 0 && !(strcmp(verb, "incus") == 0 && hatch_ok(l)))
        return refuse(l->r, l->at, "is not a command that a drill runs");
    while (l->at < l->r->argc)
        push(l, next_text(l));
    return true;
}

static bool take_arguments(struct line *l, size_t v) {
    unsigned positional = 0;
    while (l->at < l->r->argc) {
        struct slice s = arg(l->r, l->at);
        bool ok = false;
        if (slice_is(s, "--") && positional == 1)
            ok = take_rest(l, verbs[v].name);
        else if (s.len && s.data[0] == '-')
            ok = take_flag(l);
        else if (positional++ == 0)
            ok = take(l, TAKES_SOURCE);
        else if (positional == 2 && verbs[v].second != TAKES_NOTHING)
            ok = take(l, verbs[v].second);
        else
            refuse(l->r, l->at, "is one too many");
        if (!ok)
            return false;
    }
    return true;
}

/* BOX_NAME=VALUE: what a CLI of its own may be told by its environment, and nothing that a linker
 * or a shell would act on. */
static bool is_setting(struct slice s) {
    const char *equals = memchr(s.data, '=', s.len);
    if (s.len < 5 || memcmp(s.data, "BOX_", 4) != 0 || !equals || memchr(s.data, 0, s.len))
        return false;
    for (const char *c = s.data; c < equals; c++)
        if (!isupper((unsigned char)*c) && *c != '_')
            return false;
    return true;
}

static void take_environment(struct line *l) {
    for (char *const *e = job_environment(); *e; e++)
        l->envp[l->nenv++] = *e;
    while (l->at < l->r->argc && is_setting(arg(l->r, l->at)))
        l->envp[l->nenv++] = next_text(l);
    l->envp[l->nenv] = NULL;
}

/* Notes what the line may bring into being: only then may it be run. Replies, and returns false,
 * when that cannot be written. */
static bool claim(const struct line *l) {
    int error = 0;
    for (unsigned i = 0; i < l->n_names && error == 0; i++)
        error = made_add("instance", arg(l->r, 0), arg(l->r, l->names[i]), MADE_BY_CLI);
    if (error < 0)
        reply_errno(l->r, -error, "box: not run, since the journal cannot be written");
    return error == 0;
}

/* The words from `first` on. Replies, and returns false, when one of them is not allowed. */
static bool read_line(struct line *l, struct request *r, unsigned first) {
    l->r = r;
    l->at = first;
    if (r->argc - first > MAX_WORDS / 2) {
        reply_error(r, "EINVAL", "%s: too many arguments", r->op->name);
        return false;
    }
    make_room(l);
    take_environment(l);
    push(l, cli_path());
    for (size_t v = 0; v < sizeof(verbs) / sizeof(*verbs); v++) {
        if (!slice_is(arg(r, l->at), verbs[v].name))
            continue;
        push(l, verbs[v].name);
        l->at++;
        if (!take_arguments(l, v))
            return false;
        return claim(l);
    }
    return refuse(r, l->at, "is not a command of a box CLI that a drill uses");
}

/* -- running it ---------------------------------------------------------------------------------
 */

/* A run of the CLI; `key`: one that is made once, whoever asks for it. */
struct call {
    struct call *next;
    struct request *r;
    char *key;
    bool done;
    int error;
    struct exec_result result;
    size_t seen;                /* bytes of output so far */
    int64_t since_ms, quiet_ms; /* when they last grew; the longest time in which they did not */
};
static struct call *calls;
static unsigned running;
static bool sampling;

static void sample(void *data) {
    (void)data;
    for (struct call *c = calls; c; c = c->next) {
        if (c->done)
            continue;
        size_t len = job_output_len(c->r);
        int64_t now = now_ms();
        if (now - c->since_ms > c->quiet_ms)
            c->quiet_ms = now - c->since_ms;
        if (len != c->seen) {
            c->seen = len;
            c->since_ms = now;
        }
    }
    sampling = running > 0;
    if (sampling)
        timer_start(SAMPLE_MS, sample, NULL);
}

static void call_free(struct call *c) {
    for (struct call **p = &calls; *p; p = &(*p)->next) {
        if (*p == c) {
            *p = c->next;
            break;
        }
    }
    supervise_result_clear(&c->result);
    free(c->key);
    free(c);
}

static void *copy_of(const char *data, size_t len) {
    char *copy = malloc(len + 1);
    if (!copy)
        abort();
    memcpy(copy, data, len);
    copy[len] = 0;
    return copy;
}

static void answer(struct request *r, const struct call *c) {
    if (c->error)
        job_reply_extra(r, NULL, c->error, 0);
    else
        job_reply_extra(r, &c->result, 0, c->quiet_ms);
}

/* Whoever asked for the same run meanwhile. */
static void answer_waiters(const struct call *c) {
    for (struct request *r = request_list(), *next; r; r = next) {
        next = r->next;
        if (r->op && r->op->start == op_box_once && r->data == c && r != c->r) {
            r->data = NULL;
            answer(r, c);
        }
    }
}

static void on_done(struct request *r, const struct exec_result *result, int error) {
    struct call *c = r->data;
    broker_changing(-1);
    running--;
    c->done = true;
    c->error = result ? 0 : error;
    if (result) {
        c->result = *result;
        c->result.out = copy_of(result->out, result->out_len);
        c->result.err = copy_of(result->err, result->err_len);
    }
    if (c->key)
        answer_waiters(c);
    c->r = NULL;
    r->data = NULL;
    answer(r, c);
    if (!c->key)
        call_free(c);
}

static void start(struct request *r, const struct line *l, int64_t ms, int64_t cap, char *key) {
    struct call *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct call){.next = calls, .r = r, .key = key, .since_ms = now_ms()};
    calls = c;
    r->data = c;
    job_make_folder();
    broker_changing(1);
    running++;
    if (!sampling)
        timer_start(SAMPLE_MS, sample, NULL);
    sampling = true;
    job_start(r,
              &(struct supervise_spec){.argv = l->argv,
                                       .envp = l->envp,
                                       .deadline_ms = (unsigned)ms,
                                       .grace_ms = GRACE_MS,
                                       .cap = (size_t)cap},
              on_done);
}

/* PROJECT MS CAP, from argument 0 and `first` on. */
static bool bounds_ok(struct request *r, unsigned first, int64_t *ms, int64_t *cap) {
    return have_cli(r) && arg_name(r, 0) && arg_number(r, first, 1, MAX_MS, ms) &&
           arg_number(r, first + 1, 0, 1 << 20, cap);
}

/* box PROJECT MS CAP [BOX_NAME=VALUE ...] WORD ... */
void op_box(struct request *r) {
    struct line l = {0};
    int64_t ms = 0, cap = 0;
    if (!bounds_ok(r, 1, &ms, &cap))
        return;
    if (read_line(&l, r, 3))
        start(r, &l, ms, cap, NULL);
    line_free(&l);
}

static char *all_arguments(const struct request *r) {
    struct buffer b = {0};
    for (unsigned i = 0; i < r->argc; i++)
        buffer_printf(&b, "%.*s\n", (int)arg(r, i).len, arg(r, i).data);
    buffer_add(&b, "", 1);
    return b.data;
}

/* box.once: as `box`, but run once in a run of boxdrill: who asks for the same again, from
 * whichever worker, gets the same answer, and waits for it if need be. It outlives who asked first.
 */
void op_box_once(struct request *r) {
    struct line l = {0};
    int64_t ms = 0, cap = 0;
    if (!bounds_ok(r, 1, &ms, &cap))
        return;
    char *key = all_arguments(r);
    struct call *c = calls;
    while (c && !(c->key && strcmp(c->key, key) == 0))
        c = c->next;
    if (c && c->done) {
        answer(r, c);
    } else if (c) {
        r->data = c;
    } else if (read_line(&l, r, 3)) {
        start(r, &l, ms, cap, key);
        r->cancel = NULL;
        key = NULL;
    }
    free(key);
    line_free(&l);
}

/* -- with a template more -----------------------------------------------------------------------
 */

/* Writes FOLDER/NAME/FILE, and what else may be in a template is its own matter. */
static int write_template(struct request *r, const char *folder) {
    char *name = arg_text(r, 1), *file = arg_text(r, 2), path[256];
    int error = 0;
    (void)mkdir(folder, 0755);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        error = errno;
    snprintf(path, sizeof(path), "%s/%s/%s", folder, name, file);
    FILE *f = error ? NULL : fopen(path, "we");
    if (!f && !error)
        error = errno;
    if (f && (fwrite(arg(r, 3).data, 1, arg(r, 3).len, f) != arg(r, 3).len))
        error = EIO;
    if (f && fclose(f) != 0)
        error = EIO;
    free(name);
    free(file);
    return error;
}

/* Puts `unshare ... sh -c SCRIPT sh OPTION TEMPLATES` before the command line. */
static void wrap(struct line *l, const char *option, const char *templates) {
    static const char script[] = "mount -t overlay -o \"$1\" box \"$2\" && shift 2 && exec \"$@\"";
    const char *before[] = {"unshare", "--mount", "--propagation", "private", "--", "sh", "-c",
                            script,    "sh",      option,          templates};
    enum { BEFORE = sizeof(before) / sizeof(*before) };
    memmove(l->argv + BEFORE, l->argv, l->n * sizeof(*l->argv));
    memcpy(l->argv, before, sizeof(before));
    l->n += BEFORE;
}

/* box.template PROJECT NAME FILE TEXT MS CAP WORD...: as `box`, for a CLI that has one template
 * more: laid over its own in a mount namespace that only this run of it sees. */
void op_box_template(struct request *r) {
    struct line l = {0};
    int64_t ms = 0, cap = 0;
    char folder[64], templates[PATH_MAX + 16], option[PATH_MAX + 160];
    if (!bounds_ok(r, 4, &ms, &cap))
        return;
    snprintf(folder, sizeof(folder), "/run/boxdrill-%s/templates", run_id);
    snprintf(templates, sizeof(templates), "%s/templates", cli_tree());
    if (!component_ok(arg(r, 1)) || !component_ok(arg(r, 2))) {
        reply_error(r, "EINVAL", "box.template: NAME and FILE are plain names");
    } else if (!*cli_tree() || strpbrk(templates, ",:\\")) {
        reply_error(r, "ENOENT", "box.template: where the templates of %s lie is not known",
                    cli_path());
    } else if (read_line(&l, r, 6)) {
        job_make_folder();
        int error = write_template(r, folder);
        snprintf(option, sizeof(option), "ro,lowerdir=%s:%s", folder, templates);
        wrap(&l, option, templates);
        if (error)
            reply_errno(r, error, folder);
        else
            start(r, &l, ms, cap, NULL);
    }
    line_free(&l);
}
