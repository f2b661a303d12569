/* What a run is in the middle of, as a file in its folder under /run: for `doctor.lua --stall`,
 * which a second terminal runs while a drill stands still. Root only. Called by broker.c and
 * op_system.c. */
#pragma once

#include <stdint.h>

/* Writes it, at most once a second; nothing where this run does not hold the host's lock. */
void state_write(void);

/* Calls back for each other run that has one: its id, how long ago that was written, in seconds,
 * and a line for each request under way: "FILE OPERATION MS". A run that was killed may have left
 * one. */
void state_read(void (*each)(void *, const char *run, int64_t age_s, const char *text), void *data);
