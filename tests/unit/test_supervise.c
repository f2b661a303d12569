/*
 * The bounded exec, with real processes that misbehave in every way we know of.
 *
 * Each command is this very program, started as `test_supervise --act NAME`, with a random mark in
 * its environment. "Gone" is asked twice: no process in /proc carries the mark, and we, a
 * subreaper, have no child left. Both are first shown to see the processes while they are there.
 */
#define _GNU_SOURCE
#include "../../engine/supervise.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE 400
#define GRACE    200
/* A loaded machine is late; a supervisor that does not work is later by far. */
#define SLACK 3000
#define CAP   65536

static char mark[64];
static char *act_env[] = {mark, NULL};

static int64_t now_ms(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- what the commands do ---------------------------------------------------------------- */

static void ignore_term(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
}

static int __attribute__((noreturn)) sleep_forever(void) {
    for (;;)
        pause();
}

static int act_hold(void) {
    if (fork() == 0)
        sleep_forever();
    puts("done");
    return 3;
}

static int act_stubborn(void) {
    ignore_term();
    sleep_forever();
}

static void fork_away(void) {
    if (fork() == 0) {
        ignore_term(); /* before there is anybody who could be told to end */
        setsid();
        if (fork() == 0) {
            setsid();
            sleep_forever();
        }
        _exit(0);
    }
    wait(NULL);
}

static int act_away(void) {
    fork_away();
    sleep_forever();
}

static int act_away_exit(void) {
    fork_away();
    return 7;
}

static int act_flood(void) {
    static char block[8192];
    int fd = fork() == 0 ? 1 : 2;

    ignore_term();
    memset(block, 'x', sizeof(block));
    for (;;)
        if (write(fd, block, sizeof(block)) < 0)
            return 1;
}

static int act_bomb(void) {
    ignore_term();
    for (int depth = 0; depth < 7; depth++)
        if (fork() == 0 && depth % 2)
            setsid();
    sleep_forever();
}

/* Never the same pid for long: whoever looks it up is late. Bounded, should nobody catch it. */
static int act_hop(void) {
    int64_t end = now_ms() + 20000;

    ignore_term();
    if (fork())
        sleep_forever();
    while (now_ms() < end)
        if (fork())
            _exit(0);
    return 0;
}

static int act_stopped(void) {
    raise(SIGSTOP);
    sleep_forever();
}

static int act_tty(void) {
    char byte;
    int fd = open("/dev/tty", O_RDWR);

    int error = fd < 0 ? errno : 0;
    ssize_t got = read(0, &byte, 1);

    printf("tty=%d stdin=%zd isatty=%d\n", error, got, isatty(0) || isatty(1) || isatty(2));
    return 0;
}

static int act_tty_stay(void) {
    act_tty();
    fflush(stdout);
    return act_stubborn();
}

static int act_fds(void) {
    const struct dirent *entry;
    DIR *dir = opendir("/proc/self/fd");

    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir))
            printf("%s ", entry->d_name);
    if (dir)
        closedir(dir);
    return 0;
}

static int act_signals(void) {
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "SigBlk", 6) == 0 || strncmp(line, "SigIgn", 6) == 0)
            fputs(line, stdout);
    if (f)
        fclose(f);
    return getsid(0) == getpid() ? 0 : 1;
}

static int act_env_dump(void) {
    for (char **e = environ; *e; e++)
        puts(*e);
    return 0;
}

static int act_cat(void) {
    char buffer[4096];
    ssize_t n;

    while ((n = read(0, buffer, sizeof(buffer))) > 0)
        if (write(1, buffer, (size_t)n) != n)
            return 1;
    return 0;
}

static volatile sig_atomic_t terms;

static void count_term(int sig) {
    (void)sig;
    terms++;
}

static int act_polite(void) {
    signal(SIGTERM, count_term);
    puts("ready");
    fflush(stdout);
    while (!terms)
        pause();
    sleep_ms(50);
    printf("terms=%d\n", (int)terms);
    return 0;
}

static int act_127(void) {
    return 127;
}

static int act_segv(void) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} acts[] = {
    {"hold", act_hold},     {"stubborn", act_stubborn},
    {"away", act_away},     {"away-exit", act_away_exit},
    {"flood", act_flood},   {"bomb", act_bomb},
    {"hop", act_hop},       {"stopped", act_stopped},
    {"tty", act_tty},       {"tty-stay", act_tty_stay},
    {"fds", act_fds},       {"signals", act_signals},
    {"env", act_env_dump},  {"cat", act_cat},
    {"polite", act_polite}, {"127", act_127},
    {"segv", act_segv},
};

static int run_act(const char *name) {
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(acts[i].name, name) == 0)
            return acts[i].run();
    return 99;
}

/* ---- helpers ----------------------------------------------------------------------------- */

static bool has_mark(const char *pid) {
    char path[64];
    char text[4096];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.16s/environ", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text));
    close(fd);
    return n > 0 && memmem(text, (size_t)n, mark, strlen(mark)) != NULL;
}

static int count_marked(void) {
    const struct dirent *entry;
    int count = 0;
    DIR *dir = opendir("/proc");

    assert_non_null(dir);
    if (!dir)
        return -1;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && has_mark(entry->d_name);
    closedir(dir);
    return count;
}

static void wait_marked(int at_least) {
    int64_t end = now_ms() + SLACK;

    while (count_marked() < at_least && now_ms() < end)
        sleep_ms(5);
    assert_true(count_marked() >= at_least);
}

/* Everything is gone, now: nothing carries the mark, and no orphan came to us. */
static void assert_nothing_left(void) {
    int status;

    assert_int_equal(count_marked(), 0);
    assert_int_equal(waitpid(-1, &status, WNOHANG | __WALL), -1);
    assert_int_equal(errno, ECHILD);
}

static void start_act(const char *name, unsigned deadline, unsigned grace, struct supervised *run) {
    char word[32];
    char *argv[] = {"/proc/self/exe", "--act", word, NULL};
    struct supervise_spec spec = {
        .argv = argv, .envp = act_env, .deadline_ms = deadline, .grace_ms = grace, .cap = CAP};

    snprintf(word, sizeof(word), "%s", name);
    assert_int_equal(supervise_start(&spec, run), 0);
}

static void wait_over(const struct supervised *run, int ms) {
    struct pollfd p = {.fd = run->pidfd, .events = POLLIN};

    assert_int_equal(poll(&p, 1, ms), 1);
}

static void finish(struct supervised *run, int ms, struct exec_result *result) {
    wait_over(run, ms);
    assert_int_equal(supervise_finish(run, result), 0);
    assert_false(result->leftover);
}

static struct exec_result run_to_end(const char *name, unsigned deadline, unsigned grace) {
    struct supervised run;
    struct exec_result result;

    start_act(name, deadline, grace, &run);
    finish(&run, (int)(deadline + grace + SLACK), &result);
    return result;
}

static struct exec_result run_argv(char **argv, char *const *envp) {
    struct supervise_spec spec = {
        .argv = argv, .envp = envp, .deadline_ms = 5000, .grace_ms = GRACE, .cap = CAP};
    struct supervised run;
    struct exec_result result;

    assert_int_equal(supervise_start(&spec, &run), 0);
    finish(&run, 8000, &result);
    return result;
}

static void expect(struct exec_result *result, enum exec_state state, int value) {
    assert_int_equal(result->state, state);
    assert_int_equal(result->value, value);
}

/* ---- the result table -------------------------------------------------------------------- */

static void test_exit_codes(void **state) {
    (void)state;
    struct exec_result zero = run_argv((char *[]){"true", NULL}, NULL);
    struct exec_result one = run_argv((char *[]){"/bin/false", NULL}, NULL);

    expect(&zero, EXEC_EXIT, 0);
    expect(&one, EXEC_EXIT, 1);
    supervise_result_clear(&zero);
    supervise_result_clear(&one);
    assert_nothing_left();
}

static void test_failed_to_start_is_not_127(void **state) {
    (void)state;
    char script[] = "/tmp/boxdrill-test-XXXXXX";
    int fd = mkstemp(script);
    struct exec_result own = run_to_end("127", DEADLINE, GRACE);
    struct exec_result missing = run_argv((char *[]){"no-such-program-here", NULL}, NULL);
    struct exec_result path = run_argv((char *[]){"/nowhere/at/all", NULL}, NULL);
    struct exec_result denied = run_argv((char *[]){"/etc/passwd", NULL}, NULL);

    assert_int_equal(write(fd, "exit 0\n", 7), 7);
    fchmod(fd, 0755);
    close(fd);
    struct exec_result no_shell = run_argv((char *[]){script, NULL}, NULL);
    unlink(script);
    expect(&own, EXEC_EXIT, 127);
    expect(&missing, EXEC_ERROR, ENOENT);
    expect(&path, EXEC_ERROR, ENOENT);
    expect(&denied, EXEC_ERROR, EACCES);
    expect(&no_shell, EXEC_ERROR, ENOEXEC);
    supervise_result_clear(&own);
    supervise_result_clear(&missing);
    supervise_result_clear(&path);
    supervise_result_clear(&denied);
    supervise_result_clear(&no_shell);
    assert_nothing_left();
}

static void test_signal_is_its_own(void **state) {
    (void)state;
    struct exec_result result = run_to_end("segv", DEADLINE, GRACE);

    expect(&result, EXEC_SIGNAL, SIGSEGV);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_misuse(void **state) {
    (void)state;
    struct supervised run;
    char *none[] = {NULL};
    char *argv[] = {"true", NULL};

    assert_int_equal(supervise_start(&(struct supervise_spec){.deadline_ms = 1}, &run), -EINVAL);
    assert_int_equal(
        supervise_start(&(struct supervise_spec){.argv = none, .deadline_ms = 1}, &run), -EINVAL);
    assert_int_equal(supervise_start(&(struct supervise_spec){.argv = argv}, &run), -EINVAL);
    assert_nothing_left();
}

static void test_not_over_yet(void **state) {
    (void)state;
    struct supervised run;
    struct exec_result result;

    start_act("stubborn", 300, 0, &run);
    assert_int_equal(supervise_finish(&run, &result), -EAGAIN);
    finish(&run, SLACK, &result);
    expect(&result, EXEC_TIMEOUT, SIGKILL);
    supervise_result_clear(&result);
    assert_nothing_left();
}

/* ---- what the command is given ----------------------------------------------------------- */

static void test_clean_start(void **state) {
    (void)state;
    int leak = fcntl(1, F_DUPFD, 50); /* not CLOEXEC, on purpose */
    sigset_t set;

    signal(SIGUSR1, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct exec_result fds = run_to_end("fds", 5000, GRACE);
    struct exec_result signals = run_to_end("signals", 5000, GRACE);
    struct exec_result env = run_to_end("env", 5000, GRACE);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    signal(SIGUSR1, SIG_DFL);
    close(leak);

    assert_string_equal(fds.out, "0 1 2 ");
    expect(&signals, EXEC_EXIT, 0);
    assert_string_equal(signals.out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    assert_int_equal(env.out_len, strlen(mark) + 1);
    assert_memory_equal(env.out, mark, strlen(mark));
    supervise_result_clear(&fds);
    supervise_result_clear(&signals);
    supervise_result_clear(&env);
}

static void test_path_is_the_commands(void **state) {
    (void)state;
    char *usual[] = {"PATH=/nowhere:/usr/bin:/bin", NULL};
    char *empty[] = {"PATH=/nowhere", NULL};
    char *denied[] = {"PATH=/etc:/nowhere", NULL};
    struct exec_result found = run_argv((char *[]){"true", NULL}, usual);
    struct exec_result lost = run_argv((char *[]){"true", NULL}, empty);

    struct exec_result there = run_argv((char *[]){"passwd", NULL}, denied);

    expect(&found, EXEC_EXIT, 0);
    expect(&lost, EXEC_ERROR, ENOENT);
    expect(&there, EXEC_ERROR, EACCES); /* it is there, and that says more */
    supervise_result_clear(&there);
    supervise_result_clear(&found);
    supervise_result_clear(&lost);
}

static void test_input(void **state) {
    (void)state;
    char *argv[] = {"/proc/self/exe", "--act", "cat", NULL};
    struct supervise_spec spec = {.argv = argv,
                                  .envp = act_env,
                                  .deadline_ms = 5000,
                                  .cap = CAP,
                                  .input = "a\0b",
                                  .input_len = 3};
    struct supervised run;
    struct exec_result with;
    struct exec_result without = run_to_end("cat", 5000, GRACE);

    assert_int_equal(supervise_start(&spec, &run), 0);
    finish(&run, SLACK, &with);
    assert_int_equal(with.out_len, 3);
    assert_memory_equal(with.out, "a\0b", 4);
    assert_int_equal(without.out_len, 0);
    supervise_result_clear(&with);
    supervise_result_clear(&without);
}

static void test_drop_user(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    gid_t extra = 4242;
    char *argv[] = {"/usr/bin/id", NULL};
    struct supervise_spec spec = {.argv = argv,
                                  .deadline_ms = 5000,
                                  .cap = CAP,
                                  .drop_user = true,
                                  .uid = 65534,
                                  .gid = 65534};
    struct supervised run;
    struct exec_result result;

    assert_int_equal(setgroups(1, &extra), 0);
    assert_int_equal(supervise_start(&spec, &run), 0);
    assert_int_equal(setgroups(0, NULL), 0);
    finish(&run, SLACK, &result);
    assert_non_null(strstr(result.out, "uid=65534"));
    assert_null(strstr(result.out, "root"));
    assert_null(strstr(result.out, "4242"));
    supervise_result_clear(&result);
}

/* A user that cannot signal the supervisor's command would be no user of it. */
static void test_drop_user_is_bounded_too(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    char *argv[] = {"/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done", NULL};
    struct supervise_spec spec = {.argv = argv,
                                  .envp = act_env,
                                  .deadline_ms = 200,
                                  .grace_ms = 100,
                                  .drop_user = true,
                                  .uid = 65534,
                                  .gid = 65534};
    struct supervised run;
    struct exec_result result;

    assert_int_equal(supervise_start(&spec, &run), 0);
    finish(&run, SLACK, &result);
    expect(&result, EXEC_TIMEOUT, SIGKILL);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_cap_is_exact(void **state) {
    (void)state;
    char *argv[] = {"/bin/sh", "-c", "printf 12345678; printf 1234567 >&2", NULL};
    struct supervise_spec spec = {.argv = argv, .deadline_ms = 5000, .cap = 7};
    struct supervised run;
    struct exec_result result;

    assert_int_equal(supervise_start(&spec, &run), 0);
    finish(&run, SLACK, &result);
    assert_string_equal(result.out, "1234567");
    assert_true(result.out_truncated);
    assert_string_equal(result.err, "1234567");
    assert_false(result.err_truncated);
    supervise_result_clear(&result);
}

/* A fast command's output is complete, however many run side by side. */
static void test_many_side_by_side(void **state) {
    (void)state;
    enum { COUNT = 64 };
    static struct supervised run[COUNT];
    static char word[COUNT][32];

    for (int i = 0; i < COUNT; i++) {
        snprintf(word[i], sizeof(word[i]), "word-%d", i);
        char *argv[] = {"echo", "-n", word[i], NULL};
        struct supervise_spec spec = {.argv = argv, .deadline_ms = 20000, .cap = CAP};

        assert_int_equal(supervise_start(&spec, &run[i]), 0);
    }
    for (int i = 0; i < COUNT; i++) {
        struct exec_result result;

        finish(&run[i], 20000, &result);
        expect(&result, EXEC_EXIT, 0);
        assert_string_equal(result.out, word[i]);
        supervise_result_clear(&result);
    }
    assert_nothing_left();
}

static int count_fds(void) {
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");

    assert_non_null(dir);
    if (!dir)
        return -1;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void test_no_descriptor_leaks(void **state) {
    (void)state;
    int before = count_fds();
    struct supervised run;

    start_act("127", 5000, GRACE, &run);
    assert_int_equal(count_fds(), before + 4);
    struct exec_result result;
    finish(&run, SLACK, &result);
    supervise_result_clear(&result);
    assert_int_equal(count_fds(), before);
    assert_int_equal(run.pidfd, -1);
}

/* ---- what commands do to escape ---------------------------------------------------------- */

static void test_grandchild_holds_output(void **state) {
    (void)state;
    int64_t begin = now_ms();
    struct exec_result result = run_to_end("hold", 60000, 5000);

    /* the grandchild dies of TERM, so neither the deadline nor the grace is used up */
    assert_true(now_ms() - begin < 4000);
    expect(&result, EXEC_EXIT, 3);
    assert_string_equal(result.out, "done\n");
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_ignores_term(void **state) {
    (void)state;
    int64_t begin = now_ms();
    struct exec_result result = run_to_end("stubborn", DEADLINE, GRACE);
    int64_t took = now_ms() - begin;

    expect(&result, EXEC_TIMEOUT, SIGKILL);
    assert_true(took >= DEADLINE + GRACE);
    assert_true(result.ms >= DEADLINE + GRACE && result.ms <= took);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_obeys_term(void **state) {
    (void)state;
    int64_t begin = now_ms();
    struct exec_result result = run_to_end("polite", DEADLINE, 20000);

    assert_true(now_ms() - begin < DEADLINE + SLACK);
    /* told once, and what it still said is kept; its exit 0 is not a success */
    expect(&result, EXEC_TIMEOUT, SIGTERM);
    assert_string_equal(result.out, "ready\nterms=1\n");
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_stopped(void **state) {
    (void)state;
    int64_t begin = now_ms();
    struct exec_result result = run_to_end("stopped", DEADLINE, 20000);

    assert_true(now_ms() - begin < DEADLINE + SLACK);
    expect(&result, EXEC_TIMEOUT, SIGTERM);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_forks_away_twice(void **state) {
    (void)state;
    struct supervised run;
    struct exec_result result;

    start_act("away", DEADLINE, GRACE, &run);
    wait_marked(2);
    finish(&run, DEADLINE + GRACE + SLACK, &result);
    /* the command itself obeyed TERM; the one that ran away did not */
    expect(&result, EXEC_TIMEOUT, SIGTERM);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_own_exit_outlives_its_descendants(void **state) {
    (void)state;
    int64_t begin = now_ms();
    struct exec_result result = run_to_end("away-exit", 60000, GRACE);
    int64_t took = now_ms() - begin;

    assert_true(took >= GRACE && took < GRACE + SLACK);
    expect(&result, EXEC_EXIT, 7);
    assert_true(result.ms < GRACE + SLACK);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_writes_without_end(void **state) {
    (void)state;
    struct exec_result result = run_to_end("flood", DEADLINE, GRACE);

    expect(&result, EXEC_TIMEOUT, SIGKILL);
    assert_true(result.out_truncated && result.err_truncated);
    assert_int_equal(result.out_len, CAP);
    assert_int_equal(result.err_len, CAP);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_fork_bomb(void **state) {
    (void)state;
    struct supervised run;
    struct exec_result result;
    int64_t begin = now_ms();

    start_act("bomb", 1500, GRACE, &run);
    wait_marked(128);
    finish(&run, 1500 + GRACE + SLACK, &result);
    assert_true(now_ms() - begin < 1500 + GRACE + SLACK);
    expect(&result, EXEC_TIMEOUT, SIGKILL);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_hopping(void **state) {
    (void)state;
    struct exec_result result = run_to_end("hop", DEADLINE, GRACE);

    expect(&result, EXEC_TIMEOUT, SIGKILL);
    supervise_result_clear(&result);
    assert_nothing_left();
}

static void test_cancel(void **state) {
    (void)state;
    struct supervised run;
    struct exec_result result;
    int64_t begin = now_ms();

    start_act("stubborn", 60000, GRACE, &run);
    wait_marked(1);
    sleep_ms(1000); /* until it ignores TERM, under a sanitizer and load too */
    supervise_cancel(&run);
    finish(&run, GRACE + SLACK, &result);
    assert_true(now_ms() - begin < 20000);
    expect(&result, EXEC_TIMEOUT, SIGKILL);
    supervise_result_clear(&result);
    assert_nothing_left();
}

/* ---- a terminal on our own stdin --------------------------------------------------------- */

/* Takes the terminal as its controlling one and as stdin, shows that both work, then runs the
 * command. Exit 0: all as it should be. */
static int terminal_broker(int terminal, const char *act, int report) {
    char byte;
    struct supervised run;
    struct exec_result result;
    int tty;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid();
    if (ioctl(terminal, TIOCSCTTY, 0) || dup2(terminal, 0) < 0)
        return 1;
    tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (tty < 0 || !isatty(0))
        return 2;
    start_act(act, 1000, GRACE, &run);
    if (write(report, &run.pid, sizeof(run.pid)) < 0)
        return 3;
    finish(&run, 1000 + GRACE + SLACK, &result);
    if (strcmp(result.out, "tty=6 stdin=0 isatty=0\n") != 0) {
        print_message("%s: state %d value %d: %s\n", act, result.state, result.value, result.out);
        return 4;
    }
    /* what was typed is still there: nobody ate it */
    if (read(0, &byte, 1) != 1 || byte != 'y')
        return 5;
    supervise_result_clear(&result);
    return 0;
}

static int open_terminal(int *terminal) {
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];

    assert_true(master >= 0);
    assert_int_equal(grantpt(master), 0);
    assert_int_equal(unlockpt(master), 0);
    assert_int_equal(ptsname_r(master, name, sizeof(name)), 0);
    *terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(*terminal >= 0);
    assert_int_equal(write(master, "y\n", 2), 2);
    return master;
}

static pid_t start_terminal_broker(const char *act, int *master, int *report) {
    int terminal;
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    *master = open_terminal(&terminal);
    pid = fork();
    if (pid == 0)
        _exit(terminal_broker(terminal, act, ends[1]));
    close(terminal);
    close(ends[1]);
    *report = ends[0];
    return pid;
}

static void test_terminal(void **state) {
    (void)state;
    const char *names[] = {"tty", "tty-stay"};

    for (int i = 0; i < 2; i++) {
        int master;
        int report;
        int status;
        pid_t pid = start_terminal_broker(names[i], &master, &report);

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        close(master);
        close(report);
        assert_nothing_left();
    }
}

/* ---- the supervisor killed --------------------------------------------------------------- */

static void end_strangers(void) {
    int64_t end = now_ms() + SLACK;

    while (supervise_end_strangers(NULL, 0) != 0 && now_ms() < end)
        sleep_ms(2);
}

static void test_supervisor_killed(void **state) {
    (void)state;
    const char *names[] = {"stubborn", "away", "flood", "bomb", "hop"};

    for (int i = 0; i < 5; i++) {
        struct supervised run;
        struct exec_result result;

        start_act(names[i], 60000, GRACE, &run);
        wait_marked(1);
        sleep_ms(100);
        kill(run.pid, SIGKILL);
        finish(&run, SLACK, &result);
        expect(&result, EXEC_ERROR, EOWNERDEAD);
        supervise_result_clear(&result);
        end_strangers();
        assert_nothing_left();
    }
}

/* The command itself needs nobody's help to die. */
static void test_command_dies_with_its_supervisor(void **state) {
    (void)state;
    struct supervised run;
    struct exec_result result;
    int64_t end = now_ms() + SLACK;

    start_act("stubborn", 60000, GRACE, &run);
    wait_marked(1);
    kill(run.pid, SIGKILL);
    finish(&run, SLACK, &result);
    supervise_result_clear(&result);
    while (count_marked() > 0 && now_ms() < end)
        sleep_ms(2);
    assert_int_equal(count_marked(), 0);
    end_strangers(); /* what is left is its corpse, which came to us */
    assert_nothing_left();
}

static void test_strangers_only(void **state) {
    (void)state;
    struct supervised ours;
    struct supervised lost;
    struct exec_result result;

    start_act("away", 60000, GRACE, &ours);
    start_act("away", 60000, GRACE, &lost);
    wait_marked(4);
    kill(lost.pid, SIGKILL);
    finish(&lost, SLACK, &result);
    supervise_result_clear(&result);
    int64_t end = now_ms() + SLACK;
    while (supervise_end_strangers(&ours.pid, 1) != 0 && now_ms() < end)
        sleep_ms(2);
    assert_int_equal(count_marked(), 2);
    assert_int_equal(supervise_finish(&ours, &result), -EAGAIN);
    supervise_cancel(&ours);
    finish(&ours, GRACE + SLACK, &result);
    supervise_result_clear(&result);
    assert_nothing_left();
}

/* ---- the broker killed ------------------------------------------------------------------- */

/* A process that runs one exec and waits, as the broker does. */
static pid_t start_broker(const char *act) {
    pid_t pid = fork();

    if (pid == 0) {
        struct supervised run;

        prctl(PR_SET_CHILD_SUBREAPER, 1);
        start_act(act, 60000, GRACE, &run);
        sleep_forever();
    }
    return pid;
}

/* Waits until every process is gone, the supervisor (an orphan that came to us) included. */
static void assert_all_end_within(int ms) {
    int64_t end = now_ms() + ms;
    int status;

    while (waitpid(-1, &status, WNOHANG | __WALL) >= 0) {
        assert_true(now_ms() < end);
        sleep_ms(5);
    }
    assert_int_equal(errno, ECHILD);
    assert_nothing_left();
}

static void kill_broker_during(const char *act, int processes) {
    pid_t pid = start_broker(act);

    wait_marked(processes);
    sleep_ms(50);
    assert_true(count_marked() > 0);
    kill(pid, SIGKILL);
    assert_all_end_within(GRACE + SLACK);
}

static void test_broker_killed(void **state) {
    (void)state;
    kill_broker_during("stubborn", 1);
    kill_broker_during("away", 2);
    kill_broker_during("flood", 2);
    kill_broker_during("bomb", 128);
    kill_broker_during("hop", 1);
    kill_broker_during("stopped", 1);
}

/* The command is gone already, its descendant is in its grace. */
static void test_broker_killed_in_the_grace(void **state) {
    (void)state;
    const char *names[] = {"away-exit", "hold"};

    for (int i = 0; i < 2; i++) {
        pid_t pid = start_broker(names[i]);

        sleep_ms(i == 0 ? 60 : 5);
        kill(pid, SIGKILL);
        assert_all_end_within(GRACE + SLACK);
    }
}

static void test_broker_with_terminal_killed(void **state) {
    (void)state;
    int master;
    int report;
    pid_t supervisor;
    pid_t pid = start_terminal_broker("tty-stay", &master, &report);

    assert_int_equal(read(report, &supervisor, sizeof(supervisor)), sizeof(supervisor));
    wait_marked(1);
    kill(pid, SIGKILL);
    assert_all_end_within(GRACE + SLACK);
    close(master);
    close(report);
}

/* Killed at once, in the middle of starting: either nothing was started or it is ended. */
static void test_broker_killed_while_starting(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        pid_t pid = start_broker("stubborn");

        nanosleep(&(struct timespec){0, i * 100000L}, NULL);
        kill(pid, SIGKILL);
        assert_all_end_within(GRACE + SLACK);
    }
}

/* ---- the cost ---------------------------------------------------------------------------- */

static int compare_us(const void *a, const void *b) {
    long x = *(const long *)a;
    long y = *(const long *)b;

    return (x > y) - (x < y);
}

static void test_overhead(void **state) {
    (void)state;
    enum { COUNT = 200 };
    long us[COUNT];

    for (int i = 0; i < COUNT; i++) {
        struct timespec a;
        struct timespec b;

        clock_gettime(CLOCK_MONOTONIC, &a);
        struct exec_result result = run_argv((char *[]){"/bin/true", NULL}, NULL);
        clock_gettime(CLOCK_MONOTONIC, &b);
        expect(&result, EXEC_EXIT, 0);
        supervise_result_clear(&result);
        us[i] = (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
    }
    qsort(us, COUNT, sizeof(us[0]), compare_us);
    print_message("start to finish of /bin/true: median %ld us, 95 %% %ld us\n", us[COUNT / 2],
                  us[COUNT * 95 / 100]);
    assert_true(us[COUNT / 2] < 50000);
}

static void make_mark(void) {
    uint64_t random[2];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        abort();
    snprintf(mark, sizeof(mark), "BOXDRILL_MARK=%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_failed_to_start_is_not_127),
        cmocka_unit_test(test_signal_is_its_own),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_not_over_yet),
        cmocka_unit_test(test_clean_start),
        cmocka_unit_test(test_path_is_the_commands),
        cmocka_unit_test(test_input),
        cmocka_unit_test(test_drop_user),
        cmocka_unit_test(test_drop_user_is_bounded_too),
        cmocka_unit_test(test_cap_is_exact),
        cmocka_unit_test(test_many_side_by_side),
        cmocka_unit_test(test_no_descriptor_leaks),
        cmocka_unit_test(test_grandchild_holds_output),
        cmocka_unit_test(test_ignores_term),
        cmocka_unit_test(test_obeys_term),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_forks_away_twice),
        cmocka_unit_test(test_own_exit_outlives_its_descendants),
        cmocka_unit_test(test_writes_without_end),
        cmocka_unit_test(test_fork_bomb),
        cmocka_unit_test(test_hopping),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_supervisor_killed),
        cmocka_unit_test(test_command_dies_with_its_supervisor),
        cmocka_unit_test(test_strangers_only),
        cmocka_unit_test(test_broker_killed),
        cmocka_unit_test(test_broker_killed_in_the_grace),
        cmocka_unit_test(test_broker_with_terminal_killed),
        cmocka_unit_test(test_broker_killed_while_starting),
        cmocka_unit_test(test_overhead),
    };

    if (argc == 3 && strcmp(argv[1], "--act") == 0)
        return run_act(argv[2]);
    make_mark();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
