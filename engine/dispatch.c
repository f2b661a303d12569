/* The dispatch table: every request, its grant, how many arguments it takes, and who answers it.
 * docs/requests.md is the same table in prose. */
#include "op_incus.h"
#include "ops.h"

#include <string.h>

enum { ANY = WIRE_MAX_STRINGS };

static const struct op table[] = {
    /* name, grant, min, max, start, usage, bytes, path, body */
    {"self", 0, 0, 0, op_self, "", false, NULL, NULL},
    {"module", 0, 1, 1, op_module, "NAME", false, NULL, NULL},
    {"contract", 0, 0, 0, op_contract, "", false, NULL, NULL},
    {"options", 0, 0, 0, op_options, "", false, NULL, NULL},
    {"sleep", 0, 1, 2, op_sleep, "MS [FOR]", true, NULL, NULL},
    {"fail", 0, 2, 2, op_fail, "MESSAGE LAST-OPERATION", true, NULL, NULL},

    {"print", GRANT_SCRIPT, 2, ANY, op_print, "STYLE TEXT ...", true, NULL, NULL},
    {"progress", GRANT_SCRIPT, 0, 0, op_progress, "", false, NULL, NULL},
    {"warn", GRANT_SCRIPT, 1, 1, op_warn, "TEXT", true, NULL, NULL},
    {"refuse", GRANT_SCRIPT, 1, 1, op_refuse, "MESSAGE", true, NULL, NULL},
    {"log.append", GRANT_SCRIPT, 1, 1, op_log_append, "TEXT", true, NULL, NULL},
    {"exit", GRANT_SCRIPT, 1, 1, op_exit, "CODE", false, NULL, NULL},
    {"grant", GRANT_SCRIPT, 1, 16, op_grant, "NAME ...", false, NULL, NULL},
    {"confirm", GRANT_SCRIPT, 1, 1, op_confirm, "TEXT", true, NULL, NULL},

    {"probe.files", GRANT_PROBES, 0, 0, op_probe_files, "", false, NULL, NULL},
    {"probe.load", GRANT_PROBES, 1, 1, op_probe_load, "FILE", false, NULL, NULL},
    {"probe.limit", GRANT_PROBES, 2, 2, op_probe_limit, "FILE MS", false, NULL, NULL},
    {"probe.run", GRANT_PROBES, 1, 64, op_probe_run, "FILE BOX ...", false, NULL, NULL},
    {"declare", GRANT_PROBE, 2, 18, op_declare, "ID METADATA NEED ...", true, NULL, NULL},
    {"verdict", GRANT_PROBE, 2, 2, op_verdict, "VERDICT EVIDENCE", true, NULL, NULL},

    {"server.get", GRANT_READ, 0, 0, incus_read, "", false, "/1.0", NULL},
    {"server.socket", GRANT_READ, 0, 0, op_server_socket, "", false, NULL, NULL},
    {"instance.list", GRANT_READ, 1, 1, incus_read, "PROJECT", false,
     "/1.0/instances?%a&recursion=2", NULL},
    {"instance.get", GRANT_READ | GRANT_REVERT, 2, 2, incus_read, "PROJECT NAME", false,
     "/1.0/instances/%n?%p", NULL},
    {"instance.state", GRANT_READ, 2, 2, incus_read, "PROJECT NAME", false,
     "/1.0/instances/%n/state?%p", NULL},
    {"network.list", GRANT_READ, 1, 1, incus_read, "PROJECT", false, "/1.0/networks?%a&recursion=1",
     NULL},
    {"network.get", GRANT_READ, 2, 2, incus_read, "PROJECT NAME", false, "/1.0/networks/%n?%p",
     NULL},
    {"network.state", GRANT_READ, 2, 2, incus_read, "PROJECT NAME", false,
     "/1.0/networks/%n/state?%p", NULL},
    {"acl.get", GRANT_READ, 2, 2, incus_read, "PROJECT NAME", false, "/1.0/network-acls/%n?%p",
     NULL},
    {"acl.list", GRANT_READ, 1, 1, incus_read, "PROJECT", false, "/1.0/network-acls?%a&recursion=1",
     NULL},
    {"profile.get", GRANT_READ, 2, 2, incus_read, "PROJECT NAME", false, "/1.0/profiles/%n?%p",
     NULL},
    {"profile.list", GRANT_READ, 1, 1, incus_read, "PROJECT", false, "/1.0/profiles?%a&recursion=1",
     NULL},
    {"operation.list", GRANT_READ, 1, 1, incus_read, "PROJECT", false,
     "/1.0/operations?%p&recursion=1", NULL},
    {"host.addresses", GRANT_READ, 0, 0, op_host_addresses, "", false, NULL, NULL},
    {"host.routes", GRANT_READ, 0, 0, op_host_routes, "", false, NULL, NULL},
    {"host.clients", GRANT_READ, 0, 0, op_host_clients, "", false, NULL, NULL},
    {"host.facts", GRANT_READ, 0, 0, op_host_facts, "", false, NULL, NULL},
    {"host.ports", GRANT_READ, 1, 1, op_host_ports, "BRIDGE", false, NULL, NULL},
    {"host.inotify", GRANT_READ, 0, 0, op_host_inotify, "", false, NULL, NULL},
    {"host.resolvers", GRANT_READ, 0, 0, op_host_resolvers, "", false, NULL, NULL},
    {"host.listeners", GRANT_READ, 1, 1, op_host_listeners, "PORT", false, NULL, NULL},
    {"host.programs", GRANT_READ, 0, 0, op_host_programs, "", false, NULL, NULL},
    {"host.processes", GRANT_READ, 0, 0, op_host_processes, "", false, NULL, NULL},
    {"host.runs", GRANT_READ, 0, 0, op_host_runs, "", false, NULL, NULL},
    {"host.locks", GRANT_READ, 0, 0, op_host_locks, "", false, NULL, NULL},
    {"host.log", GRANT_READ, 0, 0, op_host_log, "", false, NULL, NULL},
    {"nft.list", GRANT_READ, 0, 0, op_nft_list, "", false, NULL, NULL},
    {"nft.supports", GRANT_READ, 1, 1, op_nft_supports, "ibrname", false, NULL, NULL},

    {"host.connect", GRANT_HOST_CONNECT, 3, 3, op_host_connect, "ADDRESS PORT MS", false, NULL,
     NULL},
    {"host.attempt", GRANT_HOST_CONNECT, 1, 1024, op_host_attempt, "SPEC ...", false, NULL, NULL},

    {"instance.create", GRANT_BOX_MINT, 5, ANY, op_instance_create,
     "PROJECT NAME TYPE SERVER ALIAS (SECTION NAME KEY VALUE) ...", false, NULL,
     "top,profiles,config"},
    {"instance.start", GRANT_BOX_MINT, 2, 2, op_instance_start, "PROJECT NAME", false, NULL, NULL},
    {"instance.stop", GRANT_BOX_MINT, 2, 2, op_instance_stop, "PROJECT NAME", false, NULL, NULL},
    {"instance.delete", GRANT_BOX_MINT | GRANT_REVERT, 2, 2, op_instance_delete, "PROJECT NAME",
     false, NULL, NULL},
    {"instance.push", GRANT_BOX_EXEC, 2, 2, op_instance_push, "PROJECT NAME", false, NULL, NULL},
    {"instance.unpush", GRANT_BOX_EXEC, 2, 2, op_instance_unpush, "PROJECT NAME", false, NULL,
     NULL},
    {"instance.exec", GRANT_BOX_EXEC, 5, ANY, op_instance_exec, "PROJECT NAME MS CAP ARG ...",
     false, NULL, NULL},
    {"box.look", GRANT_BOX_LOOK, 3, 5, op_box_look, "PROJECT NAME WHAT [TARGET [PORT]]", false,
     NULL, NULL},
    {"client", GRANT_CLIENT, 2, 24, op_client, "FORM PROJECT ARG ...", false, NULL, NULL},

    {"box.path", GRANT_READ, 0, 0, op_box_path, "", false, NULL, NULL},
    {"box.tree", GRANT_BOX_CLI, 1, 3, op_box_tree, "VERSION | templates NAME FILE", false, NULL,
     NULL},
    {"box", GRANT_BOX_CLI, 4, 40, op_box, "PROJECT MS CAP [BOX_NAME=VALUE ...] WORD ...", false,
     NULL, NULL},
    {"box.once", GRANT_BOX_CLI, 4, 40, op_box_once, "PROJECT MS CAP [BOX_NAME=VALUE ...] WORD ...",
     false, NULL, NULL},
    {"box.template", GRANT_BOX_CLI, 7, 40, op_box_template,
     "PROJECT NAME FILE TEXT MS CAP WORD ...", false, NULL, NULL},

    {"network.create", GRANT_SETUP, 3, ANY, incus_write,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "POST /1.0/networks?%p",
     "top,config"},
    {"network.patch", GRANT_SETUP, 3, ANY, incus_write,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "PATCH /1.0/networks/%n?%p",
     "top,config"},
    {"acl.create", GRANT_SETUP, 3, ANY, incus_write,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "POST /1.0/network-acls?%p",
     "top,egress,ingress"},
    {"acl.put", GRANT_SETUP, 3, ANY, incus_write, "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...",
     false, "PUT /1.0/network-acls/%n?%p", "top,egress,ingress"},
    {"profile.create", GRANT_SETUP, 3, ANY, incus_write,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "POST /1.0/profiles?%p",
     "top,devices"},
    {"profile.patch", GRANT_SETUP, 3, ANY, incus_write,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "PATCH /1.0/profiles/%n?%p",
     "top,devices"},
    {"firewall.apply", GRANT_SETUP, 5, 5, op_firewall_apply, "TABLE BRIDGE GATEWAY SUBNET IBRNAME",
     false, NULL, NULL},

    {"own.network.create", GRANT_REHEARSE, 2, ANY, op_own_create,
     "PROJECT NAME (SECTION NAME KEY VALUE) ...", false, "/1.0/networks?%p", "top,config"},
    {"own.network.put", GRANT_REHEARSE, 3, ANY, op_own_put,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "/1.0/networks/%n?%p", "top,config"},
    {"own.network.delete", GRANT_REHEARSE | GRANT_REVERT, 2, 2, op_own_delete, "PROJECT NAME",
     false, "/1.0/networks/%n?%p", NULL},
    {"own.network.remake", GRANT_REVERT, 2, 2, op_own_remake, "PROJECT NAME", false,
     "/1.0/networks?%p", NULL},
    {"own.acl.create", GRANT_REHEARSE, 2, ANY, op_own_create,
     "PROJECT NAME (SECTION NAME KEY VALUE) ...", false, "/1.0/network-acls?%p",
     "top,config,egress,ingress"},
    {"own.acl.put", GRANT_REHEARSE, 3, ANY, op_own_put,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "/1.0/network-acls/%n?%p",
     "top,config,egress,ingress"},
    {"own.acl.delete", GRANT_REHEARSE | GRANT_REVERT, 2, 2, op_own_delete, "PROJECT NAME", false,
     "/1.0/network-acls/%n?%p", NULL},
    {"own.profile.create", GRANT_REHEARSE, 2, ANY, op_own_create,
     "PROJECT NAME (SECTION NAME KEY VALUE) ...", false, "/1.0/profiles?%p", "top,config,devices"},
    {"own.profile.put", GRANT_REHEARSE, 3, ANY, op_own_put,
     "PROJECT NAME ETAG (SECTION NAME KEY VALUE) ...", false, "/1.0/profiles/%n?%p",
     "top,config,devices"},
    {"own.profile.delete", GRANT_REHEARSE | GRANT_REVERT, 2, 2, op_own_delete, "PROJECT NAME",
     false, "/1.0/profiles/%n?%p", NULL},
    {"instance.device", GRANT_REHEARSE, 5, 23, op_instance_device,
     "PROJECT NAME DEVICE KEY VALUE ...", false, NULL, NULL},

    {"orphan.delete", GRANT_BOX_MINT | GRANT_REVERT, 4, 4, op_orphan_delete,
     "PROJECT NAME LINK MAC", false, NULL, NULL},
    {"live.allow", GRANT_REHEARSE, 2, 2, op_live_allow, "PROJECT NETWORK", false, NULL, NULL},
    {"live.set", GRANT_REHEARSE, 7, 7, op_live_set,
     "PROJECT NETWORK KEY ETAG DESCRIPTION BEFORE AFTER", false, "/1.0/networks/%n?%p", NULL},
    {"live.unset", GRANT_REHEARSE | GRANT_REVERT, 5, 5, op_live_unset,
     "PROJECT NETWORK KEY ETAG DESCRIPTION", false, "/1.0/networks/%n?%p", NULL},

    {"exec", GRANT_HOST_EXEC, 4, ANY, op_exec, "MS GRACE CAP ARG ...", false, NULL, NULL},

    {"witness.open", GRANT_WITNESS, 4, 400, op_witness_open, "PROJECT (KIND NAME VALUE) ...", false,
     NULL, NULL},
    {"witness.close", GRANT_WITNESS, 1, 1, op_witness_close, "ID", false, NULL, NULL},
    {"witness.off", GRANT_SCRIPT, 0, 0, op_witness_off, "", false, NULL, NULL},

    {"made.list", GRANT_REVERT, 0, 0, op_made_list, "", false, NULL, NULL},
    {"made.uuid", GRANT_BOX_MINT, 3, 3, op_made_uuid, "PROJECT NAME UUID", false, NULL, NULL},
    {"made.foreign", GRANT_REVERT, 3, 3, op_made_foreign, "KIND PROJECT NAME", false, NULL, NULL},
    {"journal.show", GRANT_READ, 0, 0, op_journal_show, "", false, NULL, NULL},
    {"journal.adopt", GRANT_JOURNAL, 0, 0, op_journal_adopt, "", false, NULL, NULL},
    {"journal.revert", GRANT_JOURNAL, 0, 0, op_journal_revert, "", false, NULL, NULL},
    {"made.keep", GRANT_BOX_MINT, 0, 0, op_made_keep, "", false, NULL, NULL},
};

const struct op *dispatch_find(struct slice name) {
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (slice_is(name, table[i].name))
            return &table[i];
    return NULL;
}

/* Grants by bit, with the words an operator is asked in; NULL: it changes nothing. */
static const struct {
    const char *name, *words;
} grants[] = {
    {"read", NULL},
    {"probes", NULL},
    {"box.mint", "create and delete boxes of its own, named after the run"},
    {"box.exec", "run commands in the boxes that this run made"},
    {"client", "run the incus client on instances that this run made"},
    {"host.connect", "send packets from this host"},
    {"host.exec", "run any command on this host, as you"},
    {"setup", "change the host's network, ACL, profile and firewall"},
    {"journal", "remove what an earlier run left behind"},
    {"box.cli", "run the box CLI under drill"},
    {"rehearse", "create networks, ACLs and profiles of its own, and change those"},
    {"witness",
     "see the packets between this run's boxes and the addresses they are to be kept from"},
    {"box.look", "ask ip, getent and curl in boxes that are not this run's"},
    {"script", NULL},
    {"probe", NULL},
    {"revert", NULL},
};
enum { ASKABLE = 13 };

static int lowest(uint32_t grant) {
    return __builtin_ffs((int)grant) - 1;
}

const char *grant_name(uint32_t grant) {
    return grants[lowest(grant)].name;
}

const char *grant_words(uint32_t grant) {
    return grants[lowest(grant)].words;
}

uint32_t grant_find(struct slice name) {
    for (int i = 0; i < ASKABLE; i++)
        if (slice_is(name, grants[i].name))
            return 1U << i;
    return 0;
}
