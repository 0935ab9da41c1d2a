#include "forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct fw {
    const struct model *m;
    struct be *be;
    struct kv *kv, *window;
    int64_t max_rows, max_logits;
    int max_runs;
    uint64_t bytes;

    float *memory;        /* holds all float buffers below */
    float *x, *norm;      /* [rows][n_embd]: residual stream; normed input of a sub-layer, later its output */
    float *a, *b, *c, *d; /* wide buffers, see mix_* and ffn_* */
    float *heads;         /* [rows] mixer output before its projection */
    float
        *small; /* [rows]: beta and alpha of the delta net, logits of the router, gate of the shared expert */
    float *routed;        /* [rows][n_embd] sum of a row's experts */
    float *px, *pa, *pb;  /* [rows * experts used]: rows in the order of their experts; width of an expert */
    float *pw;            /* [rows * experts used] weights */
    float *logits;        /* [flagged][n_vocab] */
    int32_t *pos;         /* [rows] */
    int32_t *chosen, *at; /* [rows * experts used] expert of each pair; its place in px */

    struct be_attn_run *attn_runs;
    struct be_delta_run *delta_runs;
    uint16_t **page_ptrs; /* K and V addresses of all runs, one layer at a time */
    size_t n_page_ptrs;
};

/* ---- buffers ---- */

struct widths {
    int64_t a, b, c, d, heads, small, routed, expert;
};

static void widen(int64_t *w, int64_t n)
{
    if (n > *w)
        *w = n;
}

static void measure_layer(struct widths *w, const struct layer *l, int64_t n_embd)
{
    widen(&w->a, l->ffn.gate.n_out);
    widen(&w->b, l->ffn.up.n_out);
    if (l->ffn.experts) {
        widen(&w->small, l->ffn.experts->route.n_expert);
        widen(&w->expert, l->ffn.experts->gate[0].n_out);
        widen(&w->routed, n_embd);
    }
    if (l->mixer == MIX_ATTENTION) {
        widen(&w->a, l->attn.q.n_out);
        widen(&w->b, l->attn.k.n_out);
        widen(&w->c, l->attn.v.n_out);
        widen(&w->d, (int64_t)l->attn.geo.n_head * l->attn.geo.d);
        widen(&w->heads, l->attn.out.n_in);
    } else {
        widen(&w->a, l->delta.qkv.n_out);
        widen(&w->b, l->delta.gate.n_out);
        widen(&w->small, 2 * l->delta.beta.n_out);
        widen(&w->heads, l->delta.out.n_in);
    }
}

static struct widths measure(const struct model *m)
{
    struct widths w = {.small = 1};
    for (int i = 0; i < m->n_layer; i++)
        measure_layer(&w, &m->layers[i], m->n_embd);
    for (int i = 0; i < m->n_drafts; i++) {
        measure_layer(&w, &m->drafts[i].block, m->n_embd);
        widen(&w.a, m->drafts[i].proj.n_in);
    }
    return w;
}

static int64_t round16(int64_t n)
{
    return (n + 15) / 16 * 16;
}

/* Cuts all float buffers out of one piece of memory; with memory NULL only counts. */
static int64_t cut(struct fw *f)
{
    struct widths w = measure(f->m);
    int64_t rows = f->max_rows, pairs = w.expert ? rows * model_max_used(f->m) : 0, n = f->m->n_embd,
            total = 0;
    const struct {
        float **at;
        int64_t floats;
    } part[] = {
        {&f->x, rows * n},
        {&f->norm, rows * n},
        {&f->a, rows * w.a},
        {&f->b, rows * w.b},
        {&f->c, rows * w.c},
        {&f->d, rows * w.d},
        {&f->heads, rows * w.heads},
        {&f->small, rows * w.small},
        {&f->routed, rows * w.routed},
        {&f->px, pairs * n},
        {&f->pa, pairs * w.expert},
        {&f->pb, pairs * w.expert},
        {&f->pw, pairs},
        {&f->logits, f->max_logits * f->m->n_vocab},
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (f->memory)
            *part[i].at = f->memory + total;
        total += round16(part[i].floats);
    }
    return total;
}

int fw_pools(struct kv **kv, struct kv **window, const struct model *m, bool drafts, uint32_t n_pages,
             uint32_t n_wpages, uint32_t n_snaps, struct vt_err *err)
{
    struct kv_shape all = {.n_attn = m->n_attn + (drafts ? m->n_drafts : 0),
                           .attn = m->attn_geo,
                           .state_floats = m->state_floats,
                           .n_pages = n_pages,
                           .n_snaps = n_snaps};
    struct kv_shape windowed = {.n_attn = m->n_window, .attn = m->window_geo, .n_pages = n_wpages};
    *window = NULL;
    if (kv_new(kv, &all, err) < 0)
        return -1;
    return m->n_window > 0 ? kv_new(window, &windowed, err) : 0;
}

int fw_new(struct fw **out, const struct model *m, struct be *be, struct kv *kv, struct kv *window,
           int64_t max_rows, int max_runs, int64_t max_logits, struct vt_err *err)
{
    struct fw *f = calloc(1, sizeof *f);
    if (!f)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the forward pass");
    *f = (struct fw){.m = m,
                     .be = be,
                     .kv = kv,
                     .window = window,
                     .max_rows = max_rows,
                     .max_runs = max_runs,
                     .max_logits = max_logits};
    size_t pairs = (size_t)max_rows * (size_t)model_max_used(m);
    f->bytes = (uint64_t)cut(f) * sizeof(float);
    f->memory = aligned_alloc(64, f->bytes);
    f->pos = calloc((size_t)max_rows, sizeof *f->pos);
    f->chosen = calloc(pairs, sizeof *f->chosen);
    f->at = calloc(pairs, sizeof *f->at);
    f->attn_runs = calloc((size_t)max_runs, sizeof *f->attn_runs);
    f->delta_runs = calloc((size_t)max_runs, sizeof *f->delta_runs);
    if (!f->memory || !f->pos || !f->chosen || !f->at || !f->attn_runs || !f->delta_runs) {
        fw_free(f);
        return vt_fail(err, VT_E_NOMEM,
                       "out of memory for %lld rows of work space; lower engine.ubatch_tokens",
                       (long long)max_rows);
    }
    cut(f);
    if (be_reserve(be, (int64_t)pairs, model_max_in(m), err) < 0) {
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
    free(f->chosen);
    free(f->at);
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

/* With a window, only the pages from the first one that the first row sees on are there. */
static void point_attn_runs(struct fw *f, const struct fw_batch *b, const struct attention *at)
{
    uint16_t **next = f->page_ptrs;
    int32_t window = at->geo.window;
    const struct kv *kv = window > 0 ? f->window : f->kv;
    for (int i = 0; i < b->n_runs; i++) {
        const struct fw_run *r = &b->runs[i];
        const uint32_t *pages = window > 0 ? r->wpages : r->pages;
        int64_t n = pages_of(r), j = window > 0 && r->pos0 >= window ? (r->pos0 - window + 1) / BE_PAGE : 0;
        for (; j < n; j++) {
            next[j] = kv_k(kv, pages[j], at->index);
            next[n + j] = kv_v(kv, pages[j], at->index);
        }
        f->attn_runs[i] = (struct be_attn_run){
            .row0 = r->row0, .n_rows = r->n_rows, .pos0 = r->pos0, .k_pages = next, .v_pages = next + n};
        next += 2 * n;
    }
}

static void number_rows(struct fw *f, const struct fw_batch *b)
{
    for (int i = 0; i < b->n_runs; i++)
        for (int64_t j = 0; j < b->runs[i].n_rows; j++)
            f->pos[b->runs[i].row0 + j] = b->runs[i].pos0 + (int32_t)j;
}

/* ---- mixers: norm → heads ---- */

static void bias(struct fw *f, float *y, const float *by, int64_t T, int64_t n)
{
    if (by)
        be_add_bias(f->be, y, by, T, n);
}

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
    bias(f, f->a, at->q_bias, T, at->q.n_out);
    bias(f, f->b, at->k_bias, T, n_k);
    bias(f, f->c, at->v_bias, T, n_v);
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

    point_attn_runs(f, b, at);
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

/* ---- feed-forward: norm → norm ---- */

static void activate(struct fw *f, enum act act, float *gate, const float *up, int64_t T, int64_t n)
{
    if (act == ACT_GELU)
        be_gelu_mul(f->be, gate, up, T, n);
    else
        be_silu_mul(f->be, gate, up, T, n);
}

/* norm → routed */
static void ffn_experts(struct fw *f, const struct ffn *ffn, int64_t T)
{
    const struct experts *e = ffn->experts;
    const struct be_route *r = &e->route;
    int64_t first[BE_EXPERTS_MAX + 1], n = f->m->n_embd, inner = e->gate[0].n_out;
    const struct be_weight *in[] = {e->gate, e->up}, *out[] = {e->down};
    float *wide[] = {f->pa, f->pb}, *back[] = {f->px};
    be_matmul(f->be, f->small, &e->router, f->norm, T);
    be_moe_route(f->be, f->chosen, f->pw, f->small, r, T);
    be_moe_sort(f->at, first, f->chosen, r, T);
    be_moe_gather(f->be, f->px, f->norm, f->at, r, T, n);
    be_moe_matmul(f->be, wide, in, 2, f->px, first, r);
    activate(f, ffn->act, f->pa, f->pb, T * r->n_used, inner);
    be_moe_matmul(f->be, back, out, 1, f->pa, first, r);
    be_moe_combine(f->be, f->routed, f->px, f->pw, f->at, r, T, n);
}

static void ffn_dense(struct fw *f, const struct ffn *ffn, int64_t T)
{
    const struct be_weight *w[] = {&ffn->gate, &ffn->up};
    float *y[] = {f->a, f->b};
    int64_t inner = ffn->gate.n_out;
    if (ffn->shared_gate.n_out > 0)
        be_matmul(f->be, f->small, &ffn->shared_gate, f->norm, T);
    be_matmul_n(f->be, y, w, 2, f->norm, T);
    bias(f, f->a, ffn->gate_bias, T, inner);
    bias(f, f->b, ffn->up_bias, T, inner);
    activate(f, ffn->act, f->a, f->b, T, inner);
    be_matmul(f->be, f->norm, &ffn->down, f->a, T);
    bias(f, f->norm, ffn->down_bias, T, f->m->n_embd);
    if (ffn->shared_gate.n_out > 0)
        be_row_gate(f->be, f->norm, f->small, T, f->m->n_embd);
}

static void feed_forward(struct fw *f, const struct layer *l, int64_t T)
{
    int64_t n = f->m->n_embd;
    float *y = f->norm;
    be_rmsnorm(f->be, f->norm, f->x, l->ffn_norm, T, n, f->m->eps);
    if (l->ffn.experts)
        ffn_experts(f, &l->ffn, T);
    if (l->ffn.gate.n_out > 0)
        ffn_dense(f, &l->ffn, T);
    if (l->ffn.experts && l->ffn.gate.n_out > 0)
        be_add(f->be, f->norm, f->routed, T, n);
    else if (l->ffn.experts)
        y = f->routed;
    if (l->post_ffn_norm)
        be_rmsnorm(f->be, y, y, l->post_ffn_norm, T, n, f->m->eps);
    be_add(f->be, f->x, y, T, n);
}

/* ---- the pass ---- */

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

/* One layer over x. The last one may go on with the flagged rows alone; returns the rows that are left. */
static int64_t run_layer(struct fw *f, const struct layer *l, const struct fw_batch *b, bool flagged_only)
{
    const struct be_weight *out = l->mixer == MIX_ATTENTION ? &l->attn.out : &l->delta.out;
    int64_t n = f->m->n_embd, T = b->n_rows;
    be_rmsnorm(f->be, f->norm, f->x, l->mixer_norm, T, n, f->m->eps);
    if (l->mixer == MIX_ATTENTION)
        mix_attention(f, l, b, T);
    else
        mix_delta(f, l, b, T);
    if (flagged_only) {
        compact(f->x, n, b);
        T = compact(f->heads, out->n_in, b);
        if (T == 0)
            return 0;
    }
    be_matmul(f->be, f->norm, out, f->heads, T);
    if (l->mixer == MIX_ATTENTION)
        bias(f, f->norm, l->attn.out_bias, T, n);
    if (l->post_mixer_norm)
        be_rmsnorm(f->be, f->norm, f->norm, l->post_mixer_norm, T, n, f->m->eps);
    be_add(f->be, f->x, f->norm, T, n);
    feed_forward(f, l, T);
    return T;
}

/* T rows of x → logits of the flagged ones. */
static void predict(struct fw *f, const struct fw_batch *b, const float *norm, const struct be_weight *head,
                    int64_t T)
{
    const struct model *m = f->m;
    be_rmsnorm(f->be, f->norm, f->x, norm, T, m->n_embd, m->eps);
    if (b->hidden) {
        memcpy(b->hidden, f->norm, (size_t)(T * m->n_embd) * sizeof *f->norm);
        T = compact(f->norm, m->n_embd, b);
    }
    assert(T <= f->max_logits);
    if (T == 0)
        return;
    be_matmul(f->be, f->logits, head, f->norm, T);
    if (m->softcap > 0)
        be_softcap(f->be, f->logits, m->softcap, T, m->n_vocab);
}

static bool begin(struct fw *f, const struct fw_batch *b)
{
    assert(b->n_rows > 0 && b->n_rows <= f->max_rows && b->n_runs <= f->max_runs);
    if (!reserve_page_ptrs(f, b))
        return false;
    number_rows(f, b);
    return true;
}

float *fw_forward(struct fw *f, const struct fw_batch *b)
{
    const struct model *m = f->m;
    int64_t T = b->n_rows;
    if (!begin(f, b))
        return NULL;
    for (int64_t t = 0; t < T; t++)
        be_get_row(f->be, f->x + t * m->n_embd, &m->embd, b->ids[t]);
    if (m->embd_scale != 1.0f)
        be_scale(f->be, f->x, m->embd_scale, T, m->n_embd);
    for (int i = 0; i < m->n_layer; i++)
        T = run_layer(f, &m->layers[i], b, i == m->n_layer - 1 && !b->hidden);
    if (T > 0)
        predict(f, b, m->out_norm, &m->head, T);
    return f->logits;
}

/* x = proj [norm(embedding); norm(hidden)], through the block. */
float *fw_draft(struct fw *f, const struct fw_batch *b, const float *hidden)
{
    const struct model *m = f->m;
    const struct draft *d = &m->drafts[0];
    int64_t T = b->n_rows, n = m->n_embd;
    assert(m->n_drafts > 0);
    if (!begin(f, b))
        return NULL;
    for (int64_t t = 0; t < T; t++) {
        float *both = f->a + t * 2 * n;
        be_get_row(f->be, both, &d->embd, b->ids[t]);
        be_rmsnorm(f->be, both, both, d->embd_norm, 1, n, m->eps);
        be_rmsnorm(f->be, both + n, hidden + t * n, d->hidden_norm, 1, n, m->eps);
    }
    be_matmul(f->be, f->x, &d->proj, f->a, T);
    T = run_layer(f, &d->block, b, !b->hidden);
    if (T > 0)
        predict(f, b, d->out_norm, &d->head, T);
    return f->logits;
}
