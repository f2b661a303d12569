/* The Lua state of a worker: capped memory, allow-listed libraries, an interrupt for code that
 * spins. Built by worker.c before the sandbox closes. */
#pragma once

#include <lua.h>
#include <stdbool.h>

/* What Lua itself may allocate. cjson and libc are bounded by RLIMIT_DATA (sandbox.c). */
#define LUASTATE_MEMORY ((size_t)64 << 20)
/* Processor time between two requests after which a script is interrupted with an error. A script
 * that does not obey (a pattern that never ends, a pcall loop) is killed by the broker. */
#define LUASTATE_SPIN_SECONDS 3

/* Opens a state with base, coroutine, table, string, math, utf8 and os; the caller's prelude makes
 * the allow-list of it. Returns NULL when there is no memory. It goes with its process. */
lua_State *luastate_open(void);

/* Starts the clock of the spin limit anew: called whenever a reply came in. */
void luastate_turn(void);
