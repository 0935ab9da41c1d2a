#include "internal.h"

#include <assert.h>
#include <math.h>

#define MAX_PAIRS 512

struct job {
    float *x;
    int64_t T, row_stride, head_stride, per_piece;
    int n_head;
    const struct be_rope *r;
    const int32_t *pos;
};

static void rotate_interleaved(float *x, const float *c, const float *s, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * c[i] - b * s[i];
        x[2 * i + 1] = a * s[i] + b * c[i];
    }
}

static void rotate_halves(float *restrict x, float *restrict y, const float *restrict c,
                          const float *restrict s, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        float a = x[i], b = y[i];
        x[i] = a * c[i] - b * s[i];
        y[i] = a * s[i] + b * c[i];
    }
}

/* The product of position and frequency is taken in double: at a position of a million a float has lost the
 * fraction. */
static void rope_row(const struct job *j, int64_t t)
{
    float c[MAX_PAIRS], s[MAX_PAIRS];
    int pairs = j->r->n_rot / 2;
    for (int i = 0; i < pairs; i++) {
        double a = (double)j->pos[t] * (double)j->r->freq[i];
        c[i] = (float)cos(a) * j->r->mscale;
        s[i] = (float)sin(a) * j->r->mscale;
    }
    for (int h = 0; h < j->n_head; h++) {
        float *x = j->x + t * j->row_stride + h * j->head_stride;
        if (j->r->interleaved)
            rotate_interleaved(x, c, s, pairs);
        else
            rotate_halves(x, x + pairs, c, s, pairs);
    }
}

static void rope_piece(void *arg, int64_t i)
{
    const struct job *j = arg;
    int64_t end = (i + 1) * j->per_piece;
    for (int64_t t = i * j->per_piece; t < end && t < j->T; t++)
        rope_row(j, t);
}

void cpu_rope(struct be *b, float *x, int64_t T, int64_t row_stride, int n_head, int64_t head_stride,
              const struct be_rope *r, const int32_t *pos)
{
    assert(r->n_rot % 2 == 0 && r->n_rot / 2 <= MAX_PAIRS);
    if (T <= 0)
        return;
    struct job j = {.x = x,
                    .T = T,
                    .row_stride = row_stride,
                    .head_stride = head_stride,
                    .n_head = n_head,
                    .r = r,
                    .pos = pos};
    int64_t n = be_pieces(b, T, T * r->n_rot * (20 + n_head / 4));
    j.per_piece = (T + n - 1) / n;
    be_pool_run(b->pool, rope_piece, &j, n);
}
