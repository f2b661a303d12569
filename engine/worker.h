/* A worker: the process that runs one script's or probe's Lua and nothing else. */
#pragma once

/* The child's side of the fork: builds the Lua state, enters the sandbox, runs the prelude, exits.
 * socket: the connected socket to the broker; everything else is closed. */
_Noreturn void worker_main(int socket);

/* Exit statuses of a worker that never got as far as Lua. */
enum { WORKER_NO_SANDBOX = 71, WORKER_NO_STATE = 72, WORKER_LOST_BROKER = 73 };
