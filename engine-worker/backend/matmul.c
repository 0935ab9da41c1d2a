#include "internal.h"

#include <assert.h>

#define MAX_TOGETHER 8
#define ROW_STEP     16 /* pieces begin at whole tiles of every kernel */

/* One call: the activations in each form that a weight asked for, and the rows of all weights one after
 * another. */
struct job {
    struct be *b;
    const float *x;
    int64_t T, n_in;
    bool want[BE_X_N];
    struct be_mm mm[MAX_TOGETHER];
    be_mm_fn *fn[MAX_TOGETHER];
    int64_t steps[MAX_TOGETHER]; /* row steps of each weight */
    int n;
    int64_t n_steps, per_piece;
    int64_t x_per_piece;
};

static void prepare_row(const struct job *j, int64_t t)
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
    const struct job *j = arg;
    int64_t end = (i + 1) * j->x_per_piece;
    for (int64_t t = i * j->x_per_piece; t < end && t < j->T; t++)
        prepare_row(j, t);
}

static void prepare(struct job *j)
{
    if (!j->want[BE_X_Q32] && !j->want[BE_X_Q256])
        return;
    be_need(j->b, j->T, j->n_in);
    int64_t n = be_pieces(j->b, j->T, j->T * j->n_in / 2);
    j->x_per_piece = (j->T + n - 1) / n;
    be_pool_run(j->b->pool, prepare_piece, j, n);
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
        int64_t r1 = z * ROW_STEP < j->mm[k].n_out ? z * ROW_STEP : j->mm[k].n_out;
        j->fn[k](&j->mm[k], a * ROW_STEP, r1);
    }
}

static void add_weight(struct job *j, float *y, const struct be_weight *w)
{
    const struct be_type *t = be_type(w->type);
    struct be *b = j->b;
    assert(t != NULL && w->n_in == j->n_in);
    struct be_mm *m = &j->mm[j->n];
    enum be_xform f = t->xform;
    *m = (struct be_mm){.type = w->type,
                        .w = w->data,
                        .row_bytes = ggml_row_bytes(w->type, (uint64_t)w->n_in),
                        .n_in = w->n_in,
                        .n_out = w->n_out,
                        .T = j->T,
                        .y = y};
    m->x = (struct be_x){.f = j->x,
                         .f_stride = j->n_in,
                         .q = b->q[f],
                         .d = b->d[f],
                         .s16 = b->s16[f],
                         .s32 = b->s32[f],
                         .q_stride = j->n_in,
                         .d_stride = f == BE_X_Q256 ? j->n_in / 256 : j->n_in / 32,
                         .s16_stride = j->n_in / 16,
                         .s32_stride = j->n_in / 32};
    j->fn[j->n] = b->k->mm[t->kind];
    j->steps[j->n] = (w->n_out + ROW_STEP - 1) / ROW_STEP;
    j->n_steps += j->steps[j->n++];
}

static void matmul_some(struct be *b, float *const *y, const struct be_weight *const *w, int n,
                        const float *x, int64_t T)
{
    struct job j = {.b = b, .x = x, .T = T, .n_in = w[0]->n_in};
    for (int i = 0; i < n; i++)
        j.want[be_type(w[i]->type)->xform] = true;
    prepare(&j);
    for (int i = 0; i < n; i++)
        add_weight(&j, y[i], w[i]);
    int64_t pieces = be_pieces(b, j.n_steps, j.n_steps * ROW_STEP * j.n_in * T / 16);
    j.per_piece = (j.n_steps + pieces - 1) / pieces;
    be_pool_run(b->pool, matmul_piece, &j, (j.n_steps + j.per_piece - 1) / j.per_piece);
}

void be_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                 int64_t T)
{
    for (int i = 0; i < n && T > 0; i += MAX_TOGETHER)
        matmul_some(b, y + i, w + i, n - i < MAX_TOGETHER ? n - i : MAX_TOGETHER, x, T);
}

void be_matmul(struct be *b, float *y, const struct be_weight *w, const float *x, int64_t T)
{
    be_matmul_n(b, &y, &w, 1, x, T);
}

void be_get_row(struct be *b, float *out, const struct be_weight *w, int64_t row)
{
    assert(row >= 0 && row < w->n_out);
    be_dequant(w->type, (const uint8_t *)w->data + (size_t)row * ggml_row_bytes(w->type, (uint64_t)w->n_in),
               out, w->n_in);
}
