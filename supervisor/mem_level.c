#include "mem_level.h"

#include <string.h>

#define MIB  (1024.0 * 1024.0)
#define GIB  (1024.0 * MIB)
#define PAGE 4096.0

void mem_level_init(struct mem_level *l, uint64_t enter_us, uint64_t leave_us)
{
    *l = (struct mem_level){.enter_us = enter_us, .leave_us = leave_us, .why = ""};
}

void mem_level_force(struct mem_level *l, uint64_t until)
{
    l->forced_until = until > l->forced_until ? until : l->forced_until;
}

static const struct mem_psi *pressure(const struct mem_sample *s)
{
    return s->own.valid ? &s->own : &s->host; /* an invalid one is all zero */
}

unsigned mem_level_judge(const struct mem_level *l, const struct mem_sample *s, double ease, const char **why)
{
    const struct mem_psi *p = pressure(s);
    double base = (double)mem_base(s), avail = (double)mem_available_eff(s) * ease;
    /* On a machine of 4 GiB, 2 GiB are no sign of want. */
    double floor = 2 * GIB < base / 4 ? 2 * GIB : base / 4;
    const struct {
        unsigned level;
        bool holds;
        const char *why;
    } rows[] = {
        {3, avail < 0.03 * base, "less than 3 % available"},
        {3, p->full10 > 20 * ease, "everything stalls for memory"},
        {3, l->max_rose && p->full10 > 10 * ease, "limit reached, and stalls"},
        {2, avail < 0.08 * base, "less than 8 % available"},
        {2, p->full10 > 5 * ease || p->some10 > 40 * ease, "stalls for memory"},
        {2, l->swap_in_rate > 8 * MIB * ease && (double)s->own_swap > 64 * MIB * ease,
         "pages come back from swap"},
        {2, l->refault_rate > 64 * MIB * ease && s->hot_mapped > 0,
         "mapped weights are read again and again"},
        {1, avail < 0.15 * base, "less than 15 % available"},
        {1, avail < floor, "less than 2 GiB and a quarter available"},
        {1, p->some10 > 10 * ease, "some stall for memory"},
        {1, l->high_rose, "throttled at memory.high"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].holds) {
            *why = rows[i].why;
            return rows[i].level;
        }
    }
    *why = "";
    return 0;
}

static double rate(uint64_t now, uint64_t before, uint64_t us)
{
    return now > before && us > 0 ? (double)(now - before) * PAGE * 1e6 / (double)us : 0.0;
}

static void rates(struct mem_level *l, const struct mem_sample *s, uint64_t now)
{
    uint64_t us = now - l->last_at;
    const struct mem_sample *b = &l->last;
    l->swap_in_rate = l->refault_rate = 0;
    l->high_rose = l->max_rose = false;
    if (!l->have_last)
        return;
    if (s->vm.valid && b->vm.valid)
        l->swap_in_rate = rate(s->vm.swap_in, b->vm.swap_in, us);
    if (s->cgroup.refault_valid && b->cgroup.refault_valid)
        l->refault_rate = rate(s->cgroup.refault_file, b->cgroup.refault_file, us);
    else if (s->vm.valid && b->vm.valid)
        l->refault_rate = rate(s->vm.refault_file, b->vm.refault_file, us);
    l->high_rose = s->cgroup.ev_high > b->cgroup.ev_high;
    l->max_rose = s->cgroup.ev_max > b->cgroup.ev_max;
}

static void keep_since(uint64_t *since, bool holds, uint64_t now)
{
    if (!holds)
        *since = 0;
    else if (*since == 0)
        *since = now > 0 ? now : 1;
}

static bool long_enough(uint64_t since, uint64_t us, uint64_t now)
{
    return since != 0 && now - since >= us;
}

static unsigned invalid(struct mem_level *l)
{
    l->invalid++;
    l->invalid_total++;
    l->have_last = false;
    memset(l->held, 0, sizeof l->held);
    memset(l->clear, 0, sizeof l->clear);
    return l->level;
}

unsigned mem_level_take(struct mem_level *l, const struct mem_sample *s, uint64_t now)
{
    const char *why, *stays;
    if (!s->valid)
        return invalid(l);
    l->invalid = 0;
    rates(l, s, now);
    unsigned up = mem_level_judge(l, s, 1.0, &why), stay = mem_level_judge(l, s, 0.8, &stays);
    if (now < l->forced_until && stay < 2) {
        stay = 2;
        stays = "the kernel killed for want of memory";
        l->level = l->level < 2 ? 2 : l->level; /* evidence enough: at once */
    }
    for (unsigned i = 1; i < MEM_LEVELS; i++) {
        keep_since(&l->held[i], up >= i, now);
        keep_since(&l->clear[i], stay < i, now);
        if (i > l->level && long_enough(l->held[i], l->enter_us, now))
            l->level = i;
    }
    while (l->level > 0 && long_enough(l->clear[l->level], l->leave_us, now))
        l->level--;
    if (l->level == 0)
        l->why = "";
    else if (up >= l->level)
        l->why = why;
    else if (stay >= l->level)
        l->why = stays;
    l->last = *s;
    l->last_at = now;
    l->have_last = true;
    return l->level;
}
