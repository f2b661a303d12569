#include "luastate.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* How many VM instructions pass between two looks at the clock: under a millisecond's worth. */
enum { HOOK_COUNT = 50000 };

/* One worker, one state: the worker is a process of its own. */
static size_t used;
static int64_t turn_start;

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void luastate_turn(void) {
    turn_start = cpu_ns();
}

static void *allocate(void *ud, void *ptr, size_t old, size_t new) {
    (void)ud;
    size_t had = ptr ? old : 0;
    if (new == 0) {
        free(ptr);
        used -= had;
        return NULL;
    }
    if (new > had && used + (new - had) > LUASTATE_MEMORY)
        return NULL;
    void *p = realloc(ptr, new);
    if (p)
        used = used - had + new;
    return p;
}

/* Where it was is in the traceback; luaL_error would add the hook's own place. */
_Noreturn static void interrupted(lua_State *L) {
    lua_pushfstring(L, "interrupted: %d s of processor time without a request",
                    LUASTATE_SPIN_SECONDS);
    lua_error(L);
    abort();
}

/* New coroutines inherit the hook of the one that creates them (lua_newthread), so arming it once
 * on the main state, before anything runs, arms it on all. */
static void on_count(lua_State *L, lua_Debug *ar) {
    (void)ar;
    if (cpu_ns() - turn_start > (int64_t)LUASTATE_SPIN_SECONDS * 1000000000)
        interrupted(L);
}

lua_State *luastate_open(void) {
    static const luaL_Reg libraries[] = {
        {LUA_GNAME, luaopen_base},       {LUA_COLIBNAME, luaopen_coroutine},
        {LUA_TABLIBNAME, luaopen_table}, {LUA_STRLIBNAME, luaopen_string},
        {LUA_MATHLIBNAME, luaopen_math}, {LUA_UTF8LIBNAME, luaopen_utf8},
        {LUA_OSLIBNAME, luaopen_os},
    };
    lua_State *L = lua_newstate(allocate, NULL);
    if (!L)
        return NULL;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    luastate_turn();
    lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_COUNT);
    return L;
}
