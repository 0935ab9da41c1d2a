#include "forward.h"
#include "tables.h"

#include <assert.h>
#include <stdlib.h>

struct fw {
    const struct model *m;
    struct be *be;
    int64_t max_rows, max_logits;
    uint64_t bytes;
    struct tables t;
    /* [max_logits][n_vocab] and the best of them, of this process; NULL: the backend's memory is ours */
    float *host_logits, *host_best;

    float *memory;        /* the backend's; holds all float buffers below */
    float *x, *norm;      /* [rows][n_embd]: residual stream; normed input of a sub-layer, later its output */
    float *a, *b, *c, *d; /* wide buffers, see mix_* and ffn_* */
    float *heads;         /* [rows] mixer output before its projection */
    float
        *small; /* [rows]: beta and alpha of the delta net, logits of the router, gate of the shared expert */
    float *routed;        /* [rows][n_embd] sum of a row's experts */
    float *px, *pa, *pb;  /* [rows * experts used]: rows in the order of their experts; width of an expert */
    float *pw;            /* [rows * experts used] weights */
    float *logits;        /* [flagged][n_vocab] */
    float *best;          /* [flagged][BE_BEST], then their ids */
    float *room;          /* be_best's */
    const float *pending; /* [rows][n_embd] to be added to x; NULL: nothing */
    int32_t *chosen, *at; /* [rows * experts used] expert of each pair; its place in px */
    int64_t *first;       /* [BE_EXPERTS_MAX + 1] first row of each expert in px */
    size_t pair_bytes;    /* of chosen and at */
};

#define FIRST_BYTES ((BE_EXPERTS_MAX + 1) * sizeof(int64_t))

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
        widen(&w->small, l->ffn.experts->route.n_expert + 1);
        widen(&w->expert, l->ffn.experts->gate[0].n_out);
        widen(&w->routed, n_embd);
    }
    if (l->mixer == MIX_ATTENTION) {
        widen(&w->a, l->attn.q.n_out);
        widen(&w->b, l->attn.k.n_out);
        widen(&w->c, l->attn.v.n_out);
        widen(&w->d, (int64_t)l->attn.geo.n_head * l->attn.geo.d);
        widen(&w->heads, l->attn.out.n_in);
        widen(&w->a, l->attn.out.n_in); /* rows picked from heads */
    } else {
        widen(&w->a, l->delta.qkv.n_out);
        widen(&w->b, l->delta.gate.n_out);
        widen(&w->small, 2 * l->delta.beta.n_out);
        widen(&w->heads, l->delta.out.n_in);
        widen(&w->a, l->delta.out.n_in);
    }
}

static struct widths measure(const struct model *m)
{
    struct widths w = {.small = 1, .a = m->n_embd};
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
        {&f->best, 2 * BE_BEST * f->max_logits},
        {&f->room, f->max_logits * (int64_t)be_best_room(f->m->n_vocab)},
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (f->memory)
            *part[i].at = f->memory + total;
        total += round16(part[i].floats);
    }
    return total;
}

void fw_pool_shapes(struct kv_shape *all, struct kv_shape *window, const struct model *m, struct be *be,
                    bool drafts, uint32_t n_pages, uint32_t n_wpages, uint32_t n_snaps)
{
    *all = (struct kv_shape){.be = be,
                             .n_attn = m->n_attn + (drafts ? m->n_drafts : 0),
                             .attn = m->attn_geo,
                             .state_floats = m->state_floats,
                             .n_pages = n_pages,
                             .n_snaps = n_snaps};
    *window = (struct kv_shape){.be = be, .n_attn = m->n_window, .attn = m->window_geo, .n_pages = n_wpages};
}

int fw_pools(struct kv **kv, struct kv **window, const struct model *m, struct be *be, bool drafts,
             uint32_t n_pages, uint32_t n_wpages, uint32_t n_snaps, struct vt_err *err)
{
    struct kv_shape all, windowed;
    fw_pool_shapes(&all, &windowed, m, be, drafts, n_pages, n_wpages, n_snaps);
    *window = NULL;
    if (kv_new(kv, &all, err) < 0)
        return -1;
    return m->n_window > 0 ? kv_new(window, &windowed, err) : 0;
}

uint64_t fw_plan(const struct model *m, int64_t max_rows, int64_t max_logits)
{
    struct fw f = {.m = m, .max_rows = max_rows, .max_logits = max_logits};
    uint64_t values = (uint64_t)(max_rows * model_max_used(m) * model_max_in(m));
    return (uint64_t)cut(&f) * sizeof(float) + values * 4; /* each value as f16 and as int8 with scales */
}

static int take_memory(struct fw *f, struct vt_err *err)
{
    void *memory, *pairs, *first, *logits;
    f->bytes = (uint64_t)cut(f) * sizeof(float);
    f->pair_bytes = 2 * (size_t)f->max_rows * (size_t)model_max_used(f->m) * sizeof *f->chosen;
    if (be_alloc(f->be, &memory, f->bytes, err) < 0)
        return -1;
    f->memory = memory;
    cut(f);
    if (be_alloc(f->be, &pairs, f->pair_bytes, err) < 0)
        return -1;
    f->chosen = pairs;
    f->at = f->chosen + f->pair_bytes / 2 / sizeof *f->chosen;
    if (be_alloc(f->be, &first, FIRST_BYTES, err) < 0)
        return -1;
    f->first = first;
    if (be_host(f->be))
        return 0;
    size_t floats = (size_t)(f->max_logits * (f->m->n_vocab + 2 * BE_BEST));
    if (be_alloc_host(f->be, &logits, floats * sizeof *f->host_logits, err) < 0)
        return -1;
    f->host_logits = logits;
    f->host_best = f->host_logits + f->max_logits * f->m->n_vocab;
    return 0;
}

int fw_new(struct fw **out, const struct model *m, struct be *be, struct kv *kv, struct kv *window,
           int64_t max_rows, int max_runs, int64_t max_logits, struct vt_err *err)
{
    struct fw *f = calloc(1, sizeof *f);
    if (!f)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the forward pass");
    *f = (struct fw){.m = m, .be = be, .max_rows = max_rows, .max_logits = max_logits};
    if (take_memory(f, err) < 0)
        vt_fail_prefix(err, "work space for %lld rows (lower engine.ubatch_tokens)", (long long)max_rows);
    else if (tables_init(&f->t, be, kv, window, m->window, max_rows, max_runs, err) == 0 &&
             be_reserve(be, max_rows * model_max_used(m), model_max_in(m), err) == 0) {
        *out = f;
        return 0;
    }
    fw_free(f);
    return -1;
}

void fw_free(struct fw *f)
{
    if (!f)
        return;
    be_release(f->be, f->memory, f->bytes);
    be_release(f->be, f->chosen, f->pair_bytes);
    be_release(f->be, f->first, FIRST_BYTES);
    tables_fini(&f->t);
    if (f->host_logits)
        be_release_host(f->be, f->host_logits);
    free(f);
}

uint64_t fw_bytes(const struct fw *f)
{
    return f->bytes;
}

/* ---- the residual stream ---- */

/* What a sub-layer made waits for the norm that comes next: a device adds and norms in one pass. */
static void norm(struct fw *f, const float *w, int64_t T)
{
    if (f->pending)
        be_add_rmsnorm(f->be, f->norm, f->x, f->pending, w, T, f->m->n_embd, f->m->eps);
    else
        be_rmsnorm(f->be, f->norm, f->x, w, T, f->m->n_embd, f->m->eps);
    f->pending = NULL;
}

/* The same for a matmul that is all that reads it. */
static struct be_normed normed(struct fw *f, const float *w)
{
    struct be_normed in = {.x = f->x, .add = f->pending, .w = w, .eps = f->m->eps, .room = f->norm};
    f->pending = NULL;
    return in;
}

/* ---- mixers: residual stream → heads ---- */

static void bias(struct fw *f, float *y, const float *by, int64_t T, int64_t n)
{
    if (by)
        be_add_bias(f->be, y, by, T, n);
}

/* q (a), with its gate when gated; k (b); v (c); q without gate (d). */
static void mix_attention(struct fw *f, const struct layer *l, int64_t T)
{
    const struct attention *at = &l->attn;
    const struct be_rows *rows = at->geo.window > 0 ? &f->t.windowed : &f->t.all;
    const struct be_attn *g = &at->geo;
    const struct be_weight *w[] = {&at->q, &at->k, &at->v};
    const struct be_normed x = normed(f, l->mixer_norm);
    float *y[] = {f->a, f->b, f->c};
    be_norm_matmul_n(f->be, y, w, 3, &x, T);

    /* of a gated one query and gate alternate head by head; the queries come together */
    float *q = at->gated ? f->d : f->a;
    const struct be_qkv in = {.q = f->a,
                              .k = f->b,
                              .v = f->c,
                              .q_stride = at->gated ? 2 * (int64_t)g->d : g->d,
                              .q_bias = at->q_bias,
                              .k_bias = at->k_bias,
                              .v_bias = at->v_bias,
                              .q_norm = at->q_norm,
                              .k_norm = at->k_norm,
                              .eps = f->m->eps,
                              .rope = &at->rope};
    be_attn_inputs(f->be, q, &in, g, rows);
    be_attention(f->be, f->heads, q, g, rows);
    if (at->gated)
        be_sigmoid_gate(f->be, f->heads, f->a + g->d, 2 * g->d, T * g->n_head, g->dv);
}

/* qkv (a), z (b), beta and alpha (small). */
static void mix_delta(struct fw *f, const struct layer *l, int64_t T)
{
    const struct delta_net *dn = &l->delta;
    const struct be_weight *w[] = {&dn->qkv, &dn->gate, &dn->beta, &dn->alpha};
    const struct be_normed x = normed(f, l->mixer_norm);
    float *y[] = {f->a, f->b, f->small, f->small + T * dn->beta.n_out};
    be_norm_matmul_n(f->be, y, w, 4, &x, T);
    be_delta_net(f->be, f->heads, &dn->geo, f->a, f->b, y[2], y[3], f->t.states, f->t.all.n_runs, T);
}

/* ---- feed-forward: norm → norm ---- */

static void activate(struct fw *f, enum act act, float *gate, const float *up, int64_t T, int64_t n)
{
    if (act == ACT_GELU)
        be_gelu_mul(f->be, gate, up, T, n);
    else
        be_silu_mul(f->be, gate, up, T, n);
}

/* norm → routed; a shared expert is among them. */
static void ffn_experts(struct fw *f, const struct ffn *ffn, int64_t T)
{
    const struct experts *x = ffn->experts;
    const struct be_experts_room room = {.logits = f->small,
                                         .x = f->px,
                                         .a = f->pa,
                                         .b = f->pb,
                                         .w = f->pw,
                                         .shared_a = f->a,
                                         .shared_b = f->b,
                                         .shared_y = f->norm,
                                         .ids = f->chosen,
                                         .at = f->at,
                                         .first = f->first};
    struct be_experts e = {.route = x->route,
                           .gelu = ffn->act == ACT_GELU,
                           .router = &x->router,
                           .gate = x->gate,
                           .up = x->up,
                           .down = x->down};
    if (ffn->gate.n_out > 0) {
        e.shared_by = &ffn->shared_gate;
        e.shared_gate = &ffn->gate;
        e.shared_up = &ffn->up;
        e.shared_down = &ffn->down;
    }
    be_experts(f->be, f->routed, &e, &room, f->norm, T);
}

/* norm → norm; the gate of the shared expert and biases need the norm's rows and the result's. */
static void ffn_dense(struct fw *f, const struct ffn *ffn, int64_t T)
{
    const struct be_weight *w[] = {&ffn->gate, &ffn->up};
    float *y[] = {f->a, f->b};
    int64_t inner = ffn->gate.n_out;
    if (ffn->gate_bias || ffn->up_bias) {
        be_matmul_n(f->be, y, w, 2, f->norm, T);
        bias(f, f->a, ffn->gate_bias, T, inner);
        bias(f, f->b, ffn->up_bias, T, inner);
        activate(f, ffn->act, f->a, f->b, T, inner);
    } else {
        be_matmul_gated(f->be, f->a, f->b, &ffn->gate, &ffn->up, ffn->act == ACT_GELU, f->norm, T);
    }
    be_matmul(f->be, f->norm, &ffn->down, f->a, T);
    bias(f, f->norm, ffn->down_bias, T, f->m->n_embd);
}

/* Nothing but a gate, an activation and the way back: residual stream → residual stream. */
static bool is_plain(const struct layer *l)
{
    const struct ffn *ffn = &l->ffn;
    return !ffn->experts && ffn->shared_gate.n_out == 0 && !ffn->gate_bias && !ffn->up_bias &&
           !ffn->down_bias && !l->post_ffn_norm;
}

static void ffn_plain(struct fw *f, const struct layer *l, int64_t T)
{
    const struct ffn *ffn = &l->ffn;
    const struct be_normed x = normed(f, l->ffn_norm);
    be_norm_matmul_gated(f->be, f->a, f->b, &ffn->gate, &ffn->up, ffn->act == ACT_GELU, &x, T);
    be_matmul_add(f->be, f->x, &ffn->down, f->a, f->norm, T, &f->pending);
}

static void feed_forward(struct fw *f, const struct layer *l, int64_t T)
{
    int64_t n = f->m->n_embd;
    float *y = l->ffn.experts ? f->routed : f->norm;
    if (is_plain(l)) {
        ffn_plain(f, l, T);
        return;
    }
    norm(f, l->ffn_norm, T);
    if (l->ffn.experts)
        ffn_experts(f, &l->ffn, T);
    else
        ffn_dense(f, &l->ffn, T);
    if (l->post_ffn_norm)
        be_rmsnorm(f->be, y, y, l->post_ffn_norm, T, n, f->m->eps);
    f->pending = y;
}

/* ---- the pass ---- */

/* Goes on with the flagged rows alone: those of x in place, those of the mixer's output in *heads. Returns how many. */
static int64_t keep_wanted(struct fw *f, float **heads, int64_t n_heads, int64_t T)
{
    int64_t kept = f->t.n_wanted, n = f->m->n_embd;
    if (kept == T || kept == 0)
        return kept;
    be_pick_rows(f->be, f->norm, f->x, f->t.wanted, kept, n);
    be_copy(f->be, f->x, f->norm, (size_t)(kept * n) * sizeof *f->x);
    be_pick_rows(f->be, f->a, *heads, f->t.wanted, kept, n_heads);
    *heads = f->a;
    return kept;
}

/* One layer over x. The last one may go on with the flagged rows alone; returns the rows that are left. */
static int64_t run_layer(struct fw *f, const struct layer *l, int64_t T, bool flagged_only)
{
    const struct be_weight *out = l->mixer == MIX_ATTENTION ? &l->attn.out : &l->delta.out;
    int64_t n = f->m->n_embd;
    float *heads = f->heads;
    if (l->mixer == MIX_ATTENTION)
        mix_attention(f, l, T);
    else
        mix_delta(f, l, T);
    if (flagged_only && (T = keep_wanted(f, &heads, out->n_in, T)) == 0)
        return 0;
    const float *by = l->mixer == MIX_ATTENTION ? l->attn.out_bias : NULL;
    if (!by && !l->post_mixer_norm) {
        be_matmul_add(f->be, f->x, out, heads, f->norm, T, &f->pending);
    } else {
        be_matmul(f->be, f->norm, out, heads, T);
        bias(f, f->norm, by, T, n);
        if (l->post_mixer_norm)
            be_rmsnorm(f->be, f->norm, f->norm, l->post_mixer_norm, T, n, f->m->eps);
        f->pending = f->norm;
    }
    feed_forward(f, l, T);
    return T;
}

/* T rows of x → logits of the flagged ones. */
static int predict(struct fw *f, const struct fw_batch *b, const float *out_norm,
                   const struct be_weight *head, int64_t T, struct vt_err *err)
{
    const struct model *m = f->m;
    float *rows = f->norm;
    if (T > 0 && b->hidden) {
        norm(f, out_norm, T);
        if (be_read(f->be, b->hidden, f->norm, (size_t)(T * m->n_embd) * sizeof *rows, err) < 0)
            return -1;
        if (f->t.n_wanted > 0 && f->t.n_wanted < T)
            be_pick_rows(f->be, rows = f->a, f->norm, f->t.wanted, f->t.n_wanted, m->n_embd);
        T = f->t.n_wanted;
    }
    assert(T <= f->max_logits);
    if (T == 0)
        return 0;
    if (b->hidden) {
        be_matmul(f->be, f->logits, head, rows, T);
    } else {
        const struct be_normed x = normed(f, out_norm);
        be_norm_matmul_n(f->be, &f->logits, &head, 1, &x, T);
    }
    if (m->softcap > 0)
        be_softcap(f->be, f->logits, m->softcap, T, m->n_vocab);
    return 0;
}

/* Logits of the flagged rows, brought to this process. */
static int deliver(struct fw *f, float **logits, struct vt_err *err)
{
    size_t bytes = (size_t)(f->t.n_wanted * f->m->n_vocab) * sizeof *f->logits;
    *logits = f->host_logits ? f->host_logits : f->logits;
    return f->host_logits ? be_read(f->be, f->host_logits, f->logits, bytes, err) : be_sync(f->be, err);
}

static uint32_t *ids_of(const struct fw *f, float *best)
{
    return (uint32_t *)(best + f->t.n_wanted * BE_BEST);
}

static int deliver_best(struct fw *f, struct vt_err *err)
{
    size_t bytes = 2 * (size_t)f->t.n_wanted * BE_BEST * sizeof *f->best;
    return f->host_best ? be_read(f->be, f->host_best, f->best, bytes, err) : be_sync(f->be, err);
}

struct fw_best fw_best(const struct fw *f, int64_t row)
{
    float *best = f->host_best ? f->host_best : f->best;
    int64_t vocab = f->m->n_vocab;
    assert(row < f->t.n_wanted);
    return (struct fw_best){.ids = ids_of(f, best) + row * BE_BEST,
                            .logits = best + row * BE_BEST,
                            .n = (uint32_t)(vocab < BE_BEST ? vocab : BE_BEST)};
}

int fw_row(struct fw *f, int64_t row, const float **logits, struct vt_err *err)
{
    int64_t n = f->m->n_vocab;
    assert(row < f->t.n_wanted);
    *logits = (f->host_logits ? f->host_logits : f->logits) + row * n;
    if (!f->host_logits)
        return 0;
    return be_read(f->be, f->host_logits + row * n, f->logits + row * n, (size_t)n * sizeof *f->logits, err);
}

static int run_trunk(struct fw *f, const struct fw_batch *b, struct vt_err *err)
{
    const struct model *m = f->m;
    int64_t T = b->n_rows;
    f->pending = NULL;
    be_get_rows(f->be, f->x, &m->embd, f->t.ids, T);
    if (m->embd_scale != 1.0f)
        be_scale(f->be, f->x, m->embd_scale, T, m->n_embd);
    for (int i = 0; i < m->n_layer; i++)
        T = run_layer(f, &m->layers[i], T, i == m->n_layer - 1 && !b->hidden);
    return predict(f, b, m->out_norm, &m->head, T, err);
}

int fw_forward(struct fw *f, const struct fw_batch *b, float **logits, struct vt_err *err)
{
    if (tables_set(&f->t, b, err) < 0)
        return -1;
    uint64_t key = tables_key(&f->t, b, logits != NULL);
    int rc = 0;
    if (!be_begin(f->be, key)) {
        rc = run_trunk(f, b, err);
        if (rc == 0 && !logits && f->t.n_wanted > 0)
            be_best(f->be, ids_of(f, f->best), f->best, f->room, f->logits, f->t.n_wanted, f->m->n_vocab);
    }
    be_end(f->be, key);
    return rc < 0 ? rc : logits ? deliver(f, logits, err) : deliver_best(f, err);
}

/* x = proj [norm(embedding); norm(hidden)], through the block. */
int fw_draft(struct fw *f, const struct fw_batch *b, const float *hidden, float **logits, struct vt_err *err)
{
    const struct model *m = f->m;
    const struct draft *d = &m->drafts[0];
    int64_t T = b->n_rows, n = m->n_embd;
    assert(m->n_drafts > 0);
    if (tables_set(&f->t, b, err) < 0)
        return -1;
    be_get_rows(f->be, f->norm, &d->embd, f->t.ids, T);
    be_rmsnorm(f->be, f->norm, f->norm, d->embd_norm, T, n, m->eps);
    be_copy_rows(f->be, f->a, 2 * n, f->norm, n, T, n);
    be_write(f->be, f->norm, hidden, (size_t)(T * n) * sizeof *hidden);
    be_rmsnorm(f->be, f->norm, f->norm, d->hidden_norm, T, n, m->eps);
    be_copy_rows(f->be, f->a + n, 2 * n, f->norm, n, T, n);
    be_matmul(f->be, f->x, &d->proj, f->a, T);
    f->pending = NULL;
    T = run_layer(f, &d->block, T, !b->hidden);
    return predict(f, b, d->out_norm, &d->head, T, err) < 0 ? -1 : deliver(f, logits, err);
}
