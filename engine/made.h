/* What this run made on the host, and what is to be removed at its end. */
#pragma once

#include "wire.h"

/* Notes, before it is asked for, that something will be made. Twice is once. */
void made_add(const char *kind, struct slice project, struct slice name);
/* It was seen to be gone. Returns 0 or -ENOENT. */
int made_gone(struct slice kind, struct slice project, struct slice name);
/* Whether this run made a thing of that kind and name: only then may it be changed. */
bool made_has(const char *kind, struct slice project, struct slice name);
bool made_instance(struct slice project, struct slice name);
/* From here on the instances that are there stay (--keep-boxes). */
void made_keep(void);
/* Whether something is to be removed. */
bool made_pending(void);
/* Appends kind, project, name of each to be removed, newest first. */
void made_list(void (*each)(void *, const char *), void *data);
