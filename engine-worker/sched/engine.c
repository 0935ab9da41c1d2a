#include "internal.h"

#include "build_id.h"
#include "hash.h"
#include "ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PHASE_WEIGHTS = 1, PHASE_KV = 2 };

#define VAULT_WAIT_MS                                                                                        \
    5000 /* for an answer that comes in a millisecond unless the machine is short of everything */

struct claim {
    struct eng *e;
    const struct eng_config *config;
};

static void progress(const struct eng_config *c, unsigned phase, uint64_t done, uint64_t total)
{
    if (c->progress)
        c->progress(c->progress_arg, phase, done, total);
}

/* Reads one byte of every page of the weights, so that loading takes the time that it takes and the first token does
 * not. */
static void touch_weights(struct eng *e, const struct eng_config *c)
{
    volatile uint8_t sink = 0;
    uint64_t done = 0, total = e->model->bytes;
    progress(c, PHASE_WEIGHTS, 0, total);
    for (uint64_t i = 0; i < gguf_n_tensors(e->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(e->file, i);
        for (uint64_t at = 0; at < t->bytes; at += 4096) {
            sink = (uint8_t)(sink + t->data[at]);
            if (at > 0 && at % (64u << 20) == 0)
                progress(c, PHASE_WEIGHTS, done + at, total);
        }
        done += t->bytes;
        progress(c, PHASE_WEIGHTS, done, total);
    }
}

static int check_config(const struct eng_config *c, struct vt_err *err)
{
    if (c->slots < 1 || c->slots > 256)
        return vt_fail(err, VT_E_CONFIG, "engine.slots is %u; 1 to 256 are possible", c->slots);
    if (c->ctx_tokens < ENG_PAGE || c->ctx_tokens % ENG_PAGE != 0 || c->ctx_tokens > 1u << 24)
        return vt_fail(err, VT_E_CONFIG,
                       "engine.ctx_tokens is %u; a multiple of %d from %d to 16777216 is needed",
                       c->ctx_tokens, ENG_PAGE, ENG_PAGE);
    if (c->spec != ENG_SPEC_NONE && (c->spec_n < 1 || c->spec_n > DRAFT_MAX))
        return vt_fail(err, VT_E_CONFIG, "engine.spec_n is %u; 1 to %d are possible", c->spec_n, DRAFT_MAX);
    if (c->ubatch < 1 || c->ubatch > 4096)
        return vt_fail(err, VT_E_CONFIG, "engine.ubatch_tokens is %u; 1 to 4096 are possible", c->ubatch);
    return 0;
}

/* The bytes of a token as a constrained text has them. Control tokens stand for themselves; what is unknown or unused, and
 * rows of the embedding behind the vocabulary, never come. */
static int make_constraints(struct eng *e, struct vt_err *err)
{
    uint32_t n = (uint32_t)e->model->n_vocab;
    struct trie_token *t = calloc(n, sizeof *t);
    if (!t)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the tokens of a vocabulary of %u", n);
    for (uint32_t i = 0; i < n && i < tok_n_vocab(e->tok); i++) {
        enum tok_kind kind = tok_kind(e->tok, i);
        size_t len = 0;
        const uint8_t *p = tok_bytes(e->tok, i, &len);
        if (p && kind != TOK_UNKNOWN && kind != TOK_UNUSED)
            t[i] = (struct trie_token){.bytes = p, .n = (uint32_t)len, .control = kind == TOK_CONTROL};
    }
    int r = constraints_new(&e->constraints, t, n, e->eog, e->n_eog, err);
    if (r == 0)
        r = aside_new(&e->aside, err);
    free(t);
    return r;
}

static int load_model(struct eng *e, const struct eng_config *c, struct vt_err *err)
{
    char key[GGUF_KEY];
    if (gguf_open(&e->file, c->model_path, false, err) < 0)
        return -1;
    gguf_key(e->file, key);
    if (c->model_file && strcmp(c->model_file, key) != 0)
        return vt_fail(err, VT_E_BUSY, "%s is not the file any more that was checked before this start",
                       c->model_path);
    if (model_load(&e->model, e->file, c->model_path, err) < 0 || tok_load(&e->tok, e->file, err) < 0)
        return vt_fail_prefix(err, "%s", c->model_path);
    if (tok_n_vocab(e->tok) > (uint32_t)e->model->n_vocab)
        return vt_fail(err, VT_E_PAYLOAD,
                       "%s: the tokenizer has %u tokens, the embedding %d rows; at least as many rows "
                       "are needed",
                       c->model_path, tok_n_vocab(e->tok), e->model->n_vocab);
    e->n_eog = tok_eog_ids(e->tok, &e->eog);
    return make_constraints(e, err);
}

/* The layout, once for each backend. */
static int describe(struct eng *e, struct vt_err *err)
{
    struct eng_facts *f = &e->facts;
    free(e->layout);
    e->layout = NULL;
    if (layout_describe(e, &e->layout, &f->layout_len, f->layout_fp, f->payload, err) < 0)
        return -1;
    f->layout = e->layout;
    return 0;
}

static struct sizing sizing_of(const struct eng_config *c)
{
    return (struct sizing){.slots = c->slots,
                           .ctx_tokens = c->ctx_tokens,
                           .ubatch = c->ubatch,
                           .rec_snapshots = c->rec_snapshots,
                           .drafts = c->spec != ENG_SPEC_NONE ? sizing_drafts(c->slots, c->spec_n) : 0,
                           .reserve = c->reserve};
}

static void shapes(const struct eng *e, const struct eng_config *c, struct kv_shape *all,
                   struct kv_shape *window)
{
    struct sizing s = sizing_of(c);
    sizing_pools(all, window, e->model, e->be, &s);
}

/* A context on the device takes as long as reading the file's head: both at once. */
static void *warm(void *device)
{
    resident_warm(device);
    return NULL;
}

static int make_slots(struct eng *e, const struct eng_config *c, struct vt_err *err)
{
    static const uint8_t no_root[KV_NAME];
    e->slots = calloc(c->slots, sizeof *e->slots);
    e->done = calloc(RIDS, sizeof *e->done);
    if (!e->slots || !e->done)
        return vt_fail(err, VT_E_NOMEM, "out of memory for %u slots", c->slots);
    for (uint32_t i = 0; i < c->slots; i++) {
        struct slot *s = &e->slots[i];
        s->index = i;
        e->n_slots = i + 1;
        if (kv_seq_init(&s->seq, e->kv, e->win, (uint32_t)e->model->window, e->window, c->rec_snapshots,
                        err) < 0 ||
            sampler_new(&s->sampler, (uint32_t)e->model->n_vocab, err) < 0 || drafts_new(e, s, err) < 0)
            return -1;
        progress(c, PHASE_KV, i + 1, c->slots);
    }
    struct sizing size = sizing_of(c);
    if (kv_seq_init(&e->canary, e->kv, e->win, (uint32_t)e->model->window,
                    sizing_canary_pages(&size) * BE_PAGE, 0, err) < 0)
        return -1;
    kv_seq_clear(&e->canary, no_root);
    kv_seq_room(&e->canary, e->canary.cap); /* the pool has these pages */
    return 0;
}

static int make_batch(struct eng *e, const struct eng_config *c, struct vt_err *err)
{
    struct sizing size = sizing_of(c);
    int64_t rows = sizing_rows(&size);
    e->ids = calloc((size_t)rows, sizeof *e->ids);
    e->want = calloc((size_t)rows, 1);
    e->runs = calloc(e->n_slots, sizeof *e->runs);
    e->run_slots = calloc(e->n_slots, sizeof *e->run_slots);
    e->todo = calloc(e->n_slots, sizeof *e->todo);
    e->scores = calloc(SCORE_ROWS, sizeof *e->scores);
    e->hidden = calloc((size_t)(rows * e->model->n_embd), sizeof *e->hidden);
    e->pooled = calloc((size_t)e->model->n_embd, sizeof *e->pooled);
    if (!e->ids || !e->want || !e->runs || !e->run_slots || !e->todo || !e->scores || !e->hidden ||
        !e->pooled)
        return vt_fail(err, VT_E_NOMEM, "out of memory for a batch of %lld rows", (long long)rows);
    return fw_new(&e->fw, e->resident.m, e->be, e->kv, e->win, rows, (int)e->n_slots, sizing_logits(&size),
                  err);
}

/* ---- memory that outlives the process ---- */

/* Pieces after that of the weights, which is the first one on a device and not there on this processor. */
enum { KEPT_KV, KEPT_KV_LEDGER, KEPT_WINDOW, KEPT_WINDOW_LEDGER, KEPT_N };

/* What is in the weights' piece, and in the others: nothing that this build did not put there for this file on this device. */
static int piece_key(const struct eng *e, const char *what, const struct resident *r, const uint8_t *of,
                     size_t n, uint8_t key[KEEP_KEY])
{
    struct vt_sha256 *h = vt_sha256_new();
    if (!h)
        return -1;
    vt_sha256_add(h, what, strlen(what) + 1);
    vt_sha256_add(h, VT_BUILD_ID, sizeof VT_BUILD_ID);
    vt_sha256_add(h, r->gpu.uuid, sizeof r->gpu.uuid);
    vt_sha256_add(h, of, n);
    vt_sha256_end(h, key);
    vt_sha256_free(h);
    return 0;
}

static void want(struct keep_want *w, const char *name, bool device, const uint8_t key[KEEP_KEY],
                 uint64_t bytes)
{
    *w = (struct keep_want){.name = name, .device = device, .bytes = bytes};
    memcpy(w->key, key, KEEP_KEY);
}

/* Asks the vault for what this engine needs. */
static int claim(void *arg, const struct resident *r, uint64_t weights, struct vt_err *err)
{
    struct claim *c = arg;
    struct eng *e = c->e;
    struct keep_want w[KEEP_MAX];
    uint8_t wkey[KEEP_KEY], key[KEEP_KEY];
    struct kv_shape all, window;
    unsigned n = 0;
    e->be = r->be;
    e->first_kept = weights > 0;
    if (describe(e, err) < 0)
        return -1;
    if (piece_key(e, "weights", r, e->facts.payload, sizeof e->facts.payload, wkey) < 0 ||
        piece_key(e, "kv", r, e->facts.layout_fp, sizeof e->facts.layout_fp, key) < 0)
        return vt_fail(err, VT_E_NOMEM, "out of memory for a piece's key");
    shapes(e, c->config, &all, &window);
    if (weights > 0)
        want(&w[n++], "weights", true, wkey, weights);
    want(&w[n++], "kv", true, key, kv_pool_bytes(&all));
    want(&w[n++], "kv.ledger", false, key, kv_ledger_bytes(all.n_pages));
    if (window.n_attn > 0) {
        want(&w[n++], "window", true, key, kv_pool_bytes(&window));
        want(&w[n++], "window.ledger", false, key, kv_ledger_bytes(window.n_pages));
    }
    int rc = keep_claim(c->config->keep, w, n, VAULT_WAIT_MS, err);
    e->held = keep_held(c->config->keep);
    return rc;
}

/* The pool's memory and ledger; both of the engine before, or both empty. */
static int keep_pool(struct eng *e, unsigned first, struct kv_shape *s, struct vt_err *err)
{
    struct keep *k = e->keep;
    void *ledger;
    bool old_memory, old_ledger;
    uint64_t seal;
    if (!k)
        return 0;
    first += e->first_kept;
    if (keep_map(k, first, e->be, &s->memory, &old_memory, &seal, err) < 0)
        return err->code == VT_E_CAPABILITY ? 0 : -1;
    if (keep_map(k, first + 1, e->be, &ledger, &old_ledger, &seal, err) < 0)
        return -1;
    s->ledger = ledger;
    if (!old_memory || !old_ledger)
        memset(s->ledger, 0, sizeof *s->ledger);
    return 0;
}

static void kept_pool(struct eng *e, unsigned first, const struct kv_shape *s)
{
    if (!s->ledger)
        return;
    first += e->first_kept;
    keep_whole(e->keep, first, 0);
    keep_whole(e->keep, first + 1, 0);
}

static int make_pool(struct eng *e, const struct eng_config *c, struct vt_err *err)
{
    struct kv_shape all, window;
    shapes(e, c, &all, &window);
    if (keep_pool(e, KEPT_KV, &all, err) < 0 || kv_new(&e->kv, &all, err) < 0)
        return -1;
    kept_pool(e, KEPT_KV, &all);
    if (window.n_attn == 0)
        return 0;
    if (keep_pool(e, KEPT_WINDOW, &window, err) < 0 || kv_new(&e->win, &window, err) < 0)
        return -1;
    kept_pool(e, KEPT_WINDOW, &window);
    return 0;
}

static int make_pools(struct eng *e, const struct eng_config *c, struct vt_err *err)
{
    uint64_t start = vt_mono(&e->clock);
    int rc = make_pool(e, c, err);
    e->facts.pools_us = vt_mono(&e->clock) - start;
    return rc;
}

static void uploaded(void *arg, uint64_t done, uint64_t total)
{
    progress(arg, PHASE_WEIGHTS, done, total);
}

static int make_resident(struct eng *e, const struct eng_config *c, struct vt_err *err)
{
    struct sizing size = sizing_of(c);
    struct claim by = {.e = e, .config = c};
    struct resident_config r = {
        .device = c->device ? c->device : "cpu",
        .threads = c->threads,
        .simd = c->simd,
        .progress = uploaded,
        .arg = (void *)(uintptr_t)c,
        .keep = c->keep,
        .claim = claim,
        .claim_arg = &by,
    };
    sizing_rest(&r.plan, e->model, &size);
    e->keep = c->keep;
    if (resident_open(&e->resident, e->model, &r, err) < 0) {
        e->be = NULL;
        return -1;
    }
    e->be = e->resident.be;
    e->pool = e->resident.pool;
    if (!e->resident.up) /* an upload has read them all */
        touch_weights(e, c);
    return 0;
}

/* What the device has less than before: all that was not held by a vault already. Work space is what is neither weights nor KV:
 * buffers, states, tables, the backend's scratch. */
static void measure_device(const struct eng *e, const struct vt_plan *plan, struct eng_facts *f)
{
    struct gpu_facts after;
    const struct gpu_facts *before = &e->resident.gpu;
    uint64_t known = upload_bytes(e->resident.up) + f->kv_measured;
    f->weights_planned = f->weights_measured = upload_bytes(e->resident.up);
    f->work_planned = plan->work + plan->code;
    if (gpu_facts(&after, atoi(e->resident.device + strlen("gpu:")), NULL) == 0 &&
        before->free > after.free && before->free - after.free + e->held > known)
        f->work_measured = before->free - after.free + e->held - known;
}

static int make_facts(struct eng *e, const struct eng_config *c, struct vt_err *err)
{
    const struct model *m = e->model;
    struct eng_facts *f = &e->facts;
    struct kv_stats kv;
    struct sizing size = sizing_of(c);
    struct vt_plan plan;
    sizing_rest(&plan, m, &size);
    uint64_t states = sizing_states(&size) * m->state_floats * sizeof(float);
    if (!e->layout && describe(e, err) < 0)
        return -1;
    const struct eng_facts known = *f;
    kv_stats(e->kv, &kv);
    *f = (struct eng_facts){
        .n_vocab = (uint32_t)m->n_vocab,
        .n_layer = (uint32_t)m->n_layer,
        .n_embd = (uint32_t)m->n_embd,
        .n_ctx_train = (uint32_t)m->n_ctx_train,
        .n_params = m->n_params,
        .model_bytes = gguf_total_bytes(e->file),
        .slots = e->n_slots,
        .window = e->window,
        .pool_tokens = (uint64_t)e->n_slots * e->window,
        .kv_bytes_per_token = kv_page_bytes(e->kv) / BE_PAGE,
        .block_bytes = kv_page_bytes(e->kv),
        .rec_bytes = checkpoint_rec_bytes(e),
        .threads = be_pool_threads(e->pool),
        .weights_planned = m->bytes,
        .weights_measured = m->bytes + m->owned_bytes,
        .kv_planned = plan.kv,
        .kv_measured = kv_bytes(e->kv) + (e->win ? kv_bytes(e->win) : 0),
        .work_planned = fw_bytes(e->fw) + states,
        .work_measured = fw_bytes(e->fw) + states,
    };
    if (e->resident.up)
        measure_device(e, &plan, f);
    snprintf(f->arch, sizeof f->arch, "%s", m->arch);
    snprintf(f->model, sizeof f->model, "%s", m->name);
    snprintf(f->simd, sizeof f->simd, "%s", be_name(e->be));
    snprintf(f->device, sizeof f->device, "%s", e->resident.device);
    snprintf(f->device_note, sizeof f->device_note, "%s", e->resident.note);
    snprintf(f->gpu, sizeof f->gpu, "%s", e->resident.gpu.name);
    snprintf(f->gpu_uuid, sizeof f->gpu_uuid, "%s", e->resident.gpu.uuid);
    f->gpu_free = e->resident.gpu.free;
    f->numerics = NUMERICS;
    f->vault = e->keep && keep_connected(e->keep);
    f->weights_kept = e->resident.kept;
    f->kv_kept = kv.taken;
    f->kv_spoilt = kv.spoilt;
    f->device_us = e->resident.device_us;
    f->weights_us = e->resident.weights_us;
    f->model_us = known.model_us;
    f->pools_us = known.pools_us;
    f->layout = known.layout;
    f->layout_len = known.layout_len;
    memcpy(f->layout_fp, known.layout_fp, sizeof f->layout_fp);
    memcpy(f->payload, known.payload, sizeof f->payload);
    return 0;
}

static void engine_free(struct eng *e)
{
    if (!e)
        return;
    while (e->queue) {
        struct request *r = e->queue;
        e->queue = r->next;
        request_free(r);
    }
    for (uint32_t i = 0; i < e->n_slots; i++) {
        request_free(e->slots[i].req);
        kv_seq_fini(&e->slots[i].seq);
        sampler_free(e->slots[i].sampler);
        drafts_free(e, &e->slots[i]);
    }
    aside_free(e->aside);
    constraints_free(e->constraints);
    kv_seq_fini(&e->canary);
    free(e->slots);
    free(e->done);
    free(e->ids);
    free(e->want);
    free(e->runs);
    free(e->run_slots);
    free(e->todo);
    free(e->scores);
    free(e->hidden);
    free(e->pooled);
    free(e->layout);
    fw_free(e->fw);
    kv_free(e->kv);
    kv_free(e->win);
    if (e->keep && e->be)
        keep_release(e->keep, e->be);
    resident_close(&e->resident);
    tok_free(e->tok);
    model_free(e->model);
    gguf_close(e->file);
    free(e);
}

static int engine_load(struct eng **out, const struct eng_config *c, const struct eng_events *ev,
                       void *ev_arg, struct vt_err *err)
{
    if (check_config(c, err) < 0)
        return -1;
    struct eng *e = calloc(1, sizeof *e);
    if (!e)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the engine");
    e->ev = *ev;
    e->ev_arg = ev_arg;
    e->clock = vt_clock_real();
    e->window = c->ctx_tokens;
    e->ubatch = c->ubatch;
    struct sizing size = sizing_of(c);
    e->draft_rows = size.drafts;
    e->spec_n = size.drafts > 0 ? c->spec_n : 0;
    pulse_set(e, ENG_OP_LOAD);
    uint64_t start = vt_mono(&e->clock);
    pthread_t warming;
    bool both = c->device && pthread_create(&warming, NULL, warm, (void *)(uintptr_t)c->device) == 0;
    int rc = load_model(e, c, err);
    if (both)
        pthread_join(warming, NULL);
    e->facts.model_us = vt_mono(&e->clock) - start;
    if (rc < 0 || make_resident(e, c, err) < 0 || make_pools(e, c, err) < 0 || make_slots(e, c, err) < 0 ||
        make_batch(e, c, err) < 0 || make_facts(e, c, err) < 0) {
        engine_free(e);
        return -1;
    }
    pulse_set(e, ENG_OP_IDLE);
    *out = e;
    return 0;
}

static const struct eng_facts *engine_facts(const struct eng *e)
{
    return &e->facts;
}

static void engine_pulse(const struct eng *e, struct eng_pulse *out)
{
    out->step = atomic_load_explicit(&e->pulse_step, memory_order_relaxed);
    out->stamp_us = atomic_load_explicit(&e->pulse_stamp, memory_order_relaxed);
    out->in_flight = atomic_load_explicit(&e->pulse_in_flight, memory_order_relaxed);
    out->op = atomic_load_explicit(&e->pulse_op, memory_order_relaxed);
}

static void engine_counters(const struct eng *e, struct eng_counters *out)
{
    struct kv_stats kv;
    kv_stats(e->kv, &kv);
    *out = e->counters;
    out->deferred = e->n_queued;
    for (uint32_t i = 0; i < e->n_slots; i++)
        out->processing += e->slots[i].req != NULL;
    out->kv_used_tokens = (uint64_t)(kv.used - e->canary.n_pages) * BE_PAGE;
    out->kv_evicted_pages = kv.evicted;
    out->kv_evicted_tokens += kv.evicted * BE_PAGE;
}

static uint64_t engine_device_free(const struct eng *e)
{
    struct gpu_facts f;
    bool gpu = e->resident.up != NULL;
    return gpu && gpu_facts(&f, atoi(e->resident.device + strlen("gpu:")), NULL) == 0 ? f.free : 0;
}

const struct eng_ops eng_real = {
    .load = engine_load,
    .free = engine_free,
    .facts = engine_facts,
    .selftest = engine_selftest,
    .submit = engine_submit,
    .cancel = engine_cancel,
    .credit = engine_credit,
    .step = engine_step,
    .canary = engine_canary,
    .park_all = engine_park_all,
    .pulse = engine_pulse,
    .counters = engine_counters,
    .device_free = engine_device_free,
    .slots = engine_slots,
    .erase = engine_erase,
    .export_begin = engine_export_begin,
    .export_free = engine_export_free,
    .export_read = engine_export_read,
    .pin = engine_pin,
    .unpin = engine_unpin,
    .resident = engine_resident,
    .import_begin = engine_import_begin,
    .import_write = engine_import_write,
    .import_publish = engine_import_publish,
    .import_free = engine_import_free,
};
