/*
 * What reaches the box's links, before any firewall of the box's own: who sends frames towards a
 * listener's port, and who asks for its address. Frames of others only, never the box's own. For
 * listen.c only.
 */
#ifndef BOXDRILL_GUEST_FRAMES_H
#define BOXDRILL_GUEST_FRAMES_H

#include "line.h"
#include "spec.h"

#include <net/ethernet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAMES_MAX 64

/** A sender, with one kind of frame. */
struct frame_source {
    const char *kind; /**< one of the constants that docs/guest.md lists */
    bool has_mac;
    uint8_t mac[ETH_ALEN];
    struct sockaddr_storage addr;
    unsigned count;
};

/** What came. Zeroed, then frames_open(). */
struct frames {
    int fd;    /**< the packet socket, -1 if there is none */
    int error; /**< errno of what kept it from watching; 0: it watches */
    struct spec_address bind;
    unsigned count;
    unsigned more; /**< of senders that did not fit */
    struct frame_source sources[FRAMES_MAX];
    size_t source_count;
};

/**
 * Begins to watch every link but loopback ones. A failure is kept in `error`.
 *
 * @param frames zeroed
 * @param port   the listener's
 * @param bind   its address; AF_UNSPEC: whichever is asked for by ARP or ND counts
 */
void frames_open(struct frames *frames, uint16_t port, const struct spec_address *bind);

/**
 * Takes one frame.
 *
 * @param frames open
 * @return false: none was there
 */
bool frames_take(struct frames *frames);

/**
 * Appends what came, or why nobody looked: ` frames=N frames-seen=...` or ` frames-errno=NAME`.
 *
 * @param frames opened
 * @param line   a begun line
 */
void frames_add(struct frames *frames, struct line *line);

#endif
