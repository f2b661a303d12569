/* What the host itself says: its addresses, its routes, and facts. Read-only. */
#define _GNU_SOURCE
#include "incus.h"
#include "job.h"
#include "ops.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { READ_MS = 10000 };

void op_host_addresses(struct request *r) {
    job_read(r, (char *[]){"ip", "-j", "address", NULL}, NULL, READ_MS);
}

/* Of every table, so that a VPN's own are seen too. */
void op_host_routes(struct request *r) {
    job_read(r, (char *[]){"ip", "-4", "-j", "route", "show", "table", "all", NULL}, NULL, READ_MS);
}

/* Who is connected to incusd. */
void op_host_clients(struct request *r) {
    job_read(r, (char *[]){"ss", "-x", "-n", "-H", "src", (char *)incus_socket(), NULL}, NULL,
             READ_MS);
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

/* MiB that were free for new work (MemAvailable) when the run first asked: all its workers share
 * one figure, whatever the boxes have taken since. Empty where it cannot be read. */
static const char *free_memory(void) {
    static char text[24];
    if (text[0])
        return text;
    size_t len = 0;
    char *all = read_file("/proc/meminfo", 16384, &len);
    const char *line = all ? strstr(all, "MemAvailable:") : NULL;
    if (line)
        snprintf(text, sizeof(text), "%lld",
                 strtoll(line + strlen("MemAvailable:"), NULL, 10) / 1024);
    free(all);
    return text;
}

/* The longest time between two ARP requests for one neighbour on any link, in ms (retrans_time_ms).
 * Empty where it cannot be read. */
static const char *arp_retry(void) {
    static char text[24];
    glob_t found;
    long long most = 0;
    text[0] = 0;
    if (glob("/proc/sys/net/ipv4/neigh/*/retrans_time_ms", 0, NULL, &found) != 0)
        return text;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        size_t len = 0;
        char *one = read_file(found.gl_pathv[i], 64, &len);
        long long ms = one ? strtoll(one, NULL, 10) : 0;
        most = ms > most ? ms : most;
        free(one);
    }
    globfree(&found);
    if (most > 0)
        snprintf(text, sizeof(text), "%lld", most);
    return text;
}

/* host.facts: a fact that cannot be read is empty. */
void op_host_facts(struct request *r) {
    struct utsname u;
    if (uname(&u) < 0)
        memset(&u, 0, sizeof(u));
    reply_begin(r);
    add_fact(r, "boxdrill", BOXDRILL_VERSION);
    add_fact(r, "hostname", u.nodename);
    add_fact(r, "kernel", u.release);
    add_fact(r, "kvm", access("/dev/kvm", F_OK) == 0 ? "1" : "0");
    add_fact(r, "free_memory", free_memory());
    add_fact(r, "arp_retry_ms", arp_retry());
    add_file(r, "ip_forward", "/proc/sys/net/ipv4/ip_forward");
    add_file(r, "icmp_echo_ignore_all", "/proc/sys/net/ipv4/icmp_echo_ignore_all");
    reply_send(r);
}
