/* Liveness: is a child making progress? Measured in steps, never in answers. Pure; every time comes from the caller, so
 * that hours pass in milliseconds in tests.
 *
 * With work in flight the age of the last step counts; a beat that repeats the same step is no progress. Who waits for a
 * neighbour, the store or a client's credit is not blamed for standing still. Without work the
 * beats themselves count, and for an engine the canary's answer. While loading, ticks of PHASE count. The budget of an
 * operation kind is the greater of its floor and 8 times the 99th percentile of its step ages seen so far. */
#ifndef LIVENESS_H
#define LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#define LIVE_OPS     8
#define LIVE_BUCKETS 40

/* Ages by powers of two of a millisecond. */
struct live_hist {
    uint32_t n, bucket[LIVE_BUCKETS];
};

/* What a floor is for each child; all in microseconds. */
struct live_budget {
    uint64_t hello;      /* from spawn to HELLO */
    uint64_t load_stall; /* loading without a tick */
    uint64_t load_max;
    uint64_t hang;    /* work in flight without a step; also: no beat at all */
    uint64_t suspect; /* beats missing this long are worth a look at the process */
};

/* Key `wait` of BEAT. */
enum live_wait { LIVE_WAIT_NONE, LIVE_WAIT_NEIGHBOUR, LIVE_WAIT_STORE, LIVE_WAIT_DEVICE, LIVE_WAIT_CREDIT };

enum live_phase { LIVE_OFF, LIVE_STARTING, LIVE_LOADING, LIVE_SERVING };

enum live_verdict {
    LIVE_OK,
    LIVE_SUSPECT, /* told once until beats come again */
    LIVE_HELLO_TIMEOUT,
    LIVE_LOAD_STALL,
    LIVE_LOAD_MAX,
    LIVE_HUNG,
    LIVE_SILENT, /* hung: nothing heard, not even a beat */
    LIVE_CANARY_LOST,
};

struct liveness {
    enum live_phase phase;
    uint64_t since;   /* when the phase began */
    uint64_t beat_at; /* last beat */
    uint64_t step_at; /* last time the step counter moved, or work began */
    uint64_t tick_at; /* last tick of a load */
    uint64_t tick_sum;
    uint64_t canary_at;   /* sent and not answered; 0: none open */
    uint64_t canary_done; /* last answer */
    uint64_t proved_at;   /* last step or canary's answer since READY; 0: none yet */
    uint64_t step;
    uint32_t in_flight;
    uint8_t op, wait;
    bool suspect;
    struct live_hist hist[LIVE_OPS];
};

struct live_beat {
    uint64_t step, step_age_us;
    uint32_t in_flight;
    uint8_t op, wait;
};

/* A new phase; LIVE_STARTING forgets the last generation but not the histograms. */
void live_enter(struct liveness *l, enum live_phase phase, uint64_t now);
void live_beat(struct liveness *l, const struct live_beat *b, uint64_t now);
/* Progress of a load: anything that differs from the last one is a tick. */
void live_tick(struct liveness *l, unsigned phase, uint64_t done, uint64_t now);
void live_canary_sent(struct liveness *l, uint64_t now);
void live_canary_answered(struct liveness *l, uint64_t now);
/* Is it time for a canary: serving, idle, none open, none for `every`; the first one after `soon`, for until then nobody
 * knows whether the child can serve. */
bool live_canary_due(const struct liveness *l, uint64_t every, uint64_t soon, uint64_t now);
/* Work has been seen done at least `after` its READY. */
bool live_served(const struct liveness *l, uint64_t ready_at, uint64_t after);

enum live_verdict live_judge(struct liveness *l, const struct live_budget *b, uint64_t now);
/* Age of the last step while work is in flight, else 0. */
uint64_t live_step_age(const struct liveness *l, uint64_t now);
/* What the budget of the current operation is. */
uint64_t live_hang_budget(const struct liveness *l, const struct live_budget *b);
/* Our own clock cannot be trusted for a while: limits are extended by that much and every age starts anew. */
void live_grace(struct liveness *l, uint64_t extend, uint64_t now);
const char *live_verdict_name(enum live_verdict v);

/* Watches the watcher: tells when the loop was late or the machine was suspended, since then a deadline that has passed
 * proves nothing. */
struct live_guard {
    uint64_t mono, suspended; /* at the last turn */
    bool started;
};

/* One turn of the loop that was due after `period`. Returns the microseconds that deadlines must be extended by: the
 * lateness if over 2 s, plus what suspend added. 0: all is well. *suspended tells the two apart. */
uint64_t live_guard_turn(struct live_guard *g, uint64_t mono, uint64_t boot, uint64_t period,
                         bool *suspended);

#endif
