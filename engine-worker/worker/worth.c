#include "worth.h"

void worth_restored(struct worth *w, uint32_t tokens, uint64_t us)
{
    w->total.restored += tokens;
    w->total.spent_us += us;
    w->recent.restored += tokens;
    w->recent.spent_us += us;
}

static void add(struct worth_sum *s, uint32_t offered, uint32_t reused)
{
    s->followed++;
    s->offered += offered;
    s->reused += reused;
}

static void age(struct worth_sum *s)
{
    s->restored /= 2;
    s->spent_us /= 2;
    s->followed /= 2;
    s->offered /= 2;
    s->reused /= 2;
}

bool worth_followed(struct worth *w, uint32_t offered, uint32_t same, uint64_t n_ids, uint32_t reused,
                    uint32_t slack)
{
    if (offered == 0)
        return true;
    /* What lies behind the common beginning was not reused, whatever else the request found. */
    uint32_t used = reused < same ? reused : same;
    bool useless = same == offered && n_ids > offered && (uint64_t)reused + slack < offered;
    add(&w->total, offered, used);
    add(&w->recent, offered, used);
    if (w->recent.followed >= WORTH_MANY)
        age(&w->recent);
    w->useless += useless;
    return !useless;
}

bool worth_turns_poor(struct worth *w, double us_per_token)
{
    const struct worth_sum *r = &w->recent;
    bool before = w->poor;
    if (r->followed < WORTH_ENOUGH || us_per_token <= 0 || r->restored == 0)
        return false;
    /* Restores that nobody has followed yet are not held against the others. */
    double spent = (double)r->spent_us * (double)r->offered / (double)r->restored;
    w->poor = (double)r->reused * us_per_token < spent;
    return w->poor && !before;
}
