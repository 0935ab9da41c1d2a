#include "requests_priv.h"

#include "clock.h"

/* Everything that is owed is tokens that may wait. */
static bool may_wait(const struct requests *rs)
{
    bool any = false;
    for (unsigned i = 0; i < rs->n_used; i++) {
        const struct request *r = rs->at[i];
        if (r != NULL && request_owes(r)) {
            if (!request_may_wait(r))
                return false;
            any = true;
        }
    }
    return any;
}

bool requests_gather(struct requests *rs)
{
    uint64_t now = vt_mono(rs->o.clock), due = rs->tokens_at + REQUESTS_GATHER_US;
    bool owes = may_wait(rs), wait = owes && now < due && !rs->o.send_twice;
    rs->due = wait ? due + REQUESTS_GATHER_US / 2 : 0;
    if (!wait && owes)
        rs->tokens_at = now;
    return wait;
}

uint64_t requests_due(const struct requests *rs)
{
    return rs->due;
}
