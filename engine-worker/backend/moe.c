#include "internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- choice ---- */

struct route_job {
    const struct be_route *r;
    const float *logits;
    int32_t *ids;
    float *w;
    int64_t T, per_piece;
};

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The n_used best by score, in order; NaN comes last. */
static void choose(const struct be_route *r, const float *score, int32_t *ids)
{
    int n = 0;
    for (int e = 0; e < r->n_expert; e++) {
        if (n == r->n_used && !(score[e] > score[ids[n - 1]]))
            continue;
        int at = n < r->n_used ? n++ : n - 1;
        for (; at > 0 && score[e] > score[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = e;
    }
}

/* Softmax over the chosen ones alone is the softmax over all after normalization; without it the others count, too. */
static void softmax_weights(const struct be_route *r, const float *logits, const int32_t *ids, float *w)
{
    float max = logits[ids[0]], sum = 0;
    for (int e = 0; r->bias != NULL && e < r->n_expert; e++)
        max = logits[e] > max ? logits[e] : max; /* the best choice need not have the largest logit */
    for (int j = 0; j < r->n_used; j++)
        w[j] = expf(logits[ids[j]] - max);
    if (r->normalize) {
        for (int j = 0; j < r->n_used; j++)
            sum += w[j];
    } else {
        for (int e = 0; e < r->n_expert; e++)
            sum += expf(logits[e] - max);
    }
    for (int j = 0; j < r->n_used; j++)
        w[j] = w[j] / sum * r->scale;
}

static void sigmoid_weights(const struct be_route *r, const float *logits, const int32_t *ids, float *w)
{
    float sum = 0;
    for (int j = 0; j < r->n_used; j++)
        sum += w[j] = sigmoid(logits[ids[j]]);
    for (int j = 0; j < r->n_used; j++)
        w[j] = (r->normalize ? w[j] / sum : w[j]) * r->scale;
}

/* What the choice goes by: logits order as probabilities do, except where a bias is added to the latter. */
static void scores(const struct be_route *r, const float *logits, float *score)
{
    float max = logits[0], sum = 0;
    for (int e = 1; e < r->n_expert; e++)
        max = logits[e] > max ? logits[e] : max;
    for (int e = 0; e < r->n_expert; e++)
        sum += score[e] = r->sigmoid ? sigmoid(logits[e]) : expf(logits[e] - max);
    for (int e = 0; e < r->n_expert; e++)
        score[e] = (r->sigmoid ? score[e] : score[e] / sum) + r->bias[e];
}

static void route_piece(void *arg, int64_t i)
{
    const struct route_job *j = arg;
    const struct be_route *r = j->r;
    float score[BE_EXPERTS_MAX];
    int64_t end = (i + 1) * j->per_piece;
    for (int64_t t = i * j->per_piece; t < end && t < j->T; t++) {
        const float *logits = j->logits + t * r->n_expert;
        int32_t *ids = j->ids + t * r->n_used;
        if (r->bias != NULL)
            scores(r, logits, score);
        choose(r, r->bias != NULL ? score : logits, ids);
        if (r->sigmoid)
            sigmoid_weights(r, logits, ids, j->w + t * r->n_used);
        else
            softmax_weights(r, logits, ids, j->w + t * r->n_used);
    }
}

void cpu_moe_route(struct be *b, int32_t *ids, float *w, const float *logits, const struct be_route *r,
                   int64_t T)
{
    struct route_job j = {.r = r, .logits = logits, .ids = ids, .w = w, .T = T};
    assert(r->n_used >= 1 && r->n_used <= r->n_expert && r->n_expert <= BE_EXPERTS_MAX);
    if (T <= 0)
        return;
    int64_t n = be_pieces(b, T, T * r->n_expert * 2);
    j.per_piece = (T + n - 1) / n;
    be_pool_run(b->pool, route_piece, &j, n);
}

/* ---- sorting ---- */

void cpu_moe_sort(struct be *b, int32_t *at, int64_t *first, const int32_t *ids, const struct be_route *r,
                  int64_t T)
{
    int64_t n = T * r->n_used, next[BE_EXPERTS_MAX];
    memset(first, 0, (size_t)(r->n_expert + 1) * sizeof *first);
    for (int64_t p = 0; p < n; p++)
        first[ids[p] + 1]++;
    for (int e = 0; e < r->n_expert; e++) {
        first[e + 1] += first[e];
        next[e] = first[e];
    }
    for (int64_t p = 0; p < n; p++)
        at[p] = (int32_t)next[ids[p]]++;
}

struct rows_job {
    const struct be_route *r;
    const float *x, *w;
    float *y;
    const int32_t *at;
    int64_t T, n, per_piece;
};

static void gather_piece(void *arg, int64_t i)
{
    const struct rows_job *j = arg;
    int64_t end = (i + 1) * j->per_piece, k = j->r->n_used;
    for (int64_t p = i * j->per_piece * k; p < end * k && p < j->T * k; p++)
        memcpy(j->y + j->at[p] * j->n, j->x + p / k * j->n, (size_t)j->n * sizeof *j->y);
}

static void combine_piece(void *arg, int64_t i)
{
    const struct rows_job *j = arg;
    int64_t end = (i + 1) * j->per_piece, k = j->r->n_used;
    for (int64_t t = i * j->per_piece; t < end && t < j->T; t++) {
        float *out = j->y + t * j->n;
        memset(out, 0, (size_t)j->n * sizeof *out);
        for (int64_t p = t * k; p < (t + 1) * k; p++) {
            const float *y = j->x + j->at[p] * j->n;
            float w = j->w[p];
            for (int64_t c = 0; c < j->n; c++)
                out[c] += w * y[c];
        }
    }
}

static void run_rows(struct be *b, struct rows_job *j, void (*piece)(void *arg, int64_t i))
{
    if (j->T <= 0)
        return;
    int64_t n = be_pieces(b, j->T, j->T * j->n * j->r->n_used / 8);
    j->per_piece = (j->T + n - 1) / n;
    be_pool_run(b->pool, piece, j, n);
}

void cpu_moe_gather(struct be *b, float *y, const float *x, const int32_t *at, const struct be_route *r,
                    int64_t T, int64_t n)
{
    struct rows_job j = {.r = r, .x = x, .y = y, .at = at, .T = T, .n = n};
    run_rows(b, &j, gather_piece);
}

void cpu_moe_combine(struct be *b, float *out, const float *y, const float *w, const int32_t *at,
                     const struct be_route *r, int64_t T, int64_t n)
{
    struct rows_job j = {.r = r, .x = y, .w = w, .y = out, .at = at, .T = T, .n = n};
    run_rows(b, &j, combine_piece);
}

/* ---- the experts ---- */

#define WEIGHTS 2

/* The work is a line: for each weight, for each expert, its steps of rows of W, each as long as the rows of x that it meets
 * (and one more, for reading W). A piece is a stretch of that line; a step belongs to where it begins. */
struct expert_job {
    struct be *b;
    const struct be_weight *const *w;
    float *const *y;
    const float *x;
    const int64_t *first;
    int n, n_expert;
    int64_t line, per_piece;
};

static int64_t steps_of(const struct be_weight *w)
{
    return (w->n_out + BE_ROW_STEP - 1) / BE_ROW_STEP;
}

static int64_t up_to(int64_t from, int64_t at, int64_t step, int64_t most)
{
    int64_t n = at <= from ? 0 : (at - from + step - 1) / step;
    return n < most ? n : most;
}

static void expert_piece(void *arg, int64_t i)
{
    const struct expert_job *j = arg;
    int64_t lo = i * j->per_piece, hi = lo + j->per_piece, from = 0;
    for (int k = 0; k < j->n; k++)
        for (int e = 0; e < j->n_expert && from < hi; e++) {
            const struct be_weight *w = &j->w[k][e];
            int64_t T = j->first[e + 1] - j->first[e], steps = steps_of(w);
            if (T == 0)
                continue;
            int64_t a = up_to(from, lo, T + 1, steps), z = up_to(from, hi, T + 1, steps);
            from += steps * (T + 1);
            if (a == z)
                continue;
            struct be_mm m = be_mm_rows(j->b, w, j->x, j->first[e], T, j->y[k] + j->first[e] * w->n_out);
            int64_t end = z * BE_ROW_STEP < w->n_out ? z * BE_ROW_STEP : w->n_out;
            j->b->k->mm[be_type(w->type)->kind](&m, a * BE_ROW_STEP, end);
        }
}

void cpu_moe_matmul(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                    const int64_t *first, const struct be_route *r, int64_t T)
{
    struct expert_job j = {.b = b, .w = w, .y = y, .x = x, .first = first, .n = n, .n_expert = r->n_expert};
    bool want[BE_X_N] = {false};
    int64_t rows = first[r->n_expert], n_in = w[0]->n_in;
    assert(n <= WEIGHTS && rows > 0 && rows == T * r->n_used);
    for (int k = 0; k < n; k++) {
        assert(w[k]->n_in == n_in);
        want[be_type(w[k]->type)->xform] = true;
        for (int e = 0; e < r->n_expert; e++)
            if (first[e + 1] > first[e])
                j.line += steps_of(&w[k][e]) * (first[e + 1] - first[e] + 1);
    }
    be_mm_prepare(b, x, rows, n_in, want);
    int64_t pieces = be_pieces(b, j.line, j.line * BE_ROW_STEP * n_in / 16);
    j.per_piece = (j.line + pieces - 1) / pieces;
    be_pool_run(b->pool, expert_piece, &j, (j.line + j.per_piece - 1) / j.per_piece);
}
