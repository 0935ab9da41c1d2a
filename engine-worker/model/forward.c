#include "forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct fw {
    const struct model *m;
    struct be *be;
    struct kv *kv;
    int64_t max_rows, max_logits;
    int max_runs;
    uint64_t bytes;

    float *memory;        /* holds all float buffers below */
    float *x, *norm;      /* [rows][n_embd]: residual stream; normed input of a sub-layer, later its output */
    float *a, *b, *c, *d; /* wide buffers, see mix_* and feed_forward */
    float *heads;         /* [rows] mixer output before its projection */
    float *small;         /* [rows][2 * value heads]: beta and alpha of the delta net */
    float *logits;        /* [flagged][n_vocab] */
    int32_t *pos;         /* [rows] */

    struct be_attn_run *attn_runs;
    struct be_delta_run *delta_runs;
    uint16_t **page_ptrs; /* K and V addresses of all runs, one layer at a time */
    size_t n_page_ptrs;
};

/* ---- buffers ---- */

struct widths {
    int64_t a, b, c, d, heads, small;
};

static void widen(int64_t *w, int64_t n)
{
    if (n > *w)
        *w = n;
}

static struct widths measure(const struct model *m)
{
    struct widths w = {.small = 1};
    widen(&w.a, m->n_ff);
    widen(&w.b, m->n_ff);
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        if (l->mixer == MIX_ATTENTION) {
            widen(&w.a, l->attn.q.n_out);
            widen(&w.b, l->attn.k.n_out);
            widen(&w.c, l->attn.v.n_out);
            widen(&w.d, (int64_t)l->attn.geo.n_head * l->attn.geo.d);
            widen(&w.heads, l->attn.out.n_in);
        } else {
            widen(&w.a, l->delta.qkv.n_out);
            widen(&w.b, l->delta.gate.n_out);
            widen(&w.small, 2 * l->delta.beta.n_out);
            widen(&w.heads, l->delta.out.n_in);
        }
    }
    return w;
}

static int64_t round16(int64_t n)
{
    return (n + 15) / 16 * 16;
}

int fw_new(struct fw **out, const struct model *m, struct be *be, struct kv *kv, int64_t max_rows,
           int max_runs, int64_t max_logits, struct vt_err *err)
{
    struct fw *f = calloc(1, sizeof *f);
    if (!f)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the forward pass");
    *f = (struct fw){
        .m = m, .be = be, .kv = kv, .max_rows = max_rows, .max_runs = max_runs, .max_logits = max_logits};
    struct widths w = measure(m);
    int64_t per_row[] = {m->n_embd, m->n_embd, w.a, w.b, w.c, w.d, w.heads, w.small};
    float **at[] = {&f->x, &f->norm, &f->a, &f->b, &f->c, &f->d, &f->heads, &f->small};
    int64_t total = round16(max_logits * m->n_vocab);
    for (size_t i = 0; i < sizeof per_row / sizeof *per_row; i++)
        total += round16(max_rows * per_row[i]);
    f->bytes = (uint64_t)total * sizeof(float);
    f->memory = aligned_alloc(64, f->bytes);
    f->pos = calloc((size_t)max_rows, sizeof *f->pos);
    f->attn_runs = calloc((size_t)max_runs, sizeof *f->attn_runs);
    f->delta_runs = calloc((size_t)max_runs, sizeof *f->delta_runs);
    if (!f->memory || !f->pos || !f->attn_runs || !f->delta_runs) {
        fw_free(f);
        return vt_fail(err, VT_E_NOMEM,
                       "out of memory for %lld rows of work space; lower engine.ubatch_tokens",
                       (long long)max_rows);
    }
    float *next = f->memory;
    for (size_t i = 0; i < sizeof per_row / sizeof *per_row; i++) {
        *at[i] = next;
        next += round16(max_rows * per_row[i]);
    }
    f->logits = next;
    if (be_reserve(be, max_rows, model_max_in(m), err) < 0) {
        fw_free(f);
        return -1;
    }
    *out = f;
    return 0;
}

void fw_free(struct fw *f)
{
    if (!f)
        return;
    free(f->memory);
    free(f->pos);
    free(f->attn_runs);
    free(f->delta_runs);
    free(f->page_ptrs);
    free(f);
}

uint64_t fw_bytes(const struct fw *f)
{
    return f->bytes;
}

/* ---- runs ---- */

static int64_t pages_of(const struct fw_run *r)
{
    return (r->pos0 + r->n_rows + BE_PAGE - 1) / BE_PAGE;
}

/* Room for the page tables of the batch; the only memory that grows, with the depth of the sequences. */
static bool reserve_page_ptrs(struct fw *f, const struct fw_batch *b)
{
    size_t need = 0;
    for (int i = 0; i < b->n_runs; i++)
        need += 2 * (size_t)pages_of(&b->runs[i]);
    if (need <= f->n_page_ptrs)
        return true;
    uint16_t **grown = realloc(f->page_ptrs, 2 * need * sizeof *grown);
    if (!grown)
        return false;
    f->page_ptrs = grown;
    f->n_page_ptrs = 2 * need;
    return true;
}

static void point_attn_runs(struct fw *f, const struct fw_batch *b, int layer)
{
    uint16_t **next = f->page_ptrs;
    for (int i = 0; i < b->n_runs; i++) {
        const struct fw_run *r = &b->runs[i];
        int64_t n = pages_of(r);
        for (int64_t j = 0; j < n; j++) {
            next[j] = kv_k(f->kv, r->pages[j], layer);
            next[n + j] = kv_v(f->kv, r->pages[j], layer);
        }
        f->attn_runs[i] = (struct be_attn_run){
            .row0 = r->row0, .n_rows = r->n_rows, .pos0 = r->pos0, .k_pages = next, .v_pages = next + n};
        next += 2 * n;
    }
}

/* ---- mixers: norm → heads ---- */

/* q (a), with its gate when gated; k (b); v (c); q without gate (d). */
static void mix_attention(struct fw *f, const struct layer *l, const struct fw_batch *b, int64_t T)
{
    const struct attention *at = &l->attn;
    const struct be_attn *g = &at->geo;
    const struct be_weight *w[] = {&at->q, &at->k, &at->v};
    float *y[] = {f->a, f->b, f->c};
    be_matmul_n(f->be, y, w, 3, f->norm, T);

    float *q = f->a;
    int64_t n_q = (int64_t)g->n_head * g->d, n_k = (int64_t)g->n_kv_head * g->d;
    int64_t n_v = (int64_t)g->n_kv_head * g->dv;
    if (at->gated) { /* query and gate alternate head by head; bring the queries together */
        q = f->d;
        for (int64_t i = 0; i < T * g->n_head; i++)
            memcpy(q + i * g->d, f->a + i * 2 * g->d, (size_t)g->d * sizeof *q);
    }
    if (at->q_norm)
        be_rmsnorm(f->be, q, q, at->q_norm, T * g->n_head, g->d, f->m->eps);
    if (at->k_norm)
        be_rmsnorm(f->be, f->b, f->b, at->k_norm, T * g->n_kv_head, g->d, f->m->eps);
    be_rope(f->be, q, T, n_q, g->n_head, g->d, &at->rope, f->pos);
    be_rope(f->be, f->b, T, n_k, g->n_kv_head, g->d, &at->rope, f->pos);

    point_attn_runs(f, b, at->index);
    for (int i = 0; i < b->n_runs; i++)
        be_kv_write(f->be, g, &f->attn_runs[i], f->b + b->runs[i].row0 * n_k, f->c + b->runs[i].row0 * n_v);
    be_attention(f->be, f->heads, q, g, f->attn_runs, b->n_runs);
    if (at->gated)
        be_sigmoid_gate(f->be, f->heads, f->a + g->d, 2 * g->d, T * g->n_head, g->dv);
}

/* qkv (a), z (b), beta and alpha (small). */
static void mix_delta(struct fw *f, const struct layer *l, const struct fw_batch *b, int64_t T)
{
    const struct delta_net *dn = &l->delta;
    const struct be_weight *w[] = {&dn->qkv, &dn->gate, &dn->beta, &dn->alpha};
    float *y[] = {f->a, f->b, f->small, f->small + T * dn->beta.n_out};
    be_matmul_n(f->be, y, w, 4, f->norm, T);
    for (int i = 0; i < b->n_runs; i++)
        f->delta_runs[i] = (struct be_delta_run){
            .row0 = b->runs[i].row0, .n_rows = b->runs[i].n_rows, .state = b->runs[i].state + dn->state_at};
    be_delta_net(f->be, f->heads, &dn->geo, f->a, f->b, y[2], y[3], f->delta_runs, b->n_runs);
}

/* ---- the pass ---- */

static void feed_forward(struct fw *f, const struct layer *l, int64_t T)
{
    const struct be_weight *w[] = {&l->ffn.gate, &l->ffn.up};
    float *y[] = {f->a, f->b};
    be_rmsnorm(f->be, f->norm, f->x, l->ffn_norm, T, f->m->n_embd, f->m->eps);
    be_matmul_n(f->be, y, w, 2, f->norm, T);
    be_silu_mul(f->be, f->a, f->b, T, f->m->n_ff);
    be_matmul(f->be, f->norm, &l->ffn.down, f->a, T);
    be_add(f->be, f->x, f->norm, T, f->m->n_embd);
}

/* Keeps only the flagged rows of x[T][n], in place. */
static int64_t compact(float *x, int64_t n, const struct fw_batch *b)
{
    int64_t kept = 0;
    for (int64_t t = 0; t < b->n_rows; t++)
        if (b->want[t]) {
            if (kept != t)
                memcpy(x + kept * n, x + t * n, (size_t)n * sizeof *x);
            kept++;
        }
    return kept;
}

float *fw_forward(struct fw *f, const struct fw_batch *b)
{
    const struct model *m = f->m;
    int64_t T = b->n_rows;
    assert(T > 0 && T <= f->max_rows && b->n_runs <= f->max_runs);
    if (!reserve_page_ptrs(f, b))
        return NULL;
    for (int i = 0; i < b->n_runs; i++)
        for (int64_t j = 0; j < b->runs[i].n_rows; j++)
            f->pos[b->runs[i].row0 + j] = b->runs[i].pos0 + (int32_t)j;

    for (int64_t t = 0; t < T; t++)
        be_get_row(f->be, f->x + t * m->n_embd, &m->embd, b->ids[t]);
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        const struct be_weight *out = l->mixer == MIX_ATTENTION ? &l->attn.out : &l->delta.out;
        be_rmsnorm(f->be, f->norm, f->x, l->mixer_norm, T, m->n_embd, m->eps);
        if (l->mixer == MIX_ATTENTION)
            mix_attention(f, l, b, T);
        else
            mix_delta(f, l, b, T);
        if (i == m->n_layer - 1) { /* nobody sees the other rows from here on */
            compact(f->x, m->n_embd, b);
            T = compact(f->heads, out->n_in, b);
            if (T == 0)
                return f->logits;
            assert(T <= f->max_logits);
        }
        be_matmul(f->be, f->norm, out, f->heads, T);
        be_add(f->be, f->x, f->norm, T, m->n_embd);
        feed_forward(f, l, T);
    }
    be_rmsnorm(f->be, f->norm, f->x, m->out_norm, T, m->n_embd, m->eps);
    be_matmul(f->be, f->logits, &m->head, f->norm, T);
    return f->logits;
}
