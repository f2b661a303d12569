#include "made.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct made {
    struct made *next; /* older */
    char *kind, *project, *name;
    bool kept;
};

static struct made *list;

static char *copy(struct slice s) {
    char *text = slice_dup(s);
    if (!text)
        abort();
    return text;
}

static bool is(const struct made *m, const char *kind, struct slice project, struct slice name) {
    return strcmp(m->kind, kind) == 0 && slice_is(project, m->project) && slice_is(name, m->name);
}

void made_add(const char *kind, struct slice project, struct slice name) {
    for (const struct made *m = list; m; m = m->next)
        if (is(m, kind, project, name))
            return;
    struct made *m = malloc(sizeof(*m));
    if (!m)
        abort();
    *m = (struct made){list, strdup(kind), copy(project), copy(name), false};
    list = m;
}

int made_gone(struct slice kind, struct slice project, struct slice name) {
    for (struct made **p = &list; *p; p = &(*p)->next) {
        struct made *m = *p;
        if (!slice_is(kind, m->kind) || !is(m, m->kind, project, name))
            continue;
        *p = m->next;
        free(m->kind);
        free(m->project);
        free(m->name);
        free(m);
        return 0;
    }
    return -ENOENT;
}

bool made_has(const char *kind, struct slice project, struct slice name) {
    for (const struct made *m = list; m; m = m->next)
        if (is(m, kind, project, name))
            return true;
    return false;
}

bool made_instance(struct slice project, struct slice name) {
    return made_has("instance", project, name);
}

void made_keep(void) {
    for (struct made *m = list; m; m = m->next)
        m->kept |= strcmp(m->kind, "instance") == 0;
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
        each(data, m->kind);
        each(data, m->project);
        each(data, m->name);
    }
}
