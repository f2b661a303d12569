/* The host's own rules for the boxes' bridge: written here, from checked words, and applied by nft
 * in one transaction. Kept over a reboot by a unit of ours where systemd runs. */
#define _GNU_SOURCE
#include "job.h"
#include "ops.h"
#include "output.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RULES_DIR  "/etc/boxdrill"
#define RULES_FILE RULES_DIR "/firewall.nft"
#define UNIT_FILE  "/etc/systemd/system/boxdrill-firewall.service"

static const char unit[] = "# Written by boxdrill setup.lua.\n"
                           "[Unit]\n"
                           "Description=Firewall of the boxes' bridge\n"
                           "Documentation=file:" RULES_FILE "\n"
                           "Before=incus.service\n"
                           "After=nftables.service ufw.service\n\n"
                           "[Service]\n"
                           "Type=oneshot\n"
                           "RemainAfterExit=yes\n"
                           "ExecStart=nft -f " RULES_FILE "\n\n"
                           "[Install]\n"
                           "WantedBy=multi-user.target\n";

/* Input from the bridge: what answers us, DNS to the gateway, DHCP; the rest is dropped. */
static void add_input(struct buffer *b, const char *table, const char *bridge,
                      const char *gateway) {
    buffer_printf(b,
                  "table inet %s {\n"
                  "  chain input {\n"
                  "    type filter hook input priority filter; policy accept;\n"
                  "    iifname != \"%s\" accept\n"
                  "    ct state established,related accept\n"
                  "    ip daddr %s udp dport 53 accept\n"
                  "    ip daddr %s tcp dport 53 accept\n"
                  "    udp dport 67 ip daddr { %s, 255.255.255.255 } accept\n"
                  "    drop\n"
                  "  }\n"
                  "}\n",
                  table, bridge, gateway, gateway, gateway);
}

/* Between two ports of the bridge nothing is switched. A kernel without `meta ibrname` cannot tell
 * whose port a frame came in by; there the boxes' own subnet is dropped, IP and ARP, so that no
 * other bridge's traffic can be hit, and port isolation carries the rest. */
static void add_forward(struct buffer *b, const char *table, const char *bridge, const char *subnet,
                        bool ibrname) {
    buffer_printf(b,
                  "table bridge %s {\n"
                  "  chain forward {\n"
                  "    type filter hook forward priority filter; policy accept;\n",
                  table);
    if (ibrname)
        buffer_printf(b, "    meta ibrname \"%s\" meta obrname \"%s\" drop\n", bridge, bridge);
    else
        buffer_printf(b,
                      "    ip saddr %s ip daddr %s drop\n"
                      "    arp saddr ip %s arp daddr ip %s drop\n",
                      subnet, subnet, subnet, subnet);
    buffer_add_text(b, "  }\n}\n");
}

static int write_file(const char *path, const char *text, size_t len) {
    char temporary[128];
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    FILE *f = fopen(temporary, "we");
    if (!f)
        return -errno;
    int error = 0;
    if (fwrite(text, 1, len, f) != len || fflush(f) || fsync(fileno(f)))
        error = EIO;
    if (fclose(f) && !error)
        error = EIO;
    if (!error && (chmod(temporary, 0644) < 0 || rename(temporary, path) < 0))
        error = errno;
    if (error)
        unlink(temporary);
    return -error;
}

/* Writes the rules and, under systemd, the unit. Returns 0 or -errno. */
static int persist(const struct buffer *rules) {
    if (mkdir(RULES_DIR, 0755) < 0 && errno != EEXIST)
        return -errno;
    int error = write_file(RULES_FILE, rules->data, rules->len);
    if (error == 0 && access("/run/systemd/system", F_OK) == 0)
        error = write_file(UNIT_FILE, unit, sizeof(unit) - 1);
    return error;
}

static void on_done(struct request *r, const struct exec_result *result, int error) {
    struct buffer *rules = r->data;
    broker_changing(-1);
    buffer_free(rules);
    free(rules);
    job_reply(r, result, error);
}

/* Only rules that the kernel took are kept for the next boot. */
static void on_applied(struct request *r, const struct exec_result *result, int error) {
    bool applied = result && result->state == EXEC_EXIT && result->value == 0;
    int unsaved = applied ? persist(r->data) : 0;
    if (unsaved < 0)
        output_message("firewall.apply: applied, but not kept for the next boot: %s: %s",
                       RULES_FILE, strerror(-unsaved));
    if (applied && unsaved == 0 && access("/run/systemd/system", F_OK) == 0)
        job_run(r, (char *[]){"systemctl", "enable", "boxdrill-firewall.service", NULL}, NULL,
                30000, on_done);
    else
        on_done(r, result, error);
}

static bool subnet_ok(const char *text) {
    char address[32];
    unsigned char out[4];
    size_t n = strcspn(text, "/");
    if (n >= sizeof(address) || text[n] != '/')
        return false;
    memcpy(address, text, n);
    address[n] = 0;
    const char *bits = text + n + 1;
    size_t digits = strspn(bits, "0123456789");
    return inet_pton(AF_INET, address, out) == 1 && digits && digits <= 2 && !bits[digits] &&
           atoi(bits) <= 32;
}

static void apply(struct request *r, const char *table, const char *bridge, const char *gateway,
                  const char *subnet) {
    struct buffer *rules = calloc(1, sizeof(*rules));
    if (!rules)
        abort();
    buffer_add_text(rules, "# Written by boxdrill setup.lua.\n");
    /* Declared, then deleted: so that it works whether they were there or not. */
    buffer_printf(rules, "table inet %s {}\ndelete table inet %s\n", table, table);
    buffer_printf(rules, "table bridge %s {}\ndelete table bridge %s\n", table, table);
    add_input(rules, table, bridge, gateway);
    add_forward(rules, table, bridge, subnet, slice_is(arg(r, 4), "1"));
    r->data = rules;
    char *text = strndup(rules->data, rules->len);
    broker_changing(1);
    job_run(r, (char *[]){"nft", "-f", "-", NULL}, text, 30000, on_applied);
    free(text);
}

/* firewall.apply TABLE BRIDGE GATEWAY SUBNET IBRNAME */
void op_firewall_apply(struct request *r) {
    unsigned char out[4];
    if (!arg_name(r, 0) || !arg_name(r, 1))
        return;
    char *table = arg_text(r, 0), *bridge = arg_text(r, 1);
    char *gateway = arg_text(r, 2), *subnet = arg_text(r, 3);
    if (strncmp(table, "box", 3) != 0)
        reply_error(r, "EINVAL",
                    "firewall.apply: the table's name must begin with 'box': it is replaced whole, "
                    "and nobody else's may be");
    else if (strlen(bridge) > 15)
        reply_error(r, "EINVAL", "firewall.apply: argument 2 is not the name of an interface");
    else if (inet_pton(AF_INET, gateway, out) != 1)
        reply_error(r, "EINVAL", "firewall.apply: argument 3 is not an IPv4 address");
    else if (!subnet_ok(subnet))
        reply_error(r, "EINVAL", "firewall.apply: argument 4 is not an IPv4 subnet");
    else
        apply(r, table, bridge, gateway, subnet);
    free(table);
    free(bridge);
    free(gateway);
    free(subnet);
}
