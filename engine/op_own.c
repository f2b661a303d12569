/* Networks, ACLs and profiles of this run's own, for rehearsals: named and tagged after the run,
 * noted before they are asked for, and removed at its end. Anybody else's is refused by name. */
#define _GNU_SOURCE
#include "job.h"
#include "json.h"
#include "made.h"
#include "op_incus.h"
#include "ops.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_MS = 10000, WRITE_MS = 60000, LINK_NAME = 15, ETAG = 64 };

/* The KIND of "own.KIND.VERB". */
static const char *kind_of(const struct request *r) {
    static const char *const kinds[] = {"network", "acl", "profile"};
    const char *rest = r->op->name + strlen("own.");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strncmp(rest, kinds[i], strlen(kinds[i])) == 0)
            return kinds[i];
    return "";
}

static void send_change(struct request *r, const char *method, const struct buffer *body,
                        const char *etag) {
    char *path = incus_path(r, r->op->path);
    if (!path)
        return;
    broker_changing(1);
    incus_send(&(struct incus_request){.method = method,
                                       .path = path,
                                       .body = body ? body->data : NULL,
                                       .body_len = body ? body->len : 0,
                                       .if_match = etag,
                                       .timeout_ms = WRITE_MS,
                                       .wait = true},
               incus_written, r);
    free(path);
}

/* The body's members from the arguments from `first` on, with the run's tag. */
static bool add_body(struct request *r, struct buffer *body, unsigned first) {
    const struct slice tag[] = {
        {"config", 6}, {"", 0}, {"user.boxdrill", 13}, {run_id, strlen(run_id)}};
    if (!incus_body(r, body, first, r->op->body, tag))
        return false;
    buffer_add_text(body, "}");
    return true;
}

/* own.KIND.create PROJECT NAME BODY */
void op_own_create(struct request *r) {
    const char *kind = kind_of(r);
    bool network = strcmp(kind, "network") == 0;
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return;
    if (!box_name_is_ours(arg(r, 1)) || (network && arg(r, 1).len > LINK_NAME)) {
        reply_error(r, "EINVAL", "%s: the name must begin with bd-%s-%s", r->op->name, run_id,
                    network ? ", and be at most 15 long" : "");
        return;
    }
    if (made_has(kind, arg(r, 0), arg(r, 1))) {
        reply_error(r, "EEXIST", "%s: this run has made '%.*s' already", r->op->name,
                    (int)arg(r, 1).len, arg(r, 1).data);
        return;
    }
    struct buffer body = {0};
    buffer_add_text(&body, network ? "{\"type\":\"bridge\",\"name\":" : "{\"name\":");
    json_string(&body, arg(r, 1));
    buffer_add_text(&body, ",");
    if (add_body(r, &body, 2)) {
        int error = made_add(kind, arg(r, 0), arg(r, 1), r->worker->pid);
        if (error < 0)
            reply_errno(r, -error, "own: not made, since the journal cannot be written");
        else
            send_change(r, "POST", &body, NULL);
    }
    buffer_free(&body);
}

bool own_may_touch(const struct worker *w, const char *kind, struct slice project,
                   struct slice name) {
    return w->kind == KIND_PROBE ? made_by(kind, project, name, w->pid)
                                 : made_has(kind, project, name);
}

/* -- what may be in a body -----------------------------------------------------------------------
 */

/* A network of our own: nothing that reaches beyond its bridge (host routes, gateways, tunnels,
 * other links, somebody else's source address). It is written back whole, with what Incus noted. */
static const char *const network_keys[] = {
    "ipv4.address", "ipv4.dhcp*", "ipv4.nat",      "ipv4.firewall",  "ipv6.address",
    "ipv6.dhcp*",   "ipv6.nat",   "ipv6.firewall", "dns.mode",       "dns.domain",
    "dns.search",   "bridge.mtu", "raw.dnsmasq",   "security.acls*", "volatile.*",
    "user.*",       NULL};
static const char *const nic_keys[] = {"type",
                                       "name",
                                       "network",
                                       "security.port_isolation",
                                       "security.mac_filtering",
                                       "security.ipv4_filtering",
                                       "security.ipv6_filtering",
                                       "limits.ingress",
                                       "limits.egress",
                                       "limits.max",
                                       NULL};

const char *own_nic_refusal(const struct request *r, struct slice key, struct slice value) {
    if (slice_is(key, "type"))
        return slice_is(value, "nic") ? NULL : "the type is nic";
    if (slice_is(key, "network"))
        return own_may_touch(r->worker, "network", arg(r, 0), value) ||
                       live_may_touch(arg(r, 0), value)
                   ? NULL
                   : "this run made no such network";
    return incus_key_listed(nic_keys, key) ? NULL : "boxdrill does not write that key here";
}

static const char *acls_refusal(const struct request *r, struct slice list) {
    for (const char *at = list.data, *end = at + list.len; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t n = comma ? (size_t)(comma - at) : (size_t)(end - at);
        if (!own_may_touch(r->worker, "acl", arg(r, 0), (struct slice){at, n}))
            return "only ACLs that this run made";
        at += n + 1;
    }
    return NULL;
}

static uint32_t mask_of(unsigned bits) {
    return bits ? UINT32_MAX << (32 - bits) : 0;
}

/* "A.B.C.D/BITS": the address in host order. */
static bool parse_subnet(struct slice s, uint32_t *address, unsigned *bits) {
    char text[20] = "", end = 0;
    struct in_addr in;
    if (s.len >= sizeof(text))
        return false;
    memcpy(text, s.data, s.len);
    char *slash = strchr(text, '/');
    if (!slash || sscanf(slash + 1, "%2u%c", bits, &end) != 1 || *bits > 32)
        return false;
    *slash = 0;
    if (inet_pton(AF_INET, text, &in) != 1)
        return false;
    *address = ntohl(in.s_addr);
    return true;
}

static bool is_private(uint32_t address) {
    return (address & mask_of(8)) == 0x0a000000 || (address & mask_of(12)) == 0xac100000 ||
           (address & mask_of(16)) == 0xc0a80000;
}

/* Whether a link of the host, but for this one, has an address whose subnet overlaps. */
static bool is_taken(struct slice link, uint32_t address, unsigned bits) {
    struct ifaddrs *all = NULL;
    bool taken = false;
    if (getifaddrs(&all) < 0)
        return true;
    for (const struct ifaddrs *i = all; i && !taken; i = i->ifa_next) {
        struct sockaddr_in other, mask;
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET ||
            slice_is(link, i->ifa_name))
            continue;
        memcpy(&other, i->ifa_addr, sizeof(other));
        memcpy(&mask, i->ifa_netmask, sizeof(mask));
        uint32_t both = mask_of(bits) & ntohl(mask.sin_addr.s_addr);
        taken = ((address ^ ntohl(other.sin_addr.s_addr)) & both) == 0;
    }
    freeifaddrs(all);
    return taken;
}

/* The address a bridge of ours has is one of the host's: it must take no route from it. A probe has
 * the subnet that was chosen for it; a script a small private one that no link of the host has. */
static const char *ipv4_refusal(const struct request *r, struct slice value) {
    uint32_t address = 0;
    unsigned bits = 0;
    const struct worker *w = r->worker;
    if (slice_is(value, "none"))
        return NULL;
    for (unsigned i = 0; w->kind == KIND_PROBE && i < w->nboxes; i++)
        if (slice_is(value, w->boxes[i]))
            return NULL;
    if (w->kind == KIND_PROBE)
        return "only the subnet that this probe was given";
    if (!parse_subnet(value, &address, &bits) || bits < 24 || bits > 30 || !is_private(address))
        return "only a private subnet of /24 to /30";
    return is_taken(arg(r, 1), address, bits) ? "that subnet is in use on this host" : NULL;
}

const char *own_network_refusal(const struct request *r, struct slice key, struct slice value) {
    if (!incus_key_listed(network_keys, key))
        return "boxdrill does not write that key here";
    if (slice_is(key, "ipv4.address"))
        return ipv4_refusal(r, value);
    if (slice_is(key, "ipv6.address"))
        return slice_is(value, "none") || slice_is(value, "auto") ||
                       (value.len > 2 && memcmp(value.data, "fd", 2) == 0)
                   ? NULL
                   : "only none, auto, or a unique local one (fd...)";
    return slice_is(key, "security.acls") ? acls_refusal(r, value) : NULL;
}

/* -- changing and deleting ------------------------------------------------------------------------
 */

static bool ours(struct request *r) {
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return false;
    if (own_may_touch(r->worker, kind_of(r), arg(r, 0), arg(r, 1)))
        return true;
    reply_error(r, "EPERM", "%s: '%.*s' was not made by this run, and is left alone", r->op->name,
                (int)arg(r, 1).len, arg(r, 1).data);
    return false;
}

/* own.KIND.put PROJECT NAME ETAG BODY: the whole body, guarded by the ETag. */
void op_own_put(struct request *r) {
    if (!ours(r) || !incus_etag_ok(r, 2))
        return;
    if (arg(r, 2).len < ETAG) {
        reply_error(r, "EINVAL", "%s: it is not written without the ETag of what was read",
                    r->op->name);
        return;
    }
    struct buffer body = {0};
    buffer_add_text(&body, "{");
    char *etag = arg_text(r, 2);
    if (add_body(r, &body, 3))
        send_change(r, "PUT", &body, etag);
    free(etag);
    buffer_free(&body);
}

/* Whether a process is the dnsmasq of a network of that name. */
static bool serves(const char *pid, struct slice name) {
    char path[64], option[96];
    size_t len = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
    int n = snprintf(option, sizeof(option), "--interface=%.*s", (int)name.len, name.data);
    char *argv = read_file(path, 1 << 16, &len); /* each word ends with a NUL */
    bool found = argv && strcmp(basename(argv), "dnsmasq") == 0 &&
                 memmem(argv, len, option, (size_t)n + 1) != NULL;
    free(argv);
    return found;
}

/* incusd notes a dnsmasq's pid after it has started it. Where it dies between the two, or starts
 * one while the network is being deleted, nobody ends that one: it is told by the network's name.
 */
static void end_dnsmasq(struct slice name) {
    DIR *all = opendir("/proc");
    for (struct dirent *e = all ? readdir(all) : NULL; e; e = readdir(all))
        if (isdigit((unsigned char)e->d_name[0]) && serves(e->d_name, name))
            kill((pid_t)atoi(e->d_name), SIGKILL);
    if (all)
        closedir(all);
}

static void on_gone(const struct request *r) {
    if (strcmp(kind_of(r), "network") == 0)
        end_dnsmasq(arg(r, 1));
}

/* own.KIND.delete PROJECT NAME */
void op_own_delete(struct request *r) {
    if (!ours(r))
        return;
    broker_changing(1);
    incus_remove(r, kind_of(r), r->op->path, on_gone);
}

static void on_unlinked(struct request *r, const struct exec_result *result, int error) {
    (void)result; /* whether it is gone, the creation says */
    (void)error;
    struct buffer body = {0};
    broker_changing(-1);
    buffer_add_text(&body, "{\"type\":\"bridge\",\"name\":");
    json_string(&body, arg(r, 1));
    buffer_add_text(&body, ",\"config\":{\"ipv4.address\":\"none\",\"ipv6.address\":\"none\","
                           "\"user.boxdrill\":");
    json_text(&body, made_run("network", arg(r, 0), arg(r, 1)));
    buffer_add_text(&body, "}}");
    send_change(r, "POST", &body, NULL);
    buffer_free(&body);
}

/* own.network.remake PROJECT NAME: incusd died while it made this network. The bridge, its chains
 * and its dnsmasq are there, and Incus knows nothing of them: once the bridge is gone, it makes an
 * empty network of that name, and takes over what it finds; that one can be deleted. */
void op_own_remake(struct request *r) {
    if (!ours(r))
        return;
    char *name = arg_text(r, 1);
    job_make_folder();
    broker_changing(1);
    job_run(r, (char *[]){"ip", "link", "delete", name, "type", "bridge", NULL}, NULL, READ_MS,
            on_unlinked);
    r->cancel = NULL;
    free(name);
}
