/* States of a child of vitriold: the numbers that ROUTES, T_ROUTES, T_CHILDREN and vitriol_child_state carry. */
#ifndef VT_CHILD_STATE_H
#define VT_CHILD_STATE_H

enum vt_child_state {
    VT_CHILD_DOWN,     /* not wanted, or stopped by order */
    VT_CHILD_STARTING, /* executed, no HELLO yet */
    VT_CHILD_LOADING,
    VT_CHILD_READY,
    VT_CHILD_DRAINING,
    VT_CHILD_HUNG,    /* liveness lost, evidence is being captured */
    VT_CHILD_REAPING, /* waits until the process and what it held are gone */
    VT_CHILD_BACKOFF, /* waits for its next start */
    VT_CHILD_FAILED,  /* breaker open, or a fault that a restart does not cure */
    VT_CHILD_STATES
};

static inline const char *vt_child_state_name(unsigned state)
{
    static const char *const names[] = {"down", "starting", "loading", "ready",  "draining",
                                        "hung", "reaping",  "backoff", "failed", "?"};
    return names[state < VT_CHILD_STATES ? state : VT_CHILD_STATES];
}

#endif
