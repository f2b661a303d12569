/* The sandbox around a worker, and the self-test that proves it on the running kernel.
 * Called by worker.c in the child, after the Lua state is built and before a script is read. */
#pragma once

#include <stdbool.h>

/* Gives up everything but the socket to the broker: descriptors, capabilities, uid (when root),
 * new privileges, the file system (Landlock) and, with a seccomp allow-list, every system call
 * but memory, clock, read and write on that socket, and exit. A refused call kills the process
 * with SIGSYS.
 * socket: the only descriptor that stays open.
 * Returns 0, or -errno; the caller must exit then. A kernel without Landlock is no error (see
 * sandbox_landlock_abi); one without seccomp is (-ENOSYS or -EINVAL). */
int sandbox_enter(int socket);

/* The kernel's Landlock ABI, or 0 where it has none (landlock(7)). */
int sandbox_landlock_abi(void);

/* Whether the kernel can filter system calls with seccomp. */
bool sandbox_seccomp(void);

/* `boxdrill --sandbox-selftest`: for each thing a worker must not do, shows that it works outside
 * and is refused inside, one line each on stdout. Returns 0 when all were refused, else 1. */
int sandbox_selftest(void);
