#include "state.h"

#include <stddef.h>

#define U        STATE_UNDEFINED
#define DOWN     VT_CHILD_DOWN
#define STARTING VT_CHILD_STARTING
#define LOADING  VT_CHILD_LOADING
#define READY    VT_CHILD_READY
#define DRAINING VT_CHILD_DRAINING
#define HUNG     VT_CHILD_HUNG
#define REAPING  VT_CHILD_REAPING
#define BACKOFF  VT_CHILD_BACKOFF
#define FAILED   VT_CHILD_FAILED

/* clang-format off */
static const signed char next[CHILD_STATES][EV_COUNT] = {
    /*            SPAWNED   REFUSED SPAWN_F  HELLO    READY  DRAIN     HANG  KILL     EXIT     G_DOWN G_BACKOFF G_FAILED UNKILL  WANT_DN RESET */
    [DOWN]     = {STARTING, FAILED, BACKOFF, U,       U,     U,        U,    U,       U,       U,     U,        U,       U,      DOWN,   DOWN},
    [STARTING] = {U,        U,      U,       LOADING, U,     U,        U,    REAPING, REAPING, U,     U,        U,       U,      U,      STARTING},
    [LOADING]  = {U,        U,      U,       U,       READY, DRAINING, HUNG, REAPING, REAPING, U,     U,        U,       U,      U,      LOADING},
    [READY]    = {U,        U,      U,       U,       U,     DRAINING, HUNG, REAPING, REAPING, U,     U,        U,       U,      U,      READY},
    [DRAINING] = {U,        U,      U,       U,       U,     DRAINING, HUNG, REAPING, REAPING, U,     U,        U,       U,      U,      DRAINING},
    [HUNG]     = {U,        U,      U,       U,       U,     U,        U,    REAPING, REAPING, U,     U,        U,       U,      U,      HUNG},
    /* KILL again: a second signal to a process that was leaving by itself */
    [REAPING]  = {U,        U,      U,       U,       U,     U,        U,    REAPING, REAPING, DOWN,  BACKOFF,  FAILED,  FAILED, U,      REAPING},
    [BACKOFF]  = {STARTING, FAILED, BACKOFF, U,       U,     U,        U,    U,       U,       U,     U,        U,       U,      DOWN,   BACKOFF},
    /* EXIT: an unkillable process disappeared after all */
    [FAILED]   = {STARTING, FAILED, BACKOFF, U,       U,     U,        U,    U,       REAPING, U,     U,        U,       U,      DOWN,   FAILED},
};
/* clang-format on */

int state_next(enum vt_child_state s, enum child_event e)
{
    if ((unsigned)s >= CHILD_STATES || (unsigned)e >= EV_COUNT)
        return STATE_UNDEFINED;
    return next[s][e];
}

const char *child_event_name(enum child_event e)
{
    static const char *const names[EV_COUNT] = {
        "spawned", "refused",   "spawn-failed", "hello",       "ready",      "drain",     "hang", "kill",
        "exit",    "gone-down", "gone-backoff", "gone-failed", "unkillable", "want-down", "reset"};
    return (unsigned)e < EV_COUNT ? names[e] : "?";
}

const char *child_state_name(unsigned s)
{
    static const char *const names[] = {"down", "starting", "loading", "ready", "draining",
                                        "hung", "reaping",  "backoff", "failed"};
    return s < CHILD_STATES ? names[s] : "?";
}
