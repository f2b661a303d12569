/* The journal: what this run makes on the host, written and fsynced before it is asked for, so that
 * it can be removed whatever happens to the run; and the lock that lets one run at a time change a
 * host. Root only. Called by made.c; docs/journal.md has the format. */
#pragma once

#include "wire.h"

#include <stdint.h>
#include <sys/types.h>

#define JOURNAL_DIR  "/var/lib/boxdrill"
#define JOURNAL_FILE JOURNAL_DIR "/journal"
#define JOURNAL_LOCK "/var/lib/boxdrill/lock"

/* One line, but for its checksum. Texts without white space; time in seconds since the epoch. */
struct journal_line {
    char verb[8]; /* made, uuid, kept, gone */
    char run[16];
    char kind[16];
    char project[64];
    char name[64];
    char extra[112]; /* of uuid: the instance's volatile.uuid; of a key: BEFORE>AFTER; else "-" */
    int64_t time;
};

/* What a journal that cannot be read whole is. */
enum journal_state {
    JOURNAL_WHOLE,
    JOURNAL_CUT, /* its last line is not complete: the change it announces was never asked for */
    JOURNAL_DAMAGED, /* a line in it is not ours */
    JOURNAL_VERSION, /* another version wrote it */
};

/* Takes the lock for the rest of the process; it dies with it. Returns 0 (also when it is held by
 * us already), -EAGAIN with the holder's pid, or -errno. */
int journal_lock(pid_t *holder);

/* Reads the journal and calls back for every complete line, in order. Returns an enum
 * journal_state, or -errno; a journal that is not there is whole and empty. */
int journal_read(void (*each)(void *, const struct journal_line *), void *data);

/* Appends a line and fsyncs it. The lock must be held. Returns 0 or -errno: then nothing that the
 * line announces may be done. */
int journal_append(const struct journal_line *line);

/* Removes the journal: nothing is left in it. Returns 0 or -errno. */
int journal_remove(void);
