/* State: what a child's state becomes at each event. One table; every pair that is not in it is a fault of ours. Pure. */
#ifndef STATE_H
#define STATE_H

#include "frame.h"

enum child_event {
    EV_SPAWNED,      /* executed */
    EV_REFUSED,      /* a gate said no: nothing was executed, trying again cannot help */
    EV_SPAWN_FAILED, /* nothing was executed, trying again may help */
    EV_HELLO,
    EV_READY,
    EV_DRAIN, /* ordered to end its work and leave */
    EV_HANG,  /* liveness lost with work in flight: evidence first, then KILL */
    EV_KILL,  /* SIGKILL was sent */
    EV_EXIT,  /* the process is gone */
    EV_GONE_DOWN,
    EV_GONE_BACKOFF,
    EV_GONE_FAILED,
    EV_UNKILLABLE, /* still there 20 s after SIGKILL */
    EV_WANT_DOWN,  /* no longer wanted, and nothing runs */
    EV_RESET,      /* an operator clears what was learned: the timer fires now */
    EV_COUNT
};

#define CHILD_STATES    9
#define STATE_UNDEFINED (-1)

/* The next state, or STATE_UNDEFINED. */
int state_next(enum vt_child_state s, enum child_event e);
const char *child_state_name(unsigned s);
const char *child_event_name(enum child_event e);

#endif
