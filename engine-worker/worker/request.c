#include "request.h"

#include <math.h>
#include <stdlib.h>

void request_release(struct request *r)
{
    free(r->blob);
    free(r->ids);
    free(r->logprob);
    free(r->top);
    free(r->error);
    free(r);
}

static bool grow(struct request *r)
{
    uint32_t cap = r->cap > 0 ? r->cap * 2 : 64;
    uint32_t *ids = realloc(r->ids, cap * sizeof *ids);
    if (ids == NULL)
        return false;
    r->ids = ids;
    if (r->submit.logprobs > 0) {
        float *lp = realloc(r->logprob, cap * sizeof *lp);
        if (lp == NULL)
            return false;
        r->logprob = lp;
    }
    if (r->n_top > 0) {
        struct eng_top *top = realloc(r->top, (size_t)cap * r->n_top * sizeof *top);
        if (top == NULL)
            return false;
        r->top = top;
    }
    r->cap = cap;
    return true;
}

bool request_add_id(struct request *r, uint32_t id, float logprob, const struct eng_top *top, unsigned n_top)
{
    if (r->n == r->cap && !grow(r))
        return false;
    if (r->logprob != NULL)
        r->logprob[r->n] = logprob;
    for (unsigned k = 0; k < r->n_top; k++)
        r->top[(size_t)r->n * r->n_top + k] = k < n_top ? top[k] : (struct eng_top){id, NAN};
    r->ids[r->n++] = id;
    return true;
}

void request_forget_output(struct request *r)
{
    free(r->ids);
    free(r->logprob);
    free(r->top);
    r->ids = NULL;
    r->logprob = NULL;
    r->top = NULL;
    r->cap = 0;
}
