/* The broker: one event loop that holds policy, verdicts and what this run made, and runs the
 * primitives that workers ask for. Every file engine/op_*.c is one primitive; the table of all is
 * dispatch.c. Nothing here blocks: a request is answered now, or later by a callback. */
#pragma once

#include "loop.h"
#include "wire.h"

#include <stdint.h>
#include <sys/types.h>

/* Grants (docs/requests.md). The last three follow from what a worker is, not from asking. */
enum grant {
    GRANT_READ = 1U << 0,
    GRANT_PROBES = 1U << 1,
    GRANT_BOX_MINT = 1U << 2,
    GRANT_BOX_EXEC = 1U << 3,
    GRANT_CLIENT = 1U << 4,
    GRANT_HOST_CONNECT = 1U << 5,
    GRANT_HOST_EXEC = 1U << 6,
    GRANT_SETUP = 1U << 7,
    GRANT_JOURNAL = 1U << 8,
    GRANT_BOX_CLI = 1U << 9,
    GRANT_REHEARSE = 1U << 10,
    GRANT_WITNESS = 1U << 11,
    GRANT_BOX_LOOK = 1U << 12,
    GRANT_SCRIPT = 1U << 13,
    GRANT_PROBE = 1U << 14,
    GRANT_REVERT = 1U << 15,
};
/* The name of the lowest bit, as scripts write it. */
const char *grant_name(uint32_t grant);
/* The bit of a name that may be asked for, or 0. */
uint32_t grant_find(struct slice name);
/* What the operator is told that it allows; NULL when it changes nothing and is never asked. */
const char *grant_words(uint32_t grant);

enum kind { KIND_SCRIPT, KIND_PROBE, KIND_REVERT };

enum verdict { PASS, FAIL, NOTE, SKIP, SUSPECT, ERROR, VETO, VERDICTS };

enum exit_status {
    STATUS_OK = 0,
    STATUS_FAIL = 1,
    STATUS_USAGE = 2,
    STATUS_UNSURE = 3,
    STATUS_REFUSED = 4,
    STATUS_NOT_REVERTED = 5,
    STATUS_INTERRUPTED = 130,
};

/* The command line, and what follows from where the program is installed. Set once by main. */
struct options {
    char *site;      /* --site, or the default where it exists, or NULL */
    char *box;       /* --box: the CLI under drill; NULL: the one on PATH */
    const char *log; /* --log, or NULL */
    char *share;     /* directory of lua/, probes/ and host/ */
    char *guest;     /* the program pushed into boxes */
    char **args;     /* what the script gets */
    int nargs;
    uint32_t given; /* --grant */
    bool json, yes, root, color;
};
extern struct options options;
extern char run_id[9]; /* 8 hex digits, random */

struct request;

/* A worker as the broker sees it. */
struct worker {
    struct worker *next;
    pid_t pid;
    int pidfd, fd;
    struct watch *fd_watch, *pid_watch;
    struct timer *more; /* set while frames that were read already wait to be handled */
    enum kind kind;
    uint32_t grants;
    bool shipped; /* its file is part of the installation, and nobody but its owner can write it */
    char *chunk, *source;
    struct buffer in, out;
    unsigned pending; /* its requests that are not answered yet */
    char last_op[32];
    int64_t turn_ms, turn_cpu_ms; /* when its turn began: nothing is pending, so it is running */
    int64_t deadline_ms;          /* a probe's end; 0: none */
    int64_t limit_ms;             /* how long a probe may take; 0: as long as any */
    char *killed;                 /* why we killed it */
    bool refused;                 /* killed before it began, and the operator was told why */
    char *failure;                /* the error it reported itself */
    /* Of a probe: its declaration, who waits for what, and its verdict (-1: none yet). */
    char *id, *metadata;
    uint32_t needs;
    int64_t started_ms;
    struct request *loader, *declared, *runner;
    int verdict;
    struct buffer evidence;
    char **boxes; /* the names it was given: the only ones, with those it made, that it may touch */
    unsigned nboxes;
};

/* One request: from its frame until its reply. */
struct request {
    struct request *next;
    struct worker *worker; /* NULL once it is gone; the request still runs to its end */
    uint32_t id;
    int64_t started_ms; /* when it came */
    const struct op *op;
    char *bytes;
    struct frame frame;
    unsigned argc;
    const struct slice *argv; /* arguments, without the operation's name */
    struct buffer reply;
    size_t reply_frame;
    void (*cancel)(struct request *); /* NULL: it is short, or must not be cut off */
    void *data;
};

/* A row of the dispatch table. */
struct op {
    const char *name;
    uint32_t grant;    /* any of these bits suffices; 0: everybody */
    unsigned min, max; /* arguments */
    void (*start)(struct request *);
    const char *usage; /* the arguments, as docs/requests.md has them */
    bool bytes;        /* arguments may hold NUL bytes: they never become C strings */
    const char *path;  /* for rows that share a start function: method and path of a REST call */
    const char *body;  /* and the sections its body may have */
};
const struct op *dispatch_find(struct slice name);

/* Replies. Each of reply_error, reply_errno, reply_ok and reply_send ends the request, frees it. */
void reply_begin(struct request *r);
void reply_add(struct request *r, const void *data, size_t len);
void reply_add_text(struct request *r, const char *text);
void reply_add_number(struct request *r, int64_t n);
void reply_send(struct request *r);
void reply_ok(struct request *r);
void reply_error(struct request *r, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The code is the errno's name. */
void reply_errno(struct request *r, int error, const char *what);

/* Arguments, counted from 0. Beyond the last: empty. */
struct slice arg(const struct request *r, unsigned i);
/* A number in [min, max]; replies EINVAL and returns false when it is none. */
bool arg_number(struct request *r, unsigned i, int64_t min, int64_t max, int64_t *out);
/* A name as Incus has them; replies EINVAL and returns false when it is none. */
bool arg_name(struct request *r, unsigned i);
/* A copy to be freed; empty when the argument holds a NUL. */
char *arg_text(const struct request *r, unsigned i);

void request_free(struct request *r);
struct request *request_list(void);

/* Forks a worker for a source (which it takes over). Returns NULL with errno set. */
struct worker *worker_start(enum kind kind, const char *chunk, char *source, uint32_t grants);
void worker_kill(struct worker *w, const char *why);
void worker_check_all(void);
struct worker *worker_list(void);
/* Queues a reply; a worker that is gone (NULL) gets nothing. */
void worker_reply(struct worker *w, const char *data, size_t len);
/* Called when a worker is gone (broker.c). how: empty when it ended by itself. */
void worker_ended(struct worker *w, const char *how);

/* Whether the file can be trusted with grants: owned by root (or by us) and by nobody else
 * writable. */
bool file_trusted(const char *path);
/* Reads a file whole, NUL-terminated, at most max bytes. Returns NULL with errno set. */
char *read_file(const char *path, size_t max, size_t *len);

/* Runs a script to its end, reverts what is left, and returns the exit status. */
int broker_run(const char *chunk, char *source, bool shipped);
/* +1 when a request that changes something starts, -1 when it ends: the run waits for it. */
void broker_changing(int by);
/* Ends the run with what it made removed, soon: what it stands on is broken. The exit status is
 * then STATUS_UNSURE at least. Said once. */
void broker_stop(const char *why);
/* Runs lua/revert.lua now, in the middle of the run, and answers when it has ended. */
void broker_revert(struct request *r);
/* What `exit CODE` asked for. */
void broker_exit_code(int code);
