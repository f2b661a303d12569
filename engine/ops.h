/* The start functions that dispatch.c's rows name: op_NAME.c has each. */
#pragma once

#include "broker.h"

/* op_worker.c: what a worker asks about itself, the library, the operator. */
void op_self(struct request *r);
void op_module(struct request *r);
void op_contract(struct request *r);
void op_options(struct request *r);
void op_sleep(struct request *r);
void op_print(struct request *r);
void op_progress(struct request *r);
void op_warn(struct request *r);
void op_exit(struct request *r);
void op_refuse(struct request *r);
void op_fail(struct request *r);
void op_grant(struct request *r);
void op_confirm(struct request *r);

/* op_probe.c */
void op_probe_files(struct request *r);
void op_probe_load(struct request *r);
void op_probe_run(struct request *r);
void op_probe_limit(struct request *r);
void op_declare(struct request *r);
void op_verdict(struct request *r);
/* A probe's worker is gone: answers who waits for it. how: empty when it ended by itself. */
void probe_ended(struct worker *w, const char *how);
/* The exit status that the recorded verdicts come to (design: 0, 1 or 3); -1 when there is none. */
int probe_status(void);

/* op_box.c */
void op_instance_create(struct request *r);
void op_instance_start(struct request *r);
void op_instance_stop(struct request *r);
void op_instance_delete(struct request *r);
void op_instance_push(struct request *r);
void op_instance_unpush(struct request *r);
void op_instance_exec(struct request *r);
void op_instance_device(struct request *r);
/* Runs argv in the instance that the request names (arguments 0 and 1) and answers as
 * docs/requests.md has instance.exec; ms is the guest's own deadline, cap bytes of each stream. The
 * caller has checked whose instance it is. */
void box_exec(struct request *r, const struct slice *argv, unsigned argc, int64_t ms, size_t cap);
/* Whether a worker may touch an instance: a probe those it was given and those it made itself. */
bool box_may_touch(const struct worker *w, struct slice project, struct slice name);
/* Whether a name carries the run's id. */
bool box_name_is_ours(struct slice name);

/* op_boxcli.c */
void op_box(struct request *r);
void op_box_once(struct request *r);
void op_box_path(struct request *r);
void op_box_template(struct request *r);
void op_box_tree(struct request *r);

/* op_look.c */
void op_box_look(struct request *r);

/* op_system.c */
void op_host_ports(struct request *r);
void op_host_inotify(struct request *r);
void op_host_resolvers(struct request *r);
void op_host_listeners(struct request *r);
void op_host_programs(struct request *r);
void op_host_log(struct request *r);
void op_host_locks(struct request *r);
void op_host_runs(struct request *r);
void op_host_processes(struct request *r);
void op_server_socket(struct request *r);

/* op_own.c: networks, ACLs and profiles of this run's own */
void op_own_create(struct request *r);
void op_own_put(struct request *r);
void op_own_delete(struct request *r);
void op_own_remake(struct request *r);
/* Whether a worker may change one: this run made it, and a probe made it itself. */
bool own_may_touch(const struct worker *w, const char *kind, struct slice project,
                   struct slice name);

/* op_orphan.c */
void op_orphan_delete(struct request *r);

/* op_live.c: the network that was named with --live */
void op_live_allow(struct request *r);
void op_live_set(struct request *r);
void op_live_unset(struct request *r);
/* Whether it is that network. */
bool live_may_touch(struct slice project, struct slice network);

/* op_log.c: opens the folder of --log FILE and looks whether the file can be written. Returns 0 or
 * -errno: -ELOOP for a symbolic link, -EINVAL for what is no file. */
int log_open(const char *path);
void op_log_append(struct request *r);
/* Why a network of this run may not have that key or value, or NULL. */
const char *own_network_refusal(const struct request *r, struct slice key, struct slice value);
/* Why a NIC of a box or a profile of this run may not have that key or value, or NULL. */
const char *own_nic_refusal(const struct request *r, struct slice key, struct slice value);

/* op_client.c, op_exec.c, op_host.c, op_connect.c, op_nft.c, op_firewall.c, op_made.c */
void op_client(struct request *r);
void op_exec(struct request *r);
void op_host_addresses(struct request *r);
void op_host_routes(struct request *r);
void op_host_clients(struct request *r);
void op_host_facts(struct request *r);
void op_host_connect(struct request *r);
void op_host_attempt(struct request *r);
void op_nft_list(struct request *r);
void op_nft_supports(struct request *r);
void op_firewall_apply(struct request *r);
void op_made_list(struct request *r);
void op_made_uuid(struct request *r);
void op_made_foreign(struct request *r);
void op_made_keep(struct request *r);
void op_journal_show(struct request *r);
void op_journal_adopt(struct request *r);
void op_journal_revert(struct request *r);

/* op_witness.c */
void op_witness_open(struct request *r);
void op_witness_close(struct request *r);
void op_witness_off(struct request *r);
/* A worker is gone: what it had opened is closed. */
void witness_forget(const struct worker *worker);
