/* The sandbox on kernels that lack something: made by a filter that answers ENOSYS, as such a
 * kernel does. What it refuses on this kernel is `boxdrill --sandbox-selftest`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox.h"

static void lack(int call) {
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    if (!ctx || seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), call, 0) < 0 || seccomp_load(ctx) < 0)
        _exit(99);
    seccomp_release(ctx);
}

/* Runs a check in a child, which may lose whatever it likes; it must return 0. */
static void in_child(int (*check)(void)) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(check());
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int high_socket(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    return fcntl(pair[0], F_DUPFD_CLOEXEC, 3);
}

static int with_everything(void) {
    return sandbox_seccomp() ? 0 : 1;
}

static int without_seccomp(void) {
    lack(SCMP_SYS(seccomp));
    return sandbox_seccomp() ? 1 : 0;
}

static int without_landlock(void) {
    lack(SCMP_SYS(landlock_create_ruleset));
    if (sandbox_landlock_abi() != 0)
        return 1;
    return sandbox_enter(high_socket()) == 0 ? 0 : 2;
}

static int low_socket(void) {
    return sandbox_enter(2) == -EBADF ? 0 : 1;
}

static void kernels(void **state) {
    (void)state;
    in_child(with_everything);
    in_child(without_seccomp);
    in_child(without_landlock);
    in_child(low_socket);
}

/* As root: another uid than anybody's, no capabilities. Seen from outside, by /proc. */
static void identity(void **state) {
    (void)state;
    int pair[2];
    char byte = 0, line[256], path[64];
    unsigned uid = 0;
    unsigned long long effective = ~0ULL;
    if (geteuid() != 0)
        skip();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = fcntl(pair[1], F_DUPFD_CLOEXEC, 3);
        if (sandbox_enter(fd) < 0 || write(fd, "x", 1) != 1 || read(fd, &byte, 1) != 1)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(read(pair[0], &byte, 1), 1);
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        sscanf(line, "Uid: %u", &uid);
        sscanf(line, "CapEff: %llx", &effective);
    }
    fclose(f);
    assert_true(uid > 1000000000U + 1000000U);
    assert_true(effective == 0);
    assert_int_equal(write(pair[0], "x", 1), 1);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels), cmocka_unit_test(identity)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
