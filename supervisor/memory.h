/* Memory: vitriold's sampler, once a second, four times a second while memory is short or the kernel tells of stalls, and
 * what is done about each level:
 *
 *   1  engines save their checkpoints now
 *   2  engines take one request at a time; a child that holds more than its plan is restarted in order, if that gives
 *      enough back and the limits allow it; else somebody else is to blame, and the event names the largest five
 *   3  engines take no new request; after five seconds such a child gets five seconds to park, save and go
 *
 * Nothing is done on a sample that cannot be trusted. mem_read.h, mem_level.h and mem_gain.h hold the rules. Main thread. */
#ifndef MEMORY_H
#define MEMORY_H

#include "mem_read.h"
#include "sup.h"

struct memory_child {
    struct mem_foot foot;
    uint64_t baseline, gain;
    bool settled; /* baseline is known */
};

struct memory_view {
    unsigned level;
    const char *why;
    uint64_t usable, base, invalid, bounces;
    const struct mem_sample *sample;
    bool trigger; /* the kernel wakes us */
    const char *trigger_why;
};

int memory_open(struct sup *s, struct vt_err *err);
void memory_close(struct sup *s);
void memory_look(const struct sup *s, struct memory_view *v);
const struct memory_child *memory_of(const struct sup *s, const struct child *c);
/* The kernel killed a child for want of memory. */
void memory_killed(struct sup *s);
/* Its cgroup throttles it: slow is no hang. */
bool memory_throttles(const struct sup *s, const struct child *c);

#endif
