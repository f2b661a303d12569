#define _GNU_SOURCE
#include "worker.h"

#include "luastate.h"
#include "sandbox.h"
#include "wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* The worker's end of the socket. Blocking: a worker has nothing else to do while it waits. */
static int broker_fd;
static struct buffer incoming;
static uint32_t next_id = 1;

_Noreturn static void lost_broker(void) {
    _exit(WORKER_LOST_BROKER);
}

static void write_all(const char *data, size_t len) {
    while (len) {
        ssize_t n = write(broker_fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            lost_broker();
        data += n;
        len -= (size_t)n;
    }
}

static void read_more(void) {
    enum { CHUNK = 65536 };
    buffer_reserve(&incoming, CHUNK);
    ssize_t n = read(broker_fd, incoming.data + incoming.len, CHUNK);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0)
        lost_broker();
    incoming.len += (size_t)n;
}

/* raw.send(op, ...) -> id: writes one request of the given strings. */
static int raw_send(lua_State *L) {
    struct buffer out = {0};
    uint32_t id = next_id++;
    size_t frame = wire_begin(&out, id);
    for (int i = 1; i <= lua_gettop(L); i++) {
        size_t len = 0;
        const char *s = lua_tolstring(L, i, &len);
        if (s)
            wire_add(&out, frame, s, len);
    }
    int r = wire_end(&out, frame);
    if (r == 0)
        write_all(out.data, out.len);
    buffer_free(&out);
    if (r < 0)
        return luaL_error(L, "request too large (at most %d bytes, %d strings)", WIRE_MAX_FRAME,
                          WIRE_MAX_STRINGS);
    lua_pushinteger(L, id);
    return 1;
}

/* Pushes the reply at the front of `incoming`, if it is complete. Lua may longjmp from here for
 * want of memory; then the worker ends, so nothing is freed twice. */
static int push_reply(lua_State *L) {
    struct frame f;
    int64_t taken = wire_decode(incoming.data, incoming.len, &f);
    if (taken < 0)
        lost_broker();
    if (taken == 0)
        return 0;
    luaL_checkstack(L, (int)f.count + 1, "reply");
    lua_pushinteger(L, f.id);
    for (unsigned i = 0; i < f.count; i++)
        lua_pushlstring(L, f.strings[i].data, f.strings[i].len);
    int pushed = (int)f.count + 1;
    frame_free(&f);
    buffer_consume(&incoming, (size_t)taken);
    return pushed;
}

/* raw.recv() -> id, status, ...: waits for one reply. */
static int raw_recv(lua_State *L) {
    lua_settop(L, 0);
    for (;;) {
        int pushed = push_reply(L);
        if (pushed) {
            luastate_turn();
            return pushed;
        }
        read_more();
    }
}

static int raw_clock(lua_State *L) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    lua_pushnumber(L, (lua_Number)t.tv_sec + (lua_Number)t.tv_nsec / 1e9);
    return 1;
}

/* raw.random() -> 32 hexadecimal digits of the kernel's random numbers. Lua's own generator is
 * seeded alike in workers forked in one second, and a box must not guess a run's nonce. */
static int raw_random(lua_State *L) {
    unsigned char bytes[16];
    char text[2 * sizeof(bytes) + 1];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return luaL_error(L, "getrandom failed");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    lua_pushlstring(L, text, 2 * sizeof(bytes));
    return 1;
}

/* raw.traceback(thread or nil, message) -> text */
static int raw_traceback(lua_State *L) {
    lua_State *of = lua_isthread(L, 1) ? lua_tothread(L, 1) : L;
    luaL_traceback(L, of, luaL_checkstring(L, 2), of == L ? 1 : 0);
    return 1;
}

/* cjson comes as a shared library without headers or a development link in Debian; its entry
 * point is found by name, before the sandbox forbids opening files. */
static lua_CFunction find_cjson(void) {
    void *library = dlopen("liblua5.4-cjson.so.0", RTLD_NOW | RTLD_LOCAL);
    lua_CFunction open = NULL;
    if (library)
        *(void **)&open = dlsym(library, "luaopen_cjson");
    return open;
}

/* Leaves the table of raw functions on the stack. */
static void push_raw(lua_State *L, lua_CFunction open_cjson) {
    static const luaL_Reg functions[] = {{"send", raw_send},           {"recv", raw_recv},
                                         {"clock", raw_clock},         {"random", raw_random},
                                         {"traceback", raw_traceback}, {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_pushcfunction(L, open_cjson);
    lua_call(L, 0, 1);
    lua_setfield(L, -2, "cjson");
}

/* Runs inside pcall: fetches the prelude from the broker and calls it. */
static int run_prelude(lua_State *L) {
    lua_pushcfunction(L, raw_send);
    lua_pushliteral(L, "module");
    lua_pushliteral(L, "prelude");
    lua_call(L, 2, 0);
    lua_pushcfunction(L, raw_recv);
    lua_call(L, 0, 4); /* id, status, chunk name, source */
    size_t len = 0;
    const char *source = lua_tolstring(L, -1, &len);
    if (!source || luaL_loadbufferx(L, source, len, "@prelude.lua", "t") != LUA_OK)
        return luaL_error(L, "prelude: %s", lua_tostring(L, -1));
    lua_pushvalue(L, 1);
    lua_call(L, 1, 0);
    return 0;
}

/* An error outside what the prelude catches: in the prelude itself, or for want of memory. */
static void report_failure(lua_State *L) {
    const char *message = lua_tostring(L, -1);
    struct buffer out = {0};
    size_t frame = wire_begin(&out, next_id);
    wire_add_text(&out, frame, "fail");
    wire_add_text(&out, frame, message ? message : "an error without a message");
    wire_add_text(&out, frame, "");
    if (wire_end(&out, frame) == 0)
        write_all(out.data, out.len);
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* The terminal's Ctrl-C and timeout(1)'s TERM go to the whole process group, to what reverts
     * the run as well: the broker decides, not we. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

_Noreturn void worker_main(int socket) {
    reset_signals();
    broker_fd = socket;
    setenv("TZ", "UTC0", 1);
    tzset(); /* looks at files, once: os.date must not */
    lua_CFunction open_cjson = find_cjson();
    lua_State *L = luastate_open();
    if (!L || !open_cjson)
        _exit(WORKER_NO_STATE);
    if (sandbox_enter(socket) < 0)
        _exit(WORKER_NO_SANDBOX);
    lua_pushcfunction(L, run_prelude);
    push_raw(L, open_cjson);
    if (lua_pcall(L, 1, 0, 0) == LUA_OK)
        _exit(0);
    report_failure(L);
    _exit(1);
}
