#include "internal.h"

#include <assert.h>

#define MAX_TOGETHER 8

/* The activations of one call in each form that a weight asked for. */
struct prepare {
    struct be *b;
    const float *x;
    int64_t T, n_in, per_piece;
    const bool *want; /* [BE_X_N] */
};

/* The rows of all weights one after another. */
struct job {
    struct be_mm mm[MAX_TOGETHER];
    be_mm_fn *fn[MAX_TOGETHER];
    int64_t steps[MAX_TOGETHER]; /* row steps of each weight */
    int n;
    int64_t n_steps, per_piece;
};

static void prepare_row(const struct prepare *j, int64_t t)
{
    struct be *b = j->b;
    const float *x = j->x + t * j->n_in;
    int64_t q = t * j->n_in, k32 = t * (j->n_in / 32), k16 = t * (j->n_in / 16), k256 = t * (j->n_in / 256);
    if (j->want[BE_X_Q32])
        b->k->quant_q32(x, j->n_in, b->q[BE_X_Q32] + q, b->d[BE_X_Q32] + k32, b->s32[BE_X_Q32] + k32);
    if (j->want[BE_X_Q256])
        b->k->quant_q256(x, j->n_in, b->q[BE_X_Q256] + q, b->d[BE_X_Q256] + k256, b->s16[BE_X_Q256] + k16,
                         b->s32[BE_X_Q256] + k32);
}

static void prepare_piece(void *arg, int64_t i)
{
    const struct prepare *j = arg;
    int64_t end = (i + 1) * j->per_piece;
    for (int64_t t = i * j->per_piece; t < end && t < j->T; t++)
        prepare_row(j, t);
}

void be_mm_prepare(struct be *b, const float *x, int64_t T, int64_t n_in, const bool want[BE_X_N])
{
    struct prepare j = {.b = b, .x = x, .T = T, .n_in = n_in, .want = want};
    if (!want[BE_X_Q32] && !want[BE_X_Q256])
        return;
    be_need(b, T, n_in);
    int64_t n = be_pieces(b, T, T * n_in / 2);
    j.per_piece = (T + n - 1) / n;
    be_pool_run(b->pool, prepare_piece, &j, n);
}

struct be_mm be_mm_rows(const struct be *b, const struct be_weight *w, const float *x, int64_t row0,
                        int64_t T, float *y)
{
    const struct be_type *t = be_type(w->type);
    assert(t != NULL);
    enum be_xform f = t->xform;
    int64_t n = w->n_in, d_stride = f == BE_X_Q256 ? n / 256 : n / 32;
    struct be_mm m = {.type = w->type,
                      .w = w->data,
                      .row_bytes = ggml_row_bytes(w->type, (uint64_t)n),
                      .n_in = n,
                      .n_out = w->n_out,
                      .T = T,
                      .y = y};
    m.x = (struct be_x){.f = x + row0 * n,
                        .f_stride = n,
                        .q_stride = n,
                        .d_stride = d_stride,
                        .s16_stride = n / 16,
                        .s32_stride = n / 32};
    if (f == BE_X_F32)
        return m;
    m.x.q = b->q[f] + row0 * n;
    m.x.d = b->d[f] + row0 * d_stride;
    m.x.s16 = b->s16[f] + row0 * (n / 16);
    m.x.s32 = b->s32[f] + row0 * (n / 32);
    return m;
}

/* Piece i is a range of row steps that may cross from one weight to the next. */
static void matmul_piece(void *arg, int64_t i)
{
    const struct job *j = arg;
    int64_t s = i * j->per_piece, end = s + j->per_piece < j->n_steps ? s + j->per_piece : j->n_steps,
            first = 0;
    for (int k = 0; k < j->n; first += j->steps[k++]) {
        int64_t a = s > first ? s - first : 0, z = end - first < j->steps[k] ? end - first : j->steps[k];
        if (a >= z)
            continue;
        int64_t r1 = z * BE_ROW_STEP < j->mm[k].n_out ? z * BE_ROW_STEP : j->mm[k].n_out;
        j->fn[k](&j->mm[k], a * BE_ROW_STEP, r1);
    }
}

static void matmul_some(struct be *b, float *const *y, const struct be_weight *const *w, int n,
                        const float *x, int64_t T)
{
    struct job j = {.n = n};
    int64_t n_in = w[0]->n_in;
    bool want[BE_X_N] = {false};
    for (int i = 0; i < n; i++)
        want[be_type(w[i]->type)->xform] = true;
    be_mm_prepare(b, x, T, n_in, want);
    for (int i = 0; i < n; i++) {
        assert(w[i]->n_in == n_in);
        j.mm[i] = be_mm_rows(b, w[i], x, 0, T, y[i]);
        j.fn[i] = b->k->mm[be_type(w[i]->type)->kind];
        j.steps[i] = (w[i]->n_out + BE_ROW_STEP - 1) / BE_ROW_STEP;
        j.n_steps += j.steps[i];
    }
    int64_t pieces = be_pieces(b, j.n_steps, j.n_steps * BE_ROW_STEP * n_in * T / 16);
    j.per_piece = (j.n_steps + pieces - 1) / pieces;
    be_pool_run(b->pool, matmul_piece, &j, (j.n_steps + j.per_piece - 1) / j.per_piece);
}

void cpu_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                  int64_t T)
{
    for (int i = 0; i < n && T > 0; i += MAX_TOGETHER)
        matmul_some(b, y + i, w + i, n - i < MAX_TOGETHER ? n - i : MAX_TOGETHER, x, T);
}

void be_get_row(struct be *b, float *out, const struct be_weight *w, int64_t row)
{
    assert(row >= 0 && row < w->n_out);
    be_dequant(w->type, (const uint8_t *)w->data + (size_t)row * ggml_row_bytes(w->type, (uint64_t)w->n_in),
               out, w->n_in);
}

void cpu_get_rows(struct be *b, float *out, const struct be_weight *w, const uint32_t *ids, int64_t T)
{
    for (int64_t t = 0; t < T; t++)
        be_get_row(b, out + t * w->n_in, w, ids[t]);
}
