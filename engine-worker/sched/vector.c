/* Vectors of a request: what is pooled of the hidden states behind the output norm. */
#include "internal.h"
#include "score.h"

static void tell(const struct eng *e, const struct request *r, uint32_t first, uint32_t n, const float *v)
{
    e->ev.vectors(e->ev_arg, r->handle, first, n, (uint32_t)e->model->n_embd, v);
}

/* In double, so that the sum of a long text is as good as that of a short one. */
static void add_rows(double *sum, const float *rows, uint32_t n_rows, size_t n)
{
    for (uint32_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n; j++)
            sum[j] += (double)rows[i * n + j];
}

bool vector_take(struct eng *e, const struct slot *s, const struct fw_run *run)
{
    const struct request *r = s->req;
    size_t n = (size_t)e->model->n_embd;
    uint32_t from = s->seq.n, n_rows = (uint32_t)run->n_rows;
    const float *rows = e->hidden + (size_t)run->row0 * n;
    bool whole = from + n_rows == r->n_items;
    if (!score_finite(rows, n_rows * (uint32_t)n))
        return false;
    if (r->pool == ENG_POOL_ROWS)
        tell(e, r, from, n_rows, rows);
    else if (r->pool == ENG_POOL_FIRST && from == 0)
        tell(e, r, 0, 1, rows);
    else if (r->pool == ENG_POOL_LAST && whole)
        tell(e, r, 0, 1, rows + (n_rows - 1) * n);
    if (r->pool != ENG_POOL_MEAN)
        return true;
    add_rows(r->sum, rows, n_rows, n);
    for (size_t j = 0; whole && j < n; j++)
        e->pooled[j] = (float)(r->sum[j] / r->n_items);
    if (whole)
        tell(e, r, 0, 1, e->pooled);
    return true;
}
