/* Restart: backoff with jitter and the circuit breaker of one child. Pure; time and randomness come from the caller.
 *
 * 1, 2, 4 … 60 s, ±20 %; gateway and store begin with 0.2 s. A generation that served (restart_life) ends the streak: the
 * next one starts after 0.2 s, for what its clients wait for was healthy. The breaker opens at 5 failures in 600 s
 * without reaching ready, or 8 in 3600 s in any case, less those of generations that served and were killed from
 * outside, which is no fault of theirs; one that served and then crashed counts, for a request may do it every time. The
 * breaker lets one try through after 900 s, then after twice that, up to 2 h. The gateway's breaker never opens, since
 * connections wait in the listening socket meanwhile. */
#ifndef RESTART_H
#define RESTART_H

#include "exits.h"

#include <stdbool.h>
#include <stdint.h>

#define RESTART_MEMORY 8

struct restart_policy {
    uint64_t first_us; /* first delay */
    uint64_t max_us;   /* longest delay, 60 s by default */
    bool breaker;      /* may open */
};

struct restart {
    unsigned streak; /* failures since a generation served */
    uint64_t failed_at[RESTART_MEMORY];
    bool was_ready[RESTART_MEMORY]; /* the failed generation had been ready */
    unsigned n_failed;              /* all that count for the breaker; the ring holds the last ones */
    unsigned opened;                /* times in a row that the breaker opened */
    bool open;
};

/* How far a generation came. Served: it made a step or answered a canary at least RESTART_SERVED_US after its READY. */
enum restart_life { LIFE_STARTED, LIFE_READY, LIFE_SERVED };

enum restart_verdict { RESTART_WAIT, RESTART_OPEN, RESTART_FINAL };

/* One failed generation. RESTART_WAIT: start again after *delay_us; RESTART_OPEN: failed, one try after *delay_us;
 * RESTART_FINAL: failed until reset. random: any number, for the jitter. */
enum restart_verdict restart_failed(struct restart *r, const struct restart_policy *p, enum exit_class c,
                                    enum restart_life life, uint64_t now, uint64_t random,
                                    uint64_t *delay_us);
/* Ready for 600 s with work done, or an operator says so: what was learned is forgotten. */
void restart_reset(struct restart *r);

#define RESTART_STABLE_US 600000000ull
#define RESTART_SERVED_US 2000000ull

#endif
