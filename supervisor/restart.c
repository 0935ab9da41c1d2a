#include "restart.h"

#include "clock.h"

#include <string.h>

#define HALF_OPEN_US VT_SEC(900)
#define OPEN_MAX_US  VT_SEC(7200)
#define SERVED_US    VT_MS(200) /* the first delay after a generation that served */

static uint64_t backoff(const struct restart *r, const struct restart_policy *p, enum exit_class c)
{
    /* streak 1 is the first failure, 0 one of a generation that served; a short first delay is followed by the same
     * ladder 1, 2, 4 … */
    uint64_t first = r->streak == 0 && p->first_us > SERVED_US ? SERVED_US : p->first_us;
    unsigned step = r->streak == 0 ? 0 : r->streak - 1;
    if (first < VT_SEC(1)) {
        if (step == 0)
            return first < p->max_us ? first : p->max_us;
        step--;
    }
    uint64_t d = VT_SEC(1) << (step < 20 ? step : 20);
    if (c == CLASS_OOM_KILL)
        d *= 2;
    return d < p->max_us ? d : p->max_us;
}

static uint64_t jitter(uint64_t d, uint64_t random)
{
    uint64_t span = d * 2 / 5; /* ±20 % */
    return span == 0 ? d : d - span / 2 + random % (span + 1);
}

static bool crash_loop(const struct restart *r, uint64_t now)
{
    unsigned have = r->n_failed < RESTART_MEMORY ? r->n_failed : RESTART_MEMORY;
    unsigned in_hour = 0, early = 0;
    for (unsigned i = 0; i < have; i++) {
        uint64_t age = now - r->failed_at[i];
        in_hour += age <= VT_SEC(3600);
        early += age <= VT_SEC(600) && !r->was_ready[i];
    }
    return early >= 5 || in_hour >= RESTART_MEMORY;
}

/* False when the failure says nothing about the child. */
static bool remember(struct restart *r, enum exit_class c, enum restart_life life, uint64_t now)
{
    if (life == LIFE_SERVED && c == CLASS_SIGKILL_UNKNOWN)
        return false;
    unsigned at = r->n_failed++ % RESTART_MEMORY;
    r->failed_at[at] = now;
    r->was_ready[at] = life != LIFE_STARTED;
    return true;
}

enum restart_verdict restart_failed(struct restart *r, const struct restart_policy *p, enum exit_class c,
                                    enum restart_life life, uint64_t now, uint64_t random, uint64_t *delay_us)
{
    bool counts = remember(r, c, life, now);
    r->streak = life == LIFE_SERVED ? 0 : r->streak + 1;
    r->open = r->open && life != LIFE_SERVED;
    *delay_us = 0;
    if (exit_class_final(c))
        return RESTART_FINAL;
    bool patient = !counts || (life == LIFE_SERVED && !p->breaker);
    bool tried = r->open && p->breaker; /* half open: the one start that was allowed has failed */
    if (!tried && (patient || !crash_loop(r, now))) {
        *delay_us = jitter(backoff(r, p, c), random);
        return RESTART_WAIT;
    }
    if (!p->breaker) {
        *delay_us = jitter(p->max_us, random);
        return RESTART_WAIT;
    }
    uint64_t d = r->opened >= 3 ? OPEN_MAX_US : HALF_OPEN_US << r->opened;
    r->opened++;
    r->open = true;
    *delay_us = d < OPEN_MAX_US ? d : OPEN_MAX_US;
    return RESTART_OPEN;
}

void restart_reset(struct restart *r)
{
    memset(r, 0, sizeof *r);
}
