/* Commands on the host: supervise.h's bounded exec as an event of the loop. */
#pragma once

#include "broker.h"
#include "supervise.h"

/* Runs argv with the clean environment; done gets the result, always from the loop, or NULL with
 * errno in *error when no supervisor could be started or its result was lost. While it runs the
 * request's cancel ends it. Replies are the caller's. */
void job_start(struct request *r, const struct supervise_spec *spec,
               void (*done)(struct request *, const struct exec_result *, int error));

/* job_start with what commands of our own need: the clean environment, a text for stdin (or NULL),
 * a second of grace, as much output as a frame holds. */
void job_run(struct request *r, char *const *argv, const char *input, unsigned ms,
             void (*done)(struct request *, const struct exec_result *, int error));
/* Runs a command that only reads, and replies with what it printed. */
void job_read(struct request *r, char *const *argv, const char *input, unsigned ms);

/* Replies with the command's stdout; anything but exit 0 is an error, in its own words. */
void job_reply_output(struct request *r, const struct exec_result *result, int error);
/* Replies with an exec result as docs/requests.md has it: state, value, truncated, ms, stdout,
 * stderr. */
void job_reply(struct request *r, const struct exec_result *result, int error);

/* The same, with a number at the end. */
void job_reply_extra(struct request *r, const struct exec_result *result, int error, int64_t extra);
/* How much the request's command has written so far, in bytes. */
size_t job_output_len(const struct request *r);

/* The environment of every command: PATH, HOME, LC_ALL=C, and the client's own configuration
 * folder, which lives in the run's own. */
char *const *job_environment(void);

/* The run's own folder, /run/boxdrill-RUN; it need not be there. */
const char *job_folder(void);
/* Makes the folder that INCUS_CONF names, with a configuration of its own in it: without one the
 * client greets its first user, and leaves files in root's home. Root only; else nothing is done.
 */
void job_make_folder(void);
void job_remove_folder(void);

/* Ends what a killed supervisor left to the broker (supervise_end_strangers). */
void job_end_strangers(void);
bool job_running(void);
/* Ends every job but those that must not be cut off. */
void job_cancel_all(void);
