/* Requests that wait while the beginning of their prompt is fetched. Such a request is not in the core; whatever happens to
 * it meanwhile, it goes there first, so that each has one way to its end. */
#include "requests_priv.h"

static bool put_now(struct requests *rs, struct request *r)
{
    struct vt_err err;
    r->fetching = false;
    if (requests_put(rs, r, false) == 0)
        return true;
    vt_fail(&err, VT_E_NOMEM, "no memory for the request");
    requests_end_with(rs, r, &err);
    return false;
}

/* Its fetch is given up. */
static bool release(struct requests *rs, struct request *r)
{
    rs->o.fetch_cancel(rs->o.arg, r->handle);
    return put_now(rs, r);
}

void requests_wants(struct requests *rs, struct request *r, uint32_t resident)
{
    if (!r->cancelled && !r->hurried && rs->o.fetch(rs->o.arg, r->handle, &r->submit, resident)) {
        r->fetching = true;
        return;
    }
    bool hurried = r->hurried && !r->cancelled;
    if (!put_now(rs, r))
        return;
    if (r->cancelled || r->hurried)
        requests_tell_core(rs, CMD_CANCEL, r->handle, 0);
    r->park |= hurried;
}

void requests_fetched(struct requests *rs, uint64_t handle)
{
    struct request *r = requests_by_handle(rs, handle);
    if (r != NULL && r->fetching)
        put_now(rs, r);
}

/* The core may not have it yet, and forgets a cancel of what it does not know. */
void requests_cancel(struct requests *rs, struct request *r)
{
    r->cancelled = r->pending;
    if (!r->fetching || release(rs, r))
        requests_tell_core(rs, CMD_CANCEL, r->handle, 0);
}

void requests_hurry(struct requests *rs)
{
    for (unsigned i = 0; i < rs->n_used; i++) {
        struct request *r = rs->at[i];
        if (r == NULL || !requests_in_core(r) || !r->pending)
            continue;
        if (r->fetching)
            release(rs, r);
        else
            r->hurried = true;
    }
}
