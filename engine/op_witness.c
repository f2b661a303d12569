/* The witness: what this host saw of a flow, on the links of the boxes concerned, on its other
 * links, and behind its input hook. Frames are kept as they came, counted, and handed on; nothing
 * of them is parsed here (docs/witness.md). */
#define _GNU_SOURCE
#include "eye.h"
#include "incus.h"
#include "made.h"
#include "ops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    MAX_EYES = 40, /* each keeps at most 192 KiB: one answer holds them all */
    MAX_OPEN = 8,  /* witnesses of one worker at a time */
    READ_MS = 10000,
    TRIPLE = 3,
};

struct witness {
    struct witness *next;
    const struct worker *worker;
    struct request *opening; /* the witness.open that is not answered yet */
    unsigned id;
    unsigned asked; /* ports that Incus is still asked about */
    char why[256];  /* a port that cannot be watched: why */
    bool links, input;
    struct eye_filter filter;
    struct eye eyes[MAX_EYES];
    unsigned count;
};

static struct witness *witnesses;
static bool switched_off;

static void witness_free(struct witness *w) {
    for (struct witness **p = &witnesses; *p; p = &(*p)->next) {
        if (*p == w) {
            *p = w->next;
            break;
        }
    }
    for (unsigned i = 0; i < w->count; i++)
        eye_free(&w->eyes[i]);
    free(w);
}

/* One that Incus is still asked for is freed by its answer. */
void witness_forget(const struct worker *worker) {
    for (struct witness *w = witnesses, *next; w; w = next) {
        next = w->next;
        if (w->worker == worker && w->asked)
            w->worker = NULL;
        else if (w->worker == worker)
            witness_free(w);
    }
}

/* -- what is asked for --------------------------------------------------------------------------
 */

static struct eye *add_eye(struct witness *w, const char *role) {
    if (w->count == MAX_EYES)
        return NULL;
    struct eye *e = &w->eyes[w->count++];
    *e = (struct eye){.role = role, .fd = -1};
    return e;
}

static bool add_address(struct request *r, struct witness *w, unsigned i) {
    struct eye_filter *f = &w->filter;
    char *text = arg_text(r, i);
    bool v4 = f->count4 < EYE_MAX_IPV4 && inet_pton(AF_INET, text, &f->v4[f->count4]) == 1;
    bool v6 = !v4 && f->count6 < EYE_MAX_IPV6 && inet_pton(AF_INET6, text, &f->v6[f->count6]) == 1;
    free(text);
    f->count4 += v4;
    f->count6 += v6;
    if (!v4 && !v6)
        reply_error(r, "EINVAL",
                    "witness.open: argument %u is no address, or one of more than %d of IPv4 or %d "
                    "of IPv6",
                    i + 1, EYE_MAX_IPV4, EYE_MAX_IPV6);
    return v4 || v6;
}

/* port NAME DEVICE=LINK: only of a box that the worker may run commands in. That the link is that
 * box's is asked of Incus before it is opened. */
static bool add_port(struct request *r, struct witness *w, unsigned i) {
    char *name = arg_text(r, i + 1), *place = arg_text(r, i + 2), *link = strchr(place, '=');
    bool may = made_instance(arg(r, 0), arg(r, i + 1)) &&
               box_may_touch(r->worker, arg(r, 0), arg(r, i + 1));
    struct eye *e = link && may && strlen(link + 1) < IFNAMSIZ ? add_eye(w, "port") : NULL;
    if (e) {
        snprintf(e->name, sizeof(e->name), "%s", link + 1);
        e->box = name;
    } else {
        reply_error(r, may ? "EINVAL" : "EPERM", "witness.open: no port of instance '%s'%s", name,
                    may ? ": DEVICE=LINK" : ", which is not one of this probe's");
        free(name);
    }
    free(place);
    return e != NULL;
}

/* Reads the triples; false when one was refused, and that was answered. */
static bool read_triples(struct request *r, struct witness *w) {
    for (unsigned i = 1; i + 2 < r->argc; i += TRIPLE) {
        if (slice_is(arg(r, i), "links"))
            w->links = true;
        else if (slice_is(arg(r, i), "input"))
            w->input = true;
        else if (slice_is(arg(r, i), "address")) {
            if (!add_address(r, w, i + 1))
                return false;
        } else if (slice_is(arg(r, i), "port")) {
            if (!arg_name(r, i + 1) || !add_port(r, w, i))
                return false;
        } else {
            reply_error(r, "EINVAL", "witness.open: argument %u is port, links, input or address",
                        i + 1);
            return false;
        }
    }
    w->filter.all = !w->filter.count4 && !w->filter.count6;
    bool whole = r->argc % TRIPLE == 1, bounded = !w->filter.all || !(w->links || w->input);
    if (!whole)
        reply_error(r, "EINVAL", "usage: %s %s", r->op->name, r->op->usage);
    else if (!bounded)
        reply_error(r, "EINVAL",
                    "witness.open: without an address only ports of boxes are watched");
    return whole && bounded;
}

/* -- eyes that open -----------------------------------------------------------------------------
 */

static bool is_port_of(const struct witness *w, const char *link) {
    for (unsigned i = 0; i < w->count; i++)
        if (strcmp(w->eyes[i].name, link) == 0)
            return true;
    return false;
}

/* Whether something may leave the host there: a link that is up, no loopback, and no bridge's port
 * (what leaves by a port leaves by its bridge; and another box's port is nobody's business). */
static bool is_way_out(const char *link) {
    struct ifreq q = {0};
    char path[64];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(q.ifr_name, sizeof(q.ifr_name), "%s", link);
    snprintf(path, sizeof(path), "/sys/class/net/%s/brport", link);
    bool known = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &q) == 0;
    if (fd >= 0)
        close(fd);
    return known && (q.ifr_flags & IFF_UP) && !(q.ifr_flags & IFF_LOOPBACK) &&
           access(path, F_OK) < 0;
}

/* Every way out, not only the default route's: a forbidden range may be routed by another. */
static int add_links(struct witness *w) {
    struct if_nameindex *all = if_nameindex();
    int error = all ? 0 : -errno;
    for (const struct if_nameindex *l = all; l && l->if_index && !error; l++) {
        if (!is_way_out(l->if_name) || is_port_of(w, l->if_name))
            continue;
        struct eye *e = add_eye(w, "link");
        if (e)
            snprintf(e->name, sizeof(e->name), "%s", l->if_name);
        else
            error = -ENFILE;
    }
    if (all)
        if_freenameindex(all);
    return error;
}

static int add_input(struct witness *w) {
    static const struct {
        const char *name;
        int family, protocol;
    } hooks[] = {{"tcp4", AF_INET, IPPROTO_TCP},   {"udp4", AF_INET, IPPROTO_UDP},
                 {"icmp4", AF_INET, IPPROTO_ICMP}, {"tcp6", AF_INET6, IPPROTO_TCP},
                 {"udp6", AF_INET6, IPPROTO_UDP},  {"icmp6", AF_INET6, IPPROTO_ICMPV6}};
    for (size_t i = 0; i < sizeof(hooks) / sizeof(*hooks); i++) {
        struct eye *e = add_eye(w, "input");
        if (!e)
            return -ENFILE;
        snprintf(e->name, sizeof(e->name), "%s", hooks[i].name);
        e->family = hooks[i].family;
        e->protocol = hooks[i].protocol;
    }
    return 0;
}

static int open_eyes(struct witness *w) {
    int error = w->links ? add_links(w) : 0;
    if (!error && w->input)
        error = add_input(w);
    for (unsigned i = 0; i < w->count && !error; i++) {
        struct eye *e = &w->eyes[i];
        error = e->family ? eye_open_input(e, &w->filter) : eye_open_link(e, &w->filter);
        if (error)
            snprintf(w->why, sizeof(w->why), "%s", e->name);
    }
    return error;
}

/* Incus has been asked about every port. */
static void begin(struct witness *w) {
    struct request *r = w->opening;
    w->opening = NULL;
    if (w->why[0]) {
        reply_error(r, "ESTALE", "witness.open: %s", w->why);
        witness_free(w);
        return;
    }
    int error = w->worker ? open_eyes(w) : -ECANCELED;
    if (error) {
        reply_errno(r, -error, w->why[0] ? w->why : "witness.open");
        witness_free(w);
        return;
    }
    reply_begin(r);
    reply_add_number(r, w->id);
    reply_send(r);
}

/* -- whose port it is ---------------------------------------------------------------------------
 */

/* A port that Incus is asked about: whether its answer holds the pair, byte by byte. It writes its
 * JSON without spaces, and a quote within a string with a backslash before it, so the pair stands
 * there only where it is one. */
struct question {
    struct witness *w;
    char box[64];
    char pair[160];
};

static void on_instance(void *data, const struct incus_reply *reply) {
    struct question *q = data;
    struct witness *w = q->w;
    bool answered = reply->code == CURLE_OK && reply->status == 200;
    if (!answered || !memmem(reply->body.data, reply->body.len, q->pair, strlen(q->pair)))
        snprintf(w->why, sizeof(w->why), "Incus does not say that %s is %s's", q->pair, q->box);
    free(q);
    if (--w->asked == 0)
        begin(w);
}

static bool is_device(const char *text, size_t len) {
    static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return len > 0 && len < 64 && strspn(text, set) >= len;
}

/* Asks Incus about the port of argument i; false when its device is no name, and that is known. */
static bool ask_about(struct witness *w, struct request *r, unsigned i) {
    char path[192], *place = arg_text(r, i + 2), *link = strchr(place, '=') + 1;
    struct question *q = calloc(1, sizeof(*q));
    if (!q)
        abort();
    q->w = w;
    size_t len = (size_t)(link - 1 - place);
    bool ok = is_device(place, len) && is_device(link, strlen(link));
    snprintf(q->box, sizeof(q->box), "%.*s", (int)arg(r, i + 1).len, arg(r, i + 1).data);
    snprintf(q->pair, sizeof(q->pair), "\"volatile.%.*s.host_name\":\"%s\"", (int)len, place, link);
    snprintf(path, sizeof(path), "/1.0/instances/%s?project=%.*s", q->box, (int)arg(r, 0).len,
             arg(r, 0).data);
    free(place);
    if (!ok) {
        free(q);
        return false;
    }
    w->asked++;
    incus_send(&(struct incus_request){.method = "GET", .path = path, .timeout_ms = READ_MS},
               on_instance, q);
    return true;
}

static unsigned open_count(const struct worker *worker) {
    unsigned n = 0;
    for (const struct witness *w = witnesses; w; w = w->next)
        n += w->worker == worker;
    return n;
}

static struct witness *witness_new(struct request *r) {
    static unsigned last;
    struct witness *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    w->worker = r->worker;
    w->opening = r;
    w->id = ++last;
    w->next = witnesses;
    witnesses = w;
    return w;
}

/* witness.open PROJECT (KIND NAME VALUE)... */
void op_witness_open(struct request *r) {
    if (!arg_name(r, 0))
        return;
    if (switched_off || !options.root) {
        reply_error(r, "ENOTSUP", switched_off ? "it is switched off" : "it needs root");
        return;
    }
    if (open_count(r->worker) >= MAX_OPEN) {
        reply_error(r, "EMFILE", "witness.open: %d are open", MAX_OPEN);
        return;
    }
    struct witness *w = witness_new(r);
    if (!read_triples(r, w)) {
        witness_free(w);
        return;
    }
    w->asked = 1; /* until all are asked */
    for (unsigned i = 1; i + 2 < r->argc; i += TRIPLE)
        if (slice_is(arg(r, i), "port") && !ask_about(w, r, i))
            snprintf(w->why, sizeof(w->why), "a port is DEVICE=LINK");
    if (--w->asked == 0)
        begin(w);
}

/* -- the end ------------------------------------------------------------------------------------
 */

static void add_record(struct request *r, const struct eye *e) {
    const char *error = e->error ? strerrorname_np(e->error) : "";
    reply_add_text(r, e->role);
    reply_add_text(r, e->box ? e->box : "");
    reply_add_text(r, e->name);
    reply_add_number(r, (int64_t)e->kept);
    reply_add_number(r, (int64_t)e->lost);
    reply_add_text(r, error ? error : "EIO");
    reply_add(r, e->frames.data ? e->frames.data : "", e->frames.len);
}

/* witness.close ID: what each eye saw. */
void op_witness_close(struct request *r) {
    int64_t id = 0;
    if (!arg_number(r, 0, 1, UINT32_MAX, &id))
        return;
    struct witness *w = witnesses;
    while (w && !(w->id == id && w->worker == r->worker && !w->opening))
        w = w->next;
    if (!w) {
        reply_error(r, "ENOENT", "witness.close: no witness %d of this script's is open", (int)id);
        return;
    }
    reply_begin(r);
    for (unsigned i = 0; i < w->count; i++) {
        eye_shut(&w->eyes[i]);
        add_record(r, &w->eyes[i]);
    }
    reply_send(r);
    witness_free(w);
}

/* witness.off: --no-witness, for the rest of the run. */
void op_witness_off(struct request *r) {
    switched_off = true;
    reply_ok(r);
}
