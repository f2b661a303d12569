/* box.look: a look into an instance that this run did not make. Whoever has the grant chooses one
 * of four questions, never a command: argv is written here, bounded inside the guest, and nothing
 * is put into the instance or left there. */
#define _GNU_SOURCE
#include "ops.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 8000, LOOK_CAP = 65536, MAX_ARGV = 24 };

/* A host's name, and no option. */
static bool is_host_name(const char *text) {
    size_t n = strlen(text);
    return n >= 1 && n <= 253 && text[0] != '-' && text[0] != '.' &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-")] == 0;
}

/* The words of a question; its first three bound it in the guest. Returns how many, or 0. */
static unsigned words_of(struct request *r, const char *target, char *url, size_t size,
                         const char *argv[MAX_ARGV]) {
    static const char *const address[] = {"ip", "-j", "address", "show", NULL};
    static const char *const route[] = {"ip", "-4", "-j", "route", "show", NULL};
    const char *const names[] = {"getent", "ahostsv4", target, NULL};
    const char *const internet[] = {"curl", "-q",        "-4", "-v", "-sS", "--noproxy", "*",
                                    "-o",   "/dev/null", "-m", "5",  url,   NULL};
    const char *const *words = NULL;
    unsigned char bytes[4];
    int64_t port = 0;
    if (slice_is(arg(r, 2), "address") && r->argc == 3)
        words = address;
    else if (slice_is(arg(r, 2), "route") && r->argc == 3)
        words = route;
    else if (slice_is(arg(r, 2), "names") && r->argc == 4 && is_host_name(target))
        words = names;
    else if (slice_is(arg(r, 2), "internet") && r->argc == 5 &&
             inet_pton(AF_INET, target, bytes) == 1) {
        if (!arg_number(r, 4, 1, 65535, &port))
            return 0;
        snprintf(url, size, "http://%s:%d/", target, (int)port);
        words = internet;
    }
    if (!words) {
        reply_error(r, "EINVAL",
                    "box.look: address | route | names HOST-NAME | internet IPV4-ADDRESS PORT");
        return 0;
    }
    unsigned n = 0;
    for (const char *const *bound = (const char *const[]){"timeout", "-k", "1", "6", NULL}; *bound;
         bound++)
        argv[n++] = *bound;
    while (*words)
        argv[n++] = *words++;
    return n;
}

/* box.look PROJECT NAME WHAT [TARGET [PORT]] */
void op_box_look(struct request *r) {
    const char *argv[MAX_ARGV];
    struct slice words[MAX_ARGV];
    char url[64] = "", *target = arg_text(r, 3);
    unsigned n = arg_name(r, 0) && arg_name(r, 1) ? words_of(r, target, url, sizeof(url), argv) : 0;
    for (unsigned i = 0; i < n; i++)
        words[i] = (struct slice){argv[i], strlen(argv[i])};
    if (n)
        box_exec(r, words, n, LOOK_MS, LOOK_CAP);
    free(target);
}
