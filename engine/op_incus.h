/* What the primitives that talk to Incus share. */
#pragma once

#include "broker.h"
#include "incus.h"

/* "/1.0/…" from a row's path: %p the project (argument 0), %n the name (argument 1). Replies
 * EINVAL and returns NULL when one of them is no name. Free it. */
char *incus_path(struct request *r, const char *path);
/* Replies with status, ETag and body, or with the transport's error. */
void incus_reply(struct request *r, const struct incus_reply *reply);
/* The same, as a callback of incus_send with the request as its data. */
void incus_reply_to(void *request, const struct incus_reply *reply);
/* The same, at the end of a change: ends one broker_changing. */
void incus_written(void *request, const struct incus_reply *reply);
/* The transport's error alone; returns false when there was none. */
bool incus_failed(struct request *r, const struct incus_reply *reply);
/* Incus's ETags are SHA-256 in hexadecimal, in quotes. Anything else could end the header it is
 * sent in, and is refused. Empty: there is none. */
bool incus_etag_ok(struct request *r, unsigned i);
/* Appends the body's members from the arguments from `first` on, which must be quadruples of the
 * sections the row allows. tag: one quadruple of our own behind them, or NULL. Replies EINVAL and
 * returns false else. */
bool incus_body(struct request *r, struct buffer *b, unsigned first, const char *always,
                const struct slice *tag);

/* DELETEs path and replies with what that came to. That the thing is gone is seen by a read, not
 * believed: then the journal is told (kind), and gone is called, unless NULL. Ends one
 * broker_changing. */
void incus_remove(struct request *r, const char *kind, const char *path,
                  void (*gone)(const struct request *));
/* Whether a list of keys, each whole or up to a `*`, and NULL behind the last, has one. */
bool incus_key_listed(const char *const *keys, struct slice key);

/* Starts: reads, and writes of networks, ACLs and profiles. */
void incus_read(struct request *r);
void incus_write(struct request *r);
