#define _GNU_SOURCE
#include "loop.h"

#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct timer {
    struct timer *next;
    int64_t at;
    void (*callback)(void *);
    void *data;
};

struct watch {
    struct watch *next;
    int fd;
    short events;
    bool stopped; /* freed by the loop when no callback can be using it */
    void (*callback)(void *);
    void *data;
};

static struct timer *timers;
static struct watch *watches;
static CURLM *multi;

int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void *must_calloc(size_t size) {
    void *p = calloc(1, size);
    if (!p)
        abort();
    return p;
}

struct timer *timer_start(int64_t ms, void (*callback)(void *), void *data) {
    struct timer *t = must_calloc(sizeof(*t));
    *t = (struct timer){timers, now_ms() + ms, callback, data};
    timers = t;
    return t;
}

void timer_stop(struct timer *t) {
    for (struct timer **p = &timers; *p; p = &(*p)->next) {
        if (*p == t) {
            *p = t->next;
            free(t);
            return;
        }
    }
}

/* Takes the first timer that is due off the list. */
static struct timer *take_due(int64_t now) {
    for (struct timer **p = &timers; *p; p = &(*p)->next) {
        struct timer *t = *p;
        if (t->at <= now) {
            *p = t->next;
            return t;
        }
    }
    return NULL;
}

static void run_timers(void) {
    int64_t now = now_ms();
    for (struct timer *t = take_due(now); t; t = take_due(now)) {
        t->callback(t->data);
        free(t);
    }
}

struct watch *watch_start(int fd, short events, void (*callback)(void *), void *data) {
    struct watch *w = must_calloc(sizeof(*w));
    *w = (struct watch){watches, fd, events, false, callback, data};
    watches = w;
    return w;
}

void watch_events(struct watch *w, short events) {
    w->events = events;
}

void watch_stop(struct watch *w) {
    if (w)
        w->stopped = true;
}

static void sweep_watches(void) {
    for (struct watch **p = &watches; *p;) {
        struct watch *w = *p;
        if (!w->stopped) {
            p = &w->next;
            continue;
        }
        *p = w->next;
        free(w);
    }
}

static CURLM *loop_curl(void) {
    if (!multi) {
        curl_global_init(CURL_GLOBAL_NOTHING);
        multi = curl_multi_init();
        if (!multi)
            abort();
    }
    return multi;
}

/* A handle of its own each time: before 8.8 libcurl does not clear CURLINFO_OS_ERRNO in a used one.
 */
void transfer_init(struct transfer *t, const char *url, int64_t timeout_ms) {
    t->easy = curl_easy_init();
    if (!t->easy)
        abort();
    curl_easy_setopt(t->easy, CURLOPT_URL, url);
    curl_easy_setopt(t->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
}

void transfer_start(struct transfer *t) {
    curl_multi_add_handle(loop_curl(), t->easy);
}

void transfer_free(struct transfer *t) {
    if (!t->easy)
        return;
    curl_multi_remove_handle(loop_curl(), t->easy);
    curl_easy_cleanup(t->easy);
    t->easy = NULL;
}

static void run_transfers(void) {
    int running = 0, left = 0;
    curl_multi_perform(loop_curl(), &running);
    for (CURLMsg *m = curl_multi_info_read(multi, &left); m;
         m = curl_multi_info_read(multi, &left)) {
        struct transfer *t = NULL;
        CURLcode code = m->data.result;
        if (m->msg == CURLMSG_DONE &&
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t) == CURLE_OK)
            t->done(t, code);
    }
}

static int wait_ms(int max_ms) {
    int64_t now = now_ms(), wait = max_ms;
    for (const struct timer *t = timers; t; t = t->next)
        if (t->at - now < wait)
            wait = t->at > now ? t->at - now : 0;
    return (int)wait;
}

/* One curl_multi_poll serves the transfers and every watched descriptor. A watch without events
 * is left out, or its hang-up would wake the loop for ever. */
void loop_step(int max_ms) {
    unsigned n = 0;
    sweep_watches();
    for (const struct watch *w = watches; w; w = w->next)
        n += w->events != 0;
    struct curl_waitfd *fds = must_calloc((n + 1) * sizeof(*fds));
    struct watch **of = must_calloc((n + 1) * sizeof(struct watch *));
    n = 0;
    for (struct watch *w = watches; w; w = w->next) {
        if (!w->events)
            continue;
        fds[n] = (struct curl_waitfd){w->fd, 0, 0};
        if (w->events & POLLIN)
            fds[n].events |= CURL_WAIT_POLLIN;
        if (w->events & POLLOUT)
            fds[n].events |= CURL_WAIT_POLLOUT;
        of[n++] = w;
    }
    curl_multi_poll(loop_curl(), fds, n, wait_ms(max_ms), NULL);
    for (unsigned i = 0; i < n; i++)
        if (fds[i].revents && !of[i]->stopped)
            of[i]->callback(of[i]->data);
    free(fds);
    free(of);
    run_timers();
    run_transfers();
}
