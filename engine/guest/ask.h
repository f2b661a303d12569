/*
 * The words with which `await` and `stop` speak to a `listen`, in UDP datagrams on its own port.
 * docs/guest.md tells who may. For ask.c and listen.c only.
 *
 *     await: ASK_QUERY CHALLENGE            -> ASK_HELD CHALLENGE TOKEN
 *     stop:  ASK_STOP CHALLENGE TOKEN       -> ASK_STOPPED CHALLENGE
 *
 * A program that merely echoes answers neither: the answer's first word differs. One that does not
 * know the token cannot answer the first, since the query does not carry it.
 */
#ifndef BOXDRILL_GUEST_ASK_H
#define BOXDRILL_GUEST_ASK_H

#define ASK_QUERY   "boxdrill-await"
#define ASK_HELD    "boxdrill-held"
#define ASK_STOP    "boxdrill-stop"
#define ASK_STOPPED "boxdrill-stopped"

/** Room for any of these datagrams, NUL included. */
#define ASK_BYTES 160

#endif
