#include "mem_gain.h"

#include "clock.h"
#define HOUR_POINTS 6u

uint64_t mem_gain(uint64_t footprint, uint64_t baseline)
{
    return footprint > baseline ? footprint - baseline : 0;
}

enum mem_verdict mem_bounce_judge(const struct mem_bounces *b, const struct mem_limits *l, uint64_t gain,
                                  uint64_t now)
{
    unsigned have = b->n < MEM_BOUNCES_KEPT ? b->n : MEM_BOUNCES_KEPT, today = 0;
    if (gain == 0 || gain < l->gain)
        return MEM_INNOCENT;
    for (unsigned i = 0; i < have; i++) {
        if (now - b->at[i] < l->min_interval)
            return MEM_TOO_SOON;
        today += now - b->at[i] < VT_SEC(86400);
    }
    return today >= l->per_day ? MEM_DAY_FULL : MEM_BOUNCE;
}

void mem_bounce_note(struct mem_bounces *b, uint64_t now)
{
    b->at[b->n++ % MEM_BOUNCES_KEPT] = now;
}

void mem_trend_take(struct mem_trend *t, uint64_t value, uint64_t now)
{
    if (t->n > 0 && now - t->at < MEM_TREND_STEP)
        return;
    t->value[t->n++ % MEM_TREND_POINTS] = value;
    t->at = now;
}

/* The i-th point, oldest first, of a full ring. */
static uint64_t point(const struct mem_trend *t, unsigned i)
{
    return t->value[(t->n + i) % MEM_TREND_POINTS];
}

bool mem_trend_leaks(const struct mem_trend *t, uint64_t least)
{
    const unsigned last = MEM_TREND_POINTS - 1;
    if (t->n < MEM_TREND_POINTS || point(t, last) < point(t, 0) + least)
        return false;
    for (unsigned i = 0; i < last; i += HOUR_POINTS) {
        if (point(t, i + HOUR_POINTS) <= point(t, i))
            return false;
    }
    uint64_t all = point(t, last) - point(t, 0), late = point(t, last) - point(t, last - 2 * HOUR_POINTS);
    return late * 6 >= all; /* two of six hours at half the pace: a sixth of the rise */
}
