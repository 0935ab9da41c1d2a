#include "internal.h"

#include <math.h>
#include <string.h>

/* Operations that take each row by itself: the driver hands ranges of rows to the pool. */
struct rows {
    struct be *b;
    void (*one)(const struct rows *r, int64_t t);
    float *y;
    const float *x, *w;
    const int32_t *pick;
    int64_t T, n, stride, y_stride;
    float eps; /* or the one number that the operation takes */
    int64_t per_piece;
};

static void rows_piece(void *arg, int64_t i)
{
    const struct rows *r = arg;
    int64_t end = (i + 1) * r->per_piece;
    for (int64_t t = i * r->per_piece; t < end && t < r->T; t++)
        r->one(r, t);
}

/* cost: nanoseconds per 16 values, roughly */
static void run_rows(struct rows *r, int64_t cost)
{
    int64_t n = be_pieces(r->b, r->T, r->T * r->n * cost / 16);
    if (r->T <= 0)
        return;
    r->per_piece = (r->T + n - 1) / n;
    be_pool_run(r->b->pool, rows_piece, r, n);
}

static void one_rmsnorm(const struct rows *r, int64_t t)
{
    r->b->k->rmsnorm(r->y + t * r->n, r->x + t * r->n, r->w, r->n, r->eps);
}

void cpu_rmsnorm(struct be *b, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps)
{
    struct rows r = {.b = b, .one = one_rmsnorm, .y = y, .x = x, .w = w, .T = T, .n = n, .eps = eps};
    run_rows(&r, 2);
}

static void one_add(const struct rows *r, int64_t t)
{
    r->b->k->add(r->y + t * r->n, r->x + t * r->n, r->n);
}

void cpu_add(struct be *b, float *y, const float *x, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_add, .y = y, .x = x, .T = T, .n = n};
    run_rows(&r, 1);
}

static void one_silu_mul(const struct rows *r, int64_t t)
{
    r->b->k->silu_mul(r->y + t * r->n, r->x + t * r->n, r->n);
}

void cpu_silu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_silu_mul, .y = g, .x = u, .T = T, .n = n};
    run_rows(&r, 8);
}

static void one_gelu_mul(const struct rows *r, int64_t t)
{
    r->b->k->gelu_mul(r->y + t * r->n, r->x + t * r->n, r->n);
}

void cpu_gelu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_gelu_mul, .y = g, .x = u, .T = T, .n = n};
    run_rows(&r, 8);
}

static void one_softcap(const struct rows *r, int64_t t)
{
    r->b->k->softcap(r->y + t * r->n, r->n, r->eps);
}

void cpu_softcap(struct be *b, float *x, float cap, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_softcap, .y = x, .T = T, .n = n, .eps = cap};
    run_rows(&r, 8);
}

static void one_add_bias(const struct rows *r, int64_t t)
{
    r->b->k->add(r->y + t * r->n, r->w, r->n);
}

void cpu_add_bias(struct be *b, float *y, const float *bias, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_add_bias, .y = y, .w = bias, .T = T, .n = n};
    run_rows(&r, 1);
}

static void one_scale(const struct rows *r, int64_t t)
{
    for (int64_t i = 0; i < r->n; i++)
        r->y[t * r->n + i] *= r->eps;
}

void cpu_scale(struct be *b, float *x, float by, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_scale, .y = x, .T = T, .n = n, .eps = by};
    run_rows(&r, 1);
}

static void one_row_gate(const struct rows *r, int64_t t)
{
    float g = 1.0f / (1.0f + expf(-r->x[t]));
    for (int64_t i = 0; i < r->n; i++)
        r->y[t * r->n + i] *= g;
}

void cpu_row_gate(struct be *b, float *x, const float *g, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_row_gate, .y = x, .x = g, .T = T, .n = n};
    run_rows(&r, 1);
}

static void one_sigmoid_gate(const struct rows *r, int64_t t)
{
    r->b->k->sigmoid_gate(r->y + t * r->n, r->x + t * r->stride, r->n);
}

void cpu_sigmoid_gate(struct be *b, float *x, const float *g, int64_t g_stride, int64_t T, int64_t n)
{
    struct rows r = {.b = b, .one = one_sigmoid_gate, .y = x, .x = g, .T = T, .n = n, .stride = g_stride};
    run_rows(&r, 8);
}

static void one_copy(const struct rows *r, int64_t t)
{
    memcpy(r->y + t * r->y_stride, r->x + (r->pick ? r->pick[t] : t) * r->stride,
           (size_t)r->n * sizeof *r->y);
}

void cpu_copy_rows(struct be *b, float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t T,
                   int64_t n)
{
    struct rows r = {
        .b = b, .one = one_copy, .y = y, .x = x, .T = T, .n = n, .stride = x_stride, .y_stride = y_stride};
    run_rows(&r, 1);
}

void cpu_pick_rows(struct be *b, float *y, const float *x, const int32_t *rows, int64_t T, int64_t n)
{
    struct rows r = {
        .b = b, .one = one_copy, .y = y, .x = x, .pick = rows, .T = T, .n = n, .stride = n, .y_stride = n};
    run_rows(&r, 1);
}

int64_t be_argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}
