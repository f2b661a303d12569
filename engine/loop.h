/* The broker's event loop: timers, readable descriptors, and libcurl's transfers. */
#pragma once

#include <curl/curl.h>
#include <stdint.h>

struct timer;
struct watch;

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t now_ms(void);

/* Calls back once, ms from now. The timer is gone when it has fired. */
struct timer *timer_start(int64_t ms, void (*callback)(void *), void *data);
/* Stops one that has not fired. NULL is fine. */
void timer_stop(struct timer *t);

/* Calls back whenever fd has one of `events` (POLLIN, POLLOUT) or a hang-up, until stopped. */
struct watch *watch_start(int fd, short events, void (*callback)(void *), void *data);
void watch_events(struct watch *w, short events);
void watch_stop(struct watch *w);

/* A transfer of libcurl's. Its owner embeds this and is called back when the transfer ended. */
struct transfer {
    CURL *easy;
    void (*done)(struct transfer *, CURLcode);
};
/* Makes a fresh easy handle, with what all share (no proxy, no signals, the time limit). */
void transfer_init(struct transfer *t, const char *url, int64_t timeout_ms);
void transfer_start(struct transfer *t);
/* Ends it, if need be, and frees the handle. */
void transfer_free(struct transfer *t);

/* Waits for something, at most max_ms, and makes the callbacks it calls for. */
void loop_step(int max_ms);
