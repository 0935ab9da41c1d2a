#include "upload.h"

#include <stdlib.h>
#include <string.h>

/* One piece of the backend's memory and what of this process it stands for, so that a tied embedding or a shared table goes
 * there once. */
struct piece {
    const void *host;
    void *dev; /* NULL in a plan */
};

#define ALIGN 256u /* of a piece; be_upload_to asks for it */

struct upload {
    struct be *be;   /* borrowed */
    uint8_t *memory; /* all pieces, one behind the other */
    bool plan;       /* only counting */
    bool whole;      /* the bytes are there already */
    bool own;        /* the memory goes with us */
    struct model m;
    struct piece *pieces;
    size_t n, cap;
    uint64_t bytes, done;
    upload_progress *progress;
    void *arg;
    struct vt_err *err;
};

/* ---- pieces ---- */

static struct piece *find(const struct upload *u, const void *host)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->pieces[i].host == host)
            return &u->pieces[i];
    return NULL;
}

static struct piece *add(struct upload *u, const void *host, size_t bytes)
{
    if (u->n == u->cap) {
        size_t cap = u->cap ? 2 * u->cap : 256;
        struct piece *grown = realloc(u->pieces, cap * sizeof *grown);
        if (!grown) {
            vt_fail(u->err, VT_E_NOMEM, "out of memory for the list of tensors");
            return NULL;
        }
        u->pieces = grown;
        u->cap = cap;
    }
    u->pieces[u->n] = (struct piece){.host = host, .dev = u->plan ? NULL : u->memory + u->bytes};
    u->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return &u->pieces[u->n++];
}

static int vector(struct upload *u, const float **v, int64_t n)
{
    size_t bytes = (size_t)n * sizeof **v;
    if (!*v)
        return 0;
    struct piece *p = find(u, *v);
    if (!p) {
        if (!(p = add(u, *v, bytes)))
            return -1;
        if (!u->plan && !u->whole)
            be_write(u->be, p->dev, *v, bytes);
    }
    *v = p->dev;
    return 0;
}

static int move(struct upload *u, struct piece *p, const struct be_weight *host, int n)
{
    struct be_weight dev;
    if (u->plan || u->whole)
        return 0;
    if (be_upload_to(u->be, &dev, p->dev, host, n, u->err) < 0)
        return -1;
    u->done += ggml_row_bytes(host->type, (uint64_t)host->n_in) * (uint64_t)host->n_out * (uint64_t)n;
    if (u->progress)
        u->progress(u->arg, u->done, u->m.bytes);
    return 0;
}

/* w, a copy of host[0], comes to stand for n parts of one shape. */
static int weights(struct upload *u, struct be_weight *w, const struct be_weight *host, int n)
{
    if (w->n_out == 0)
        return 0;
    const void *data = host->data;
    struct piece *p = find(u, data);
    if (!p && u->plan && be_readable(u->be, host, u->err) < 0)
        return -1;
    if (!p && (!(p = add(u, data, be_weight_bytes(u->be, host, n))) || move(u, p, host, n) < 0))
        return -1;
    w->data = p->dev;
    return 0;
}

static int weight(struct upload *u, struct be_weight *w)
{
    const struct be_weight host = *w;
    return weights(u, w, &host, 1);
}

/* ---- the parts of a model ---- */

static int rope(struct upload *u, struct be_rope *r)
{
    return vector(u, &r->freq, r->n_rot / 2);
}

static int attention(struct upload *u, struct attention *a)
{
    return weight(u, &a->q) < 0 || weight(u, &a->k) < 0 || weight(u, &a->v) < 0 || weight(u, &a->out) < 0 ||
                   vector(u, &a->q_bias, a->q.n_out) < 0 || vector(u, &a->k_bias, a->k.n_out) < 0 ||
                   vector(u, &a->v_bias, a->v.n_out) < 0 || vector(u, &a->out_bias, a->out.n_out) < 0 ||
                   vector(u, &a->q_norm, a->geo.d) < 0 || vector(u, &a->k_norm, a->geo.d) < 0 ||
                   rope(u, &a->rope) < 0
               ? -1
               : 0;
}

static int delta(struct upload *u, struct delta_net *x)
{
    struct be_delta *d = &x->geo;
    int64_t cd = 2 * (int64_t)d->n_k_head * d->dk + (int64_t)d->n_v_head * d->dv;
    return weight(u, &x->qkv) < 0 || weight(u, &x->gate) < 0 || weight(u, &x->beta) < 0 ||
                   weight(u, &x->alpha) < 0 || weight(u, &x->out) < 0 ||
                   vector(u, &d->conv_w, cd * d->conv_k) < 0 || vector(u, &d->dt_bias, d->n_v_head) < 0 ||
                   vector(u, &d->a, d->n_v_head) < 0 || vector(u, &d->norm_w, d->dv) < 0
               ? -1
               : 0;
}

/* One weight stands for all experts. */
struct own_experts {
    struct experts e;
    struct be_weight gate, up, down;
};

static int experts(struct upload *u, const struct experts **out, const struct experts *host)
{
    struct own_experts *o = malloc(sizeof *o);
    if (!o)
        return vt_fail(u->err, VT_E_NOMEM, "out of memory for the experts");
    *o = (struct own_experts){.e = *host, .gate = host->gate[0], .up = host->up[0], .down = host->down[0]};
    o->e.gate = &o->gate;
    o->e.up = &o->up;
    o->e.down = &o->down;
    *out = &o->e;
    return weight(u, &o->e.router) < 0 || vector(u, &o->e.route.bias, host->route.n_expert) < 0 ||
                   weights(u, &o->gate, host->gate, host->route.n_expert) < 0 ||
                   weights(u, &o->up, host->up, host->route.n_expert) < 0 ||
                   weights(u, &o->down, host->down, host->route.n_expert) < 0
               ? -1
               : 0;
}

static int feed_forward(struct upload *u, struct ffn *f, const struct experts *host)
{
    if (weight(u, &f->gate) < 0 || weight(u, &f->up) < 0 || weight(u, &f->down) < 0 ||
        weight(u, &f->shared_gate) < 0 || vector(u, &f->gate_bias, f->gate.n_out) < 0 ||
        vector(u, &f->up_bias, f->up.n_out) < 0 || vector(u, &f->down_bias, f->down.n_out) < 0)
        return -1;
    return host ? experts(u, &f->experts, host) : 0;
}

/* host: the layer's experts, of which l has none yet. */
static int layer(struct upload *u, struct layer *l, const struct experts *host)
{
    int64_t n = u->m.n_embd;
    if (vector(u, &l->mixer_norm, n) < 0 || vector(u, &l->ffn_norm, n) < 0 ||
        vector(u, &l->post_mixer_norm, n) < 0 || vector(u, &l->post_ffn_norm, n) < 0)
        return -1;
    if ((l->mixer == MIX_ATTENTION ? attention(u, &l->attn) : delta(u, &l->delta)) < 0)
        return -1;
    return feed_forward(u, &l->ffn, host);
}

static int draft(struct upload *u, struct draft *d, const struct draft *host)
{
    int64_t n = u->m.n_embd;
    if (weight(u, &d->proj) < 0 || weight(u, &d->embd) < 0 || weight(u, &d->head) < 0 ||
        vector(u, &d->embd_norm, n) < 0 || vector(u, &d->hidden_norm, n) < 0 ||
        vector(u, &d->out_norm, n) < 0)
        return -1;
    return layer(u, &d->block, host->block.ffn.experts);
}

static void *copy_of(const void *p, size_t bytes)
{
    void *c = malloc(bytes + 1);
    return c ? memcpy(c, p, bytes) : NULL;
}

static int take(struct upload *u, const struct model *m)
{
    u->m = *m;
    u->m.layers = copy_of(m->layers, (size_t)m->n_layer * sizeof *m->layers);
    u->m.drafts = copy_of(m->drafts, (size_t)m->n_drafts * sizeof *m->drafts);
    if (!u->m.layers || !u->m.drafts)
        return vt_fail(u->err, VT_E_NOMEM, "out of memory for the layers");
    for (int i = 0; i < m->n_layer; i++)
        u->m.layers[i].ffn.experts = NULL; /* those are the host's */
    for (int i = 0; i < m->n_drafts; i++)
        u->m.drafts[i].block.ffn.experts = NULL;
    if (weight(u, &u->m.embd) < 0 || weight(u, &u->m.head) < 0 || vector(u, &u->m.out_norm, m->n_embd) < 0)
        return -1;
    for (int i = 0; i < m->n_layer; i++)
        if (layer(u, &u->m.layers[i], m->layers[i].ffn.experts) < 0)
            return -1;
    for (int i = 0; i < m->n_drafts; i++)
        if (draft(u, &u->m.drafts[i], &m->drafts[i]) < 0)
            return -1;
    return 0;
}

/* Planned first: a type that the device cannot read is told before memory is asked for. */
static int own_memory(struct upload *u, const struct model *m)
{
    void *memory;
    uint64_t bytes;
    if (upload_plan(m, u->be, &bytes, u->err) < 0 || be_alloc(u->be, &memory, bytes, u->err) < 0)
        return -1;
    u->memory = memory;
    u->own = true;
    return 0;
}

int upload_new(struct upload **out, const struct model *m, struct be *be, const struct upload_place *at,
               upload_progress *progress, void *arg, struct vt_err *err)
{
    *out = NULL;
    struct upload *u = calloc(1, sizeof *u);
    if (!u)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the upload");
    *u = (struct upload){.be = be, .progress = progress, .arg = arg, .err = err};
    if (at && at->memory) {
        u->memory = at->memory;
        u->whole = at->whole;
    }
    if ((!u->memory && own_memory(u, m) < 0) || take(u, m) < 0 || be_sync(be, err) < 0) {
        upload_free(u);
        return -1;
    }
    *out = u;
    return 0;
}

void upload_free(struct upload *u)
{
    if (!u)
        return;
    if (u->own)
        be_release(u->be, u->memory, u->bytes);
    for (int i = 0; u->m.layers && i < u->m.n_layer; i++)
        free((void *)(uintptr_t)u->m.layers[i].ffn.experts);
    for (int i = 0; u->m.drafts && i < u->m.n_drafts; i++)
        free((void *)(uintptr_t)u->m.drafts[i].block.ffn.experts);
    free(u->m.layers);
    free(u->m.drafts);
    free(u->pieces);
    free(u);
}

const struct model *upload_model(const struct upload *u)
{
    return &u->m;
}

uint64_t upload_bytes(const struct upload *u)
{
    return u->bytes;
}

int upload_seal(const struct upload *u, uint64_t *out, struct vt_err *err)
{
    void *seal;
    if (be_alloc(u->be, &seal, sizeof *out, err) < 0)
        return -1;
    be_seal(u->be, seal, u->memory, u->bytes, u->bytes);
    int rc = be_read(u->be, out, seal, sizeof *out, err);
    be_release(u->be, seal, sizeof *out);
    return rc;
}

int upload_plan(const struct model *m, struct be *be, uint64_t *bytes, struct vt_err *err)
{
    struct upload *u = calloc(1, sizeof *u);
    if (!u)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the plan of the weights");
    *u = (struct upload){.be = be, .plan = true, .err = err};
    int rc = take(u, m);
    *bytes = u->bytes;
    upload_free(u);
    return rc;
}
