/* boxdrill: the command line. */
#define _GNU_SOURCE
#include "broker.h"
#include "ops.h"
#include "output.h"
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEFAULT_SITE "/etc/boxdrill/site.lua"

static const char help[] =
    "usage: boxdrill [OPTION]... SCRIPT [ARG]...\n"
    "\n"
    "Measures, from inside throwaway boxes, whether an Incus host keeps its promise:\n"
    "a box reaches the public internet and nothing else.\n"
    "\n"
    "  boxdrill drill.lua        the audit (boxdrill drill.lua --help)\n"
    "  boxdrill doctor.lua       is this host fit? reads only (boxdrill doctor.lua --help)\n"
    "  boxdrill setup.lua        converge this host to the contract\n"
    "  boxdrill list             the probes\n"
    "  boxdrill run ID|./FILE... single probes, in boxes made for them\n"
    "  boxdrill journal [revert] what an earlier run left behind; remove it\n"
    "  boxdrill ./my.lua         a script of your own (a name with a slash is a file,\n"
    "                            one without is an installed script)\n"
    "\n"
    "options, before or after the script's name:\n"
    "  --json            one JSON object a line (docs/json.md)\n"
    "  --yes             answer yes to every question\n"
    "  --grant NAME      give your own script or probe a grant: box.mint, box.exec,\n"
    "                    box.cli, client, host.connect, host.exec, setup, rehearse,\n"
    "                    witness, box.look\n"
    "  --site FILE       the site's contract, instead of " DEFAULT_SITE "\n"
    "  --box PATH        the box CLI to drill, instead of `box` on PATH\n"
    "  --log FILE        append what a drill found to a run log\n"
    "  --sandbox-selftest  prove the sandbox on this kernel\n"
    "  --help, --version\n"
    "\n"
    "exit status: 0 all passed, 1 something failed, 2 usage, consent or privilege,\n"
    "3 nothing failed but something is unsure, 4 refused to start, 5 something could not\n"
    "be reverted, 130 interrupted and reverted.  NO_COLOR is respected.\n";

_Noreturn __attribute__((format(printf, 1, 2))) static void usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n >= 0)
        output_message("%s (see boxdrill --help)", text);
    free(text);
    exit(STATUS_USAGE);
}

/* PREFIX/bin/boxdrill has its files in PREFIX/share/boxdrill and PREFIX/libexec/boxdrill. */
static void find_installation(void) {
    char self[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        usage("cannot tell where boxdrill is installed: %s", strerror(errno));
    const char *prefix = dirname(dirname(self));
    if (asprintf(&options.share, "%s/share/boxdrill", prefix) < 0 ||
        asprintf(&options.guest, "%s/libexec/boxdrill/guest", prefix) < 0)
        abort();
}

static void give(const char *name) {
    uint32_t grant = grant_find((struct slice){name, strlen(name)});
    if (!grant || !grant_words(grant))
        usage("--grant: no grant '%s'", name);
    options.given |= grant;
}

static const char *value_of(char **argv, int *i) {
    if (!argv[*i + 1])
        usage("%s: needs a value", argv[*i]);
    return argv[++*i];
}

/* Options of ours are taken from anywhere before a lone `--`; the rest is the script's. */
static bool take_option(char **argv, int *i) {
    const char *a = argv[*i];
    if (strcmp(a, "--json") == 0)
        options.json = true;
    else if (strcmp(a, "--yes") == 0)
        options.yes = true;
    else if (strcmp(a, "--site") == 0)
        options.site = strdup(value_of(argv, i));
    else if (strcmp(a, "--box") == 0)
        options.box = strdup(value_of(argv, i));
    else if (strncmp(a, "--box=", 6) == 0)
        options.box = strdup(a + 6);
    else if (strcmp(a, "--log") == 0)
        options.log = value_of(argv, i);
    else if (strncmp(a, "--log=", 6) == 0)
        options.log = a + 6;
    else if (strcmp(a, "--grant") == 0)
        give(value_of(argv, i));
    else if (strncmp(a, "--grant=", 8) == 0)
        give(a + 8);
    else if (strncmp(a, "--site=", 7) == 0)
        options.site = strdup(a + 7);
    else
        return false;
    return true;
}

/* Options that end the program. */
static void take_final(const char *a) {
    if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
        fputs(help, stdout);
        exit(STATUS_OK);
    }
    if (strcmp(a, "--version") == 0) {
        puts("boxdrill " BOXDRILL_VERSION);
        exit(STATUS_OK);
    }
    if (strcmp(a, "--sandbox-selftest") == 0)
        exit(sandbox_selftest());
    usage("unknown option '%s'", a);
}

static char *parse(char **argv) {
    char *script = NULL;
    bool ours = true;
    options.args = argv; /* rewritten in place: it only shrinks */
    for (int i = 1; argv[i]; i++) {
        if (ours && strcmp(argv[i], "--") == 0)
            ours = false;
        else if (ours && take_option(argv, &i))
            continue;
        else if (script)
            options.args[options.nargs++] = argv[i];
        else if (argv[i][0] == '-')
            take_final(argv[i]);
        else
            script = argv[i];
    }
    return script;
}

static void check_site(void) {
    if (!options.site) {
        if (access(DEFAULT_SITE, F_OK) < 0 && errno == ENOENT)
            return;
        options.site = strdup(DEFAULT_SITE);
    }
    if (access(options.site, R_OK) < 0)
        usage("--site: %s: %s", options.site, strerror(errno));
    if (!file_trusted(options.site))
        usage("%s: refused, others than root can write it (chown root, chmod go-w)", options.site);
}

/* What is run as root is nobody else's to change. */
static void check_box(void) {
    if (!options.box)
        return;
    char *path = realpath(options.box, NULL);
    if (!path || access(path, X_OK) < 0)
        usage("--box: %s: %s", options.box, strerror(errno));
    if (!file_trusted(path))
        usage("%s: refused, others than root can write it (chown root, chmod go-w)", path);
    if (options.box[0] != '/')
        options.box = path;
    else
        free(path);
}

static void check_log(void) {
    if (!options.log)
        return;
    int error = *options.log ? log_open(options.log) : -EINVAL;
    if (error < 0)
        usage("--log: %s: %s", options.log,
              error == -ELOOP ? "a symbolic link is not followed" : strerror(-error));
}

/* The installed scripts; the other files beside them are their library, and no scripts. */
static const char *const scripts[] = {"lua/drill",  "lua/run",    "lua/list",    "lua/journal",
                                      "lua/doctor", "host/setup", "host/boxcli", NULL};

/* The path of a script: with a slash a file, else an installed one, with or without ".lua". Free
 * it. */
static char *script_path(const char *name, bool *installed) {
    char *path = NULL;
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".lua") == 0)
        n -= 4;
    *installed = !strchr(name, '/');
    if (!*installed)
        return strdup(name);
    for (size_t i = 0; scripts[i]; i++) {
        const char *script = strchr(scripts[i], '/') + 1;
        if (strlen(script) != n || memcmp(script, name, n) != 0)
            continue;
        if (asprintf(&path, "%s/%s.lua", options.share, scripts[i]) < 0)
            abort();
        return path;
    }
    usage("no script '%s' is installed; a file of your own needs a slash: ./%s", name, name);
}

/* Whether nobody but root (or we) can change what is installed. Only then have its scripts their
 * grants without being asked about. */
static bool installation_trusted(void) {
    static const char *const parts[] = {"",      "/lua",    "/lua/prelude.lua",  "/lua/revert.lua",
                                        "/host", "/probes", "/host/contract.lua"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        snprintf(path, sizeof(path), "%s%s", options.share, parts[i]);
        if (!file_trusted(path))
            return false;
    }
    return file_trusted(options.guest);
}

/* Each command of many side by side takes four descriptors. */
static void raise_descriptors(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = l.rlim_max < 65536 ? l.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

static void choose_run_id(void) {
    unsigned char random[4];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        abort();
    snprintf(run_id, sizeof(run_id), "%02x%02x%02x%02x", random[0], random[1], random[2],
             random[3]);
}

/* Descriptors 0 to 2 are open, so that nothing of ours can take their place. */
static void open_standard(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            abort();
}

int main(int argc, char **argv) {
    (void)argc;
    open_standard();
    raise_descriptors();
    find_installation();
    const char *script = parse(argv);
    if (!script)
        usage("name a script");
    if (!sandbox_seccomp())
        usage("this kernel has no seccomp: there would be no sandbox, so nothing is run");
    options.root = geteuid() == 0;
    options.color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    check_site();
    check_box();
    choose_run_id();
    check_log();
    bool installed = false;
    size_t len = 0;
    char *path = script_path(script, &installed);
    char *source = read_file(path, 2 << 20, &len);
    if (!source)
        usage("%s: %s", path, strerror(errno));
    if (memchr(source, 0, len) || source[0] == '\033')
        usage("%s: not a Lua script (bytecode is never loaded)", path);
    int status = broker_run(installed ? basename(path) : path, source,
                            installed && file_trusted(path) && installation_trusted());
    free(path);
    return status;
}
