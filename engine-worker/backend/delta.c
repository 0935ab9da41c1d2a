#include "internal.h"

#include <assert.h>
#include <math.h>

/* Four passes over a batch: convolution over time (by channels), unit q and k (by rows), the recurrence (by
 * head and columns of its state: columns do not depend on each other), norm and gate (by rows). */
struct job {
    const struct be_kernels *k;
    const struct be_delta *d;
    const struct be_delta_run *runs;
    int n_runs;
    float *u, *out;
    const float *z, *bt, *at;
    int64_t T, cd;
    int64_t per_piece, conv_parts, col_parts;
};

#define CONV_CHANNELS 64

static int64_t channels(const struct be_delta *d)
{
    return 2 * (int64_t)d->n_k_head * d->dk + (int64_t)d->n_v_head * d->dv;
}

size_t be_delta_state_floats(const struct be_delta *d)
{
    return (size_t)((d->conv_k - 1) * channels(d) + (int64_t)d->n_v_head * d->dk * d->dv);
}

void be_delta_gates(const struct be_delta_piece *p, int64_t t, float *alpha, float *beta)
{
    float x = p->at[t * p->g_stride] + p->dt_bias;
    float softplus = x > 20.0f ? x : log1pf(expf(x));
    *alpha = expf(p->a * softplus);
    *beta = 1.0f / (1.0f + expf(-p->bt[t * p->g_stride]));
}

static void conv_piece(void *arg, int64_t i)
{
    const struct job *j = arg;
    const struct be_delta_run *r = &j->runs[i / j->conv_parts];
    int64_t c0 = i % j->conv_parts * CONV_CHANNELS,
            n = j->cd - c0 < CONV_CHANNELS ? j->cd - c0 : CONV_CHANNELS;
    j->k->conv(j->u + r->row0 * j->cd + c0, r->n_rows, j->cd, n, j->d->conv_w + c0 * j->d->conv_k,
               j->d->conv_k, r->state + j->d->state_at + c0, j->cd);
}

static void unit_row(const struct job *j, int64_t t)
{
    const struct be_delta *d = j->d;
    float *q = j->u + t * j->cd, *k = q + (int64_t)d->n_k_head * d->dk;
    float scale = 1.0f / sqrtf((float)d->dk);
    for (int h = 0; h < d->n_k_head; h++) {
        j->k->l2norm(q + (int64_t)h * d->dk, d->dk, scale);
        j->k->l2norm(k + (int64_t)h * d->dk, d->dk, 1.0f);
    }
}

static void delta_piece(void *arg, int64_t i)
{
    const struct job *j = arg;
    const struct be_delta *d = j->d;
    int c0 = (int)(i % j->col_parts) * BE_DELTA_LANES;
    int h = (int)(i / j->col_parts % d->n_v_head);
    const struct be_delta_run *r = &j->runs[i / j->col_parts / d->n_v_head];
    int kh = d->grouped ? h / (d->n_v_head / d->n_k_head) : h % d->n_k_head;
    int64_t kd = (int64_t)d->n_k_head * d->dk;
    const float *u = j->u + r->row0 * j->cd;
    struct be_delta_piece p = {
        .q = u + (int64_t)kh * d->dk,
        .k = u + kd + (int64_t)kh * d->dk,
        .v = u + 2 * kd + (int64_t)h * d->dv + c0,
        .bt = j->bt + r->row0 * d->n_v_head + h,
        .at = j->at + r->row0 * d->n_v_head + h,
        .o = j->out + (r->row0 * d->n_v_head + h) * d->dv + c0,
        .u_stride = j->cd,
        .g_stride = d->n_v_head,
        .o_stride = (int64_t)d->n_v_head * d->dv,
        .n_rows = r->n_rows,
        .dk = d->dk,
        .n_cols = d->dv - c0 < BE_DELTA_LANES ? d->dv - c0 : BE_DELTA_LANES,
        .s_stride = d->dv,
        .dt_bias = d->dt_bias[h],
        .a = d->a[h],
        .s = r->state + d->state_at + (d->conv_k - 1) * j->cd + (int64_t)h * d->dk * d->dv + c0,
    };
    j->k->delta(&p);
}

static void gate_row(const struct job *j, int64_t t)
{
    const struct be_delta *d = j->d;
    for (int h = 0; h < d->n_v_head; h++) {
        int64_t at = (t * d->n_v_head + h) * d->dv;
        j->k->gated_norm(j->out + at, j->z + at, d->norm_w, d->dv, d->eps);
    }
}

/* Rows of the runs only: a batch may hold rows of other layers' business. */
static void each_row(const struct job *j, int64_t i, void (*one)(const struct job *j, int64_t t))
{
    int64_t a = i * j->per_piece, z = a + j->per_piece, first = 0;
    for (int r = 0; r < j->n_runs; first += j->runs[r++].n_rows)
        for (int64_t t = a > first ? a - first : 0; t < j->runs[r].n_rows && first + t < z; t++)
            one(j, j->runs[r].row0 + t);
}

static void unit_piece(void *arg, int64_t i)
{
    each_row(arg, i, unit_row);
}

static void gate_piece(void *arg, int64_t i)
{
    each_row(arg, i, gate_row);
}

static void run_rows(struct be *b, struct job *j, void (*piece)(void *, int64_t), int64_t work)
{
    int64_t n = be_pieces(b, j->T, work);
    j->per_piece = (j->T + n - 1) / n;
    be_pool_run(b->pool, piece, j, n);
}

/* n pieces that exist anyway, shared only when that pays. */
static void run_pieces(struct be *b, struct job *j, void (*piece)(void *, int64_t), int64_t n, int64_t work)
{
    if (be_pieces(b, n, work) > 1) {
        be_pool_run(b->pool, piece, j, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        piece(j, i);
}

void cpu_delta_net(struct be *b, float *out, const struct be_delta *d, float *u, const float *z,
                   const float *bt, const float *at, const struct be_delta_run *runs, int n_runs, int64_t T)
{
    assert(d->n_v_head % d->n_k_head == 0 && d->conv_k >= 1 && d->conv_k <= BE_CONV_MAX);
    struct job j = {.k = b->k,
                    .d = d,
                    .runs = runs,
                    .n_runs = n_runs,
                    .u = u,
                    .out = out,
                    .z = z,
                    .bt = bt,
                    .at = at,
                    .cd = channels(d),
                    .T = T};
    if (T == 0)
        return;
    j.conv_parts = (j.cd + CONV_CHANNELS - 1) / CONV_CHANNELS;
    j.col_parts = (d->dv + BE_DELTA_LANES - 1) / BE_DELTA_LANES;
    run_pieces(b, &j, conv_piece, n_runs * j.conv_parts, j.T * j.cd);
    run_rows(b, &j, unit_piece, j.T * d->n_k_head * d->dk / 4);
    run_pieces(b, &j, delta_piece, n_runs * d->n_v_head * j.col_parts, j.T * d->n_v_head * d->dk * d->dv / 8);
    run_rows(b, &j, gate_piece, j.T * d->n_v_head * d->dv);
}
