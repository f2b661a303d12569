/* What this run made on the host, and what is to be removed at its end. */
#pragma once

#include "wire.h"

#include <sys/types.h>

/* Notes, before it is asked for, that something will be made, by the worker of that pid. Twice is
 * once. */
void made_add(const char *kind, struct slice project, struct slice name, pid_t by);
/* It was seen to be gone. Returns 0 or -ENOENT. */
int made_gone(struct slice kind, struct slice project, struct slice name);
/* Whether this run made an instance of that name: only then may it be changed. */
bool made_instance(struct slice project, struct slice name);
/* Whether the worker of that pid made it. */
bool made_by(struct slice project, struct slice name, pid_t by);
/* From here on what is there stays (--keep-boxes). */
void made_keep(void);
/* Whether something is to be removed. */
bool made_pending(void);
/* Appends kind, project, name of each to be removed, newest first. */
void made_list(void (*each)(void *, const char *), void *data);
