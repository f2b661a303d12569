/* What this run made on the host, and what is to be removed at its end: in memory, and as root in
 * the journal, where it stands before it is asked for. */
#pragma once

#include "wire.h"

#include <sys/types.h>

/* What made_begin found in the way. */
enum made_obstacle { MADE_FREE, MADE_LOCKED, MADE_LEFTOVERS, MADE_UNREADABLE };

/* Takes the host's lock and looks into the journal, once; required before the first made_add.
 * holder: set with MADE_LOCKED. left: gets what made_describe says of what is in the way, or NULL.
 * Returns an obstacle (only with MADE_FREE may something be made) or -errno. */
int made_begin(pid_t *holder, struct buffer *left);
/* Takes over what an earlier run left, so that the end of this one removes it. The same returns;
 * with MADE_UNREADABLE what could be read was taken over. */
int made_adopt(pid_t *holder);
/* Calls back for everything in the journal, kept or not, with six texts each: state (open, kept),
 * run, kind, project, name, time. Returns an enum journal_state or -errno. */
int made_show(void (*each)(void *, const char *), void *data);

/* Who made what the box CLI makes: its probes share it. */
#define MADE_BY_CLI ((pid_t)-1)

/* Notes, before it is asked for, that something will be made, by the worker of that pid. Twice is
 * once. Returns 0, or -errno: it could not be journaled and must not be made. */
int made_add(const char *kind, struct slice project, struct slice name, pid_t by);
/* The same for a key, named NETWORK/KEY, that goes from one value to another: words of at most 48
 * letters, digits and .:/,-_ each. -EEXIST when the run has changed it already. */
int made_change(struct slice project, const char *name, struct slice before, struct slice after,
                pid_t by);
/* What a key was before this run changed it; false when it did not. */
bool made_before(struct slice project, const char *name, char *before, size_t size);
/* The instance's volatile.uuid, once it is known. Returns 0, -ENOENT or -errno. */
int made_uuid(struct slice project, struct slice name, struct slice uuid);
/* It was seen to be gone, or not to be ours. Returns 0 or -ENOENT. */
int made_gone(struct slice kind, struct slice project, struct slice name);
/* Whether this run made a thing of that kind and name: only then may it be changed. */
bool made_has(const char *kind, struct slice project, struct slice name);
bool made_instance(struct slice project, struct slice name);
/* Whether the worker of that pid made it. */
bool made_by(const char *kind, struct slice project, struct slice name, pid_t by);
/* The run that made it, or "". */
const char *made_run(const char *kind, struct slice project, struct slice name);
/* From here on the instances that are there stay (--keep-boxes). */
void made_keep(void);
/* Whether something is to be removed. */
bool made_pending(void);
/* Calls back for each to be removed, newest first, with six texts: kind, project, name, run, uuid
 * (or "-"), time. */
void made_list(void (*each)(void *, const char *), void *data);
/* Adds a line "KIND NAME (project P)" for each to be removed, newest first, each after a newline.
 */
void made_describe(struct buffer *b);
/* Whether the host's lock is this run's. */
bool made_locked(void);
/* The end of the run: a journal in which nothing is left is removed. */
void made_end(void);
