/*
 * The modes of the guest program: each takes the arguments after `MODE nonce=HEX` and returns the
 * program's exit status. For main.c only.
 */
#ifndef BOXDRILL_GUEST_MODES_H
#define BOXDRILL_GUEST_MODES_H

/**
 * Runs the stages of SPECs (docs/guest.md, attempt).
 *
 * @param count number of arguments
 * @param args  SPECs and `--`
 * @return 0, or 2 when they are wrong
 */
int mode_attempt(int count, char **args);

/**
 * Runs one command, bounded (docs/guest.md, exec).
 *
 * @param nonce what the last line begins with
 * @param count number of arguments
 * @param args  bounds, `--`, the command
 * @return 0; 2 when they are wrong; 3 when the result could not be had or written
 */
int mode_exec(const char *nonce, int count, char **args);

/**
 * Prints what the box knows of itself (docs/guest.md, info).
 *
 * @return 0
 */
int mode_info(void);

#endif
