/* Mem gain: what a restart of a child would give back, when one may be made for that, and whether a child leaks. Pure.
 *
 * A child's footprint is what ends with it: anonymous, shared and swapped-out pages and pinned buffers. Its baseline is
 * the footprint after loading plus what it was promised and had not touched yet (the KV pool), so that growing into its
 * own plan is no growth. Resident size says nothing in either direction: mapped weights come and go, and pages that were
 * swapped out are still held.
 *
 * A leak is never judged from a rising window: the alarm needs six hours, and a rise that has not flattened. */
#ifndef MEM_GAIN_H
#define MEM_GAIN_H

#include <stdbool.h>
#include <stdint.h>

#define MEM_BOUNCES_KEPT 64
#define MEM_TREND_STEP   600000000ull /* one point in 10 min */
#define MEM_TREND_POINTS 37           /* six hours */

struct mem_bounces {
    uint64_t at[MEM_BOUNCES_KEPT]; /* of the last ones */
    unsigned n;
};

struct mem_limits {
    uint64_t gain;         /* bytes that a bounce must give back */
    uint64_t min_interval; /* us between two */
    unsigned per_day;
};

enum mem_verdict {
    MEM_BOUNCE,
    MEM_INNOCENT, /* nothing to be had from it */
    MEM_TOO_SOON, /* the last one was less than min_interval ago */
    MEM_DAY_FULL,
};

/* Bytes above the baseline. */
uint64_t mem_gain(uint64_t footprint, uint64_t baseline);
enum mem_verdict mem_bounce_judge(const struct mem_bounces *b, const struct mem_limits *l, uint64_t gain,
                                  uint64_t now);
void mem_bounce_note(struct mem_bounces *b, uint64_t now);

struct mem_trend {
    uint64_t value[MEM_TREND_POINTS]; /* a ring */
    unsigned n;
    uint64_t at; /* of the last point */
};

/* Takes a value; one in MEM_TREND_STEP becomes a point. */
void mem_trend_take(struct mem_trend *t, uint64_t value, uint64_t now);
/* Six hours are full, it rose by at least `least` bytes, in every hour, and the last two hours rose at least half as
 * fast as all six. */
bool mem_trend_leaks(const struct mem_trend *t, uint64_t least);

#endif
