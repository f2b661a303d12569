/*
 * What reaches the box's links, before any firewall of the box's own: who sends frames towards a
 * listener's port, and who asks for its address; with a mark, whatever reaches one link, and which
 * of the marked frames. Frames of others only, never the box's own. For listen.c only.
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

/** What every marked frame holds: these bytes, the mark, and one byte that numbers it. */
#define FRAME_MAGIC       "bd-frame"
#define FRAME_MAGIC_BYTES 8

/** A sender, with one kind of frame. */
struct frame_source {
    const char *kind; /**< one of the constants that docs/guest.md lists */
    bool has_mac;
    uint8_t mac[ETH_ALEN];
    struct sockaddr_storage addr;
    unsigned count;
};

/** A marked frame that came. */
struct frame_marked {
    uint8_t number;
    uint8_t mac[ETH_ALEN]; /**< who sent it, as the frame says */
    unsigned count;
};

/** What came. Zeroed, then frames_open(). */
struct frames {
    int fd;                  /**< the packet socket, -1 if there is none */
    int error;               /**< errno of what kept it from watching; 0: it watches */
    const struct spec *spec; /**< the listener's */
    unsigned count;
    unsigned more; /**< of senders that did not fit */
    struct frame_source sources[FRAMES_MAX];
    size_t source_count;
    unsigned watched; /**< with a mark: all that came */
    struct frame_marked marked[FRAMES_MAX];
    size_t marked_count;
};

/**
 * Begins to watch every link but loopback ones, or, with a mark, the one link. A failure is kept in
 * `error`.
 *
 * @param frames zeroed
 * @param spec   the listener's; must stay valid. Without an address whichever is asked for by ARP
 * or ND counts
 */
void frames_open(struct frames *frames, const struct spec *spec);

/**
 * Takes one frame.
 *
 * @param frames open
 * @return false: none was there
 */
bool frames_take(struct frames *frames);

/**
 * Appends what came, or why nobody looked: ` watched=N marked=... frames=N frames-seen=...` or
 * ` frames-errno=NAME`.
 *
 * @param frames opened
 * @param line   a begun line
 */
void frames_add(struct frames *frames, struct line *line);

#endif
