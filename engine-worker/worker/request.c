#include "request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void request_release(struct request *r)
{
    free(r->blob);
    free(r->ids);
    free(r->logprob);
    free(r->top);
    free(r->vec);
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

bool request_add_vectors(struct request *r, uint32_t first, const float *v, uint32_t n, uint32_t dim)
{
    if (v == NULL || first != r->n_vec || (r->n_vec > 0 && dim != r->dim))
        return false;
    float *grown = realloc(r->vec, ((size_t)first + n) * dim * sizeof *grown);
    if (grown == NULL)
        return false;
    memcpy(grown + (size_t)first * dim, v, (size_t)n * dim * sizeof *grown);
    r->vec = grown;
    r->dim = dim;
    r->n_vec += n;
    return true;
}

bool request_whole(const struct request *r)
{
    return (r->ids != NULL || r->n == 0) && (r->vec != NULL || r->n_vec == 0);
}

void request_forget_output(struct request *r)
{
    free(r->vec);
    r->vec = NULL;
    free(r->ids);
    free(r->logprob);
    free(r->top);
    r->ids = NULL;
    r->logprob = NULL;
    r->top = NULL;
    r->cap = 0;
}
