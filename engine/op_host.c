/* What the host itself says: addresses, facts, its nft ruleset. Read-only, fixed arguments. */
#define _GNU_SOURCE
#include "job.h"
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { READ_MS = 10000 };

void op_host_addresses(struct request *r) {
    job_read(r, (char *[]){"ip", "-j", "address", NULL}, NULL, READ_MS);
}

void op_nft_list(struct request *r) {
    job_read(r, (char *[]){"nft", "-j", "list", "ruleset", NULL}, NULL, READ_MS);
}

static void on_checked(struct request *r, const struct exec_result *result, int error) {
    if (!result || result->state != EXEC_EXIT) {
        job_reply_output(r, result, error);
        return;
    }
    reply_begin(r);
    reply_add_text(r, result->value == 0 ? "1" : "0");
    reply_send(r);
}

/* nft.supports ibrname: whether the bridge family knows `meta ibrname` (NFT_BRIDGE_META), asked of
 * the kernel with --check, which applies nothing. */
void op_nft_supports(struct request *r) {
    static const char rules[] = "table bridge boxdrill-check {\n"
                                "  chain c { type filter hook forward priority 0; meta ibrname "
                                "\"lo\" drop; }\n}\n";
    if (slice_is(arg(r, 0), "ibrname"))
        job_run(r, (char *[]){"nft", "--check", "-f", "-", NULL}, rules, READ_MS, on_checked);
    else
        reply_error(r, "EINVAL", "nft.supports: knows only 'ibrname'");
}

static void add_fact(struct request *r, const char *name, const char *value) {
    reply_add_text(r, name);
    reply_add_text(r, value);
}

static void add_file(struct request *r, const char *name, const char *path) {
    size_t len = 0;
    char *text = read_file(path, 4096, &len);
    if (text)
        text[strcspn(text, "\n")] = 0;
    add_fact(r, name, text ? text : "");
    free(text);
}

/* host.facts: a fact that cannot be read is empty. */
void op_host_facts(struct request *r) {
    struct utsname u;
    if (uname(&u) < 0)
        memset(&u, 0, sizeof(u));
    reply_begin(r);
    add_fact(r, "hostname", u.nodename);
    add_fact(r, "kernel", u.release);
    add_fact(r, "kvm", access("/dev/kvm", F_OK) == 0 ? "1" : "0");
    add_file(r, "icmp_echo_ignore_all", "/proc/sys/net/ipv4/icmp_echo_ignore_all");
    reply_send(r);
}
