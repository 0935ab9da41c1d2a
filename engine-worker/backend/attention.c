#include "internal.h"

#include <assert.h>

/* ---- writing K and V ---- */

struct write_job {
    const struct be_kernels *k;
    const struct be_attn *a;
    const struct be_rows *rows;
    const float *key, *val;
    int64_t per_piece;
};

static void write_row(const struct write_job *w, int64_t t)
{
    const struct be_attn *a = w->a;
    const struct be_attn_run *run = &w->rows->runs[w->rows->row_run[t]];
    int64_t pos = run->pos0 + t - run->row0, at = pos % BE_PAGE;
    const uint8_t *page = run->pages[pos / BE_PAGE];
    for (int h = 0; h < a->n_kv_head; h++) {
        w->k->to_f16(be_page_k(a, page, h) + at * a->d, w->key + (t * a->n_kv_head + h) * a->d, a->d);
        w->k->to_f16(be_page_v(a, page, h) + at * a->dv, w->val + (t * a->n_kv_head + h) * a->dv, a->dv);
    }
}

static void write_piece(void *arg, int64_t i)
{
    const struct write_job *w = arg;
    int64_t end = (i + 1) * w->per_piece;
    for (int64_t t = i * w->per_piece; t < end && t < w->rows->T; t++)
        write_row(w, t);
}

void cpu_kv_write(struct be *b, const struct be_attn *a, const struct be_rows *rows, const float *k,
                  const float *v)
{
    struct write_job w = {.k = b->k, .a = a, .rows = rows, .key = k, .val = v};
    if (rows->T <= 0)
        return;
    int64_t n = be_pieces(b, rows->T, rows->T * a->n_kv_head * (a->d + a->dv) / 8);
    w.per_piece = (rows->T + n - 1) / n;
    be_pool_run(b->pool, write_piece, &w, n);
}

/* ---- attention ---- */

struct job {
    const struct be_kernels *k;
    const struct be_attn *a;
    const struct be_attn_run *runs;
    int n_runs, tile_rows;
    const float *q;
    float *out;
};

static int64_t tiles_of(const struct job *j, const struct be_attn_run *r)
{
    return (r->n_rows + j->tile_rows - 1) / j->tile_rows;
}

/* Piece i: a tile of rows of some run and one KV head. Heads change fastest, so that the long tiles of all
 * heads come last together and the pool stays even. */
static void attn_piece(void *arg, int64_t i)
{
    const struct job *j = arg;
    const struct be_attn *a = j->a;
    int kv_head = (int)(i % a->n_kv_head);
    int64_t tile = i / a->n_kv_head;
    const struct be_attn_run *r = j->runs;
    for (; tile >= tiles_of(j, r); r++)
        tile -= tiles_of(j, r);
    int64_t first = tile * j->tile_rows, left = r->n_rows - first;
    int group = a->n_head / a->n_kv_head;
    int64_t q_stride = (int64_t)a->n_head * a->d, out_stride = (int64_t)a->n_head * a->dv;
    struct be_attn_tile t = {
        .a = a,
        .q = j->q + (r->row0 + first) * q_stride + (int64_t)kv_head * group * a->d,
        .out = j->out + (r->row0 + first) * out_stride + (int64_t)kv_head * group * a->dv,
        .q_stride = q_stride,
        .out_stride = out_stride,
        .n_rows = (int)(left < j->tile_rows ? left : j->tile_rows),
        .group = group,
        .pos0 = r->pos0 + (int32_t)first,
        .kv_head = kv_head,
        .pages = r->pages,
    };
    j->k->attn(&t);
}

void cpu_attention(struct be *b, float *out, const float *q, const struct be_attn *a,
                   const struct be_rows *rows)
{
    const struct be_attn_run *runs = rows->runs;
    int n_runs = rows->n_runs;
    int group = a->n_head / a->n_kv_head;
    assert(a->n_head % a->n_kv_head == 0 && group <= BE_ATTN_TILE && a->d <= BE_ATTN_MAX_D &&
           a->dv <= BE_ATTN_MAX_D);
    struct job j = {.k = b->k, .a = a, .runs = runs, .n_runs = n_runs, .q = q, .out = out};
    j.tile_rows = BE_ATTN_TILE / group;
    int64_t tiles = 0, work = 0;
    for (int i = 0; i < n_runs; i++) {
        tiles += tiles_of(&j, &runs[i]);
        work += runs[i].n_rows * (runs[i].pos0 + runs[i].n_rows);
    }
    work *= (int64_t)a->n_head * (a->d + a->dv) / 16;
    int64_t n = tiles * a->n_kv_head;
    if (be_pieces(b, n, work) > 1) {
        be_pool_run(b->pool, attn_piece, &j, n);
    } else {
        for (int64_t i = 0; i < n; i++)
            attn_piece(&j, i);
    }
}
