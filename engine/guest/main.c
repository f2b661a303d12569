/*
 * boxdrill-guest: pushed into a box, does one bounded thing, reports it, ends. docs/guest.md.
 */
#include "line.h"
#include "modes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int usage(void) {
    fputs("usage: boxdrill-guest attempt|exec|info nonce=HEX ARGUMENT... (docs/guest.md)\n",
          stderr);
    return 2;
}

/* A socket that lands on a closed 1 or 2 would get our output. */
static void open_standard_fds(void) {
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd < 3);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv) {
    const char *nonce;

    if (argc < 3 || strncmp(argv[2], "nonce=", 6) != 0 || !line_is_token(argv[2] + 6))
        return usage();
    nonce = argv[2] + 6;
    open_standard_fds();
    line_nonce(nonce);
    signal(SIGPIPE, SIG_IGN); /* a write that fails is noticed where it is made */
    if (strcmp(argv[1], "attempt") == 0)
        return mode_attempt(argc - 3, argv + 3);
    if (strcmp(argv[1], "exec") == 0)
        return mode_exec(nonce, argc - 3, argv + 3);
    if (strcmp(argv[1], "info") == 0 && argc == 3)
        return mode_info();
    return usage();
}
