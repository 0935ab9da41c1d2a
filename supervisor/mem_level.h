/* Mem level: how short memory is, 0 normal to 3 critical, from samples. Pure; times come from the caller.
 *
 * A level is entered when one of its conditions held for enter_us, and left when all of them were clear of 80 % of their
 * thresholds for leave_us. An invalid sample is never judged: it is counted, and what was about to be entered starts
 * again. Swap is no headroom and no threshold; how fast pages come back from it is. */
#ifndef MEM_LEVEL_H
#define MEM_LEVEL_H

#include "mem_read.h"

#define MEM_LEVELS 4
#define MEM_BROKEN 10 /* invalid samples in a row that are worth an alarm */

struct mem_level {
    uint64_t enter_us, leave_us;
    unsigned level;
    const char *why;            /* the condition that holds the level, static text; "" at level 0 */
    uint64_t held[MEM_LEVELS];  /* since when this level's conditions hold without a break; 0: they do not */
    uint64_t clear[MEM_LEVELS]; /* since when this level's weaker conditions are all clear; 0: they are not */
    uint64_t forced_until;      /* not below 2 until then */
    unsigned invalid;           /* invalid samples in a row */
    uint64_t invalid_total;
    /* rates need the sample before */
    bool have_last;
    uint64_t last_at;
    struct mem_sample last;
    double swap_in_rate, refault_rate; /* bytes a second */
    bool high_rose, max_rose;
};

void mem_level_init(struct mem_level *l, uint64_t enter_us, uint64_t leave_us);
/* One sample. Returns the level. */
unsigned mem_level_take(struct mem_level *l, const struct mem_sample *s, uint64_t now);
/* The kernel has killed for want of memory: at least level 2 until then. */
void mem_level_force(struct mem_level *l, uint64_t until);
/* The level that the conditions of one sample amount to; ease 1.0 for entering, 0.8 for leaving. */
unsigned mem_level_judge(const struct mem_level *l, const struct mem_sample *s, double ease,
                         const char **why);

#endif
