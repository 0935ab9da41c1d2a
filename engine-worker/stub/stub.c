#include "stub.h"

#include "hash.h"

#include <math.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STUB_VOCAB (1u << 20)
#define REC_BYTES  65536u

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void bump(struct eng *e, enum eng_op op)
{
    unsigned busy = e->n_queue;
    for (uint32_t i = 0; i < e->facts.slots; i++)
        busy += e->slots[i].req.used;
    atomic_store(&e->op, busy > 0 || op == ENG_OP_CANARY ? op : ENG_OP_IDLE);
    atomic_store(&e->in_flight, busy);
    atomic_store(&e->stamp, now_us());
    atomic_fetch_add(&e->step, 1);
}

/* ---- load ---- */

static int read_script(struct eng *e, struct vt_err *err)
{
    unsigned id;
    if (e->o.script[0] == 0)
        return 0;
    FILE *f = fopen(e->o.script, "re");
    if (f == NULL)
        return vt_fail_errno(err, VT_E_NO_INPUT, "%s", e->o.script);
    while (fscanf(f, "%u", &id) == 1) {
        uint32_t *p = realloc(e->script, (e->n_script + 1) * sizeof *p);
        if (p == NULL)
            break;
        e->script = p;
        e->script[e->n_script++] = id;
    }
    fclose(f);
    return 0;
}

static void make_facts(struct eng *e)
{
    struct eng_facts *f = &e->facts;
    msgpack_sbuffer sb;
    msgpack_packer pk;
    strcpy(f->arch, "stub");
    strcpy(f->model, "stub");
    strcpy(f->simd, "ref");
    strcpy(f->device, "cpu");
    f->threads = 1;
    f->n_vocab = STUB_VOCAB;
    f->n_layer = f->n_embd = 1;
    f->n_ctx_train = f->window = e->cfg.ctx_tokens;
    f->slots = e->cfg.slots;
    f->pool_tokens = (uint64_t)f->slots * f->window;
    f->kv_bytes_per_token = e->o.price;
    f->block_bytes = (uint64_t)e->o.price * ENG_PAGE;
    f->rec_bytes = e->o.hybrid ? REC_BYTES : 0;
    f->kv_planned = f->pool_tokens * e->o.price;
    f->kv_measured = f->kv_planned + f->kv_planned * e->o.plan_delta / 100;
    msgpack_sbuffer_init(&sb);
    msgpack_packer_init(&pk, &sb, msgpack_sbuffer_write);
    msgpack_pack_map(&pk, 2);
    msgpack_pack_str_with_body(&pk, "hybrid", 6);
    msgpack_pack_uint64(&pk, e->o.hybrid);
    msgpack_pack_str_with_body(&pk, "price", 5);
    msgpack_pack_uint64(&pk, e->o.price);
    memcpy(e->layout, sb.data, sb.size);
    f->layout = e->layout;
    f->layout_len = sb.size;
    vt_sha256(sb.data, sb.size, f->layout_fp);
    msgpack_sbuffer_destroy(&sb);
}

static void stub_free(struct eng *e)
{
    if (e == NULL)
        return;
    for (uint32_t i = 0; e->slots != NULL && i < e->cfg.slots; i++) {
        free(e->slots[i].items);
        free(e->slots[i].req.ids);
    }
    for (unsigned i = 0; i < e->n_queue; i++)
        free(e->queue[i].ids);
    for (unsigned i = 0; i < STUB_CACHE; i++)
        free(e->cache[i].items);
    free(e->slots);
    free(e->script);
    free(e->hoard);
    free(e);
}

static int fill(struct eng *e, struct vt_err *err)
{
    struct worker_faults ignored = {0};
    if (stub_opts_read(e->cfg.extra, &e->o, &ignored, err) < 0 || read_script(e, err) < 0)
        return -1;
    if (e->o.oom_load)
        return vt_fail(err, VT_E_DEVICE_MEM, "the stub was told to run out of device memory");
    e->slots = calloc(e->cfg.slots, sizeof *e->slots);
    for (uint32_t i = 0; e->slots != NULL && i < e->cfg.slots; i++) {
        e->slots[i].items = malloc(e->cfg.ctx_tokens * sizeof(uint32_t));
        if (e->slots[i].items == NULL)
            return vt_fail(err, VT_E_NOMEM, "no memory for slot %u", i);
    }
    if (e->slots == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for slots");
    make_facts(e);
    for (uint32_t t = 0; t <= e->o.ticks; t++) {
        e->cfg.progress(e->cfg.progress_arg, t * 2 <= e->o.ticks ? 1 : 2, t, e->o.ticks);
        stub_fault_load(e, t, e->o.ticks > 0 ? e->o.ticks : 1);
        if (t < e->o.ticks)
            stub_sleep_us((uint64_t)e->o.load_ms * 1000 / e->o.ticks);
    }
    return 0;
}

static int load(struct eng **out, const struct eng_config *cfg, const struct eng_events *ev, void *arg,
                struct vt_err *err)
{
    struct eng *e = calloc(1, sizeof *e);
    if (e == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the stub");
    e->cfg = *cfg;
    e->ev = *ev;
    e->arg = arg;
    if (fill(e, err) < 0) {
        stub_free(e);
        return -1;
    }
    bump(e, ENG_OP_IDLE);
    *out = e;
    return 0;
}

static const struct eng_facts *facts(const struct eng *e)
{
    return &e->facts;
}

static int selftest(struct eng *e, struct vt_err *err)
{
    bump(e, ENG_OP_CANARY);
    return e->o.fail_selftest ? vt_fail(err, VT_E_INTERNAL, "self-test: the stub was told to fail it") : 0;
}

static int canary(struct eng *e, struct vt_err *err)
{
    bump(e, ENG_OP_CANARY);
    return 0;
}

/* ---- requests ---- */

static void usage_of(const struct stub_req *r, uint32_t reused, struct eng_usage *u)
{
    uint64_t now = now_us(), placed = r->placed_at != 0 ? r->placed_at : now;
    *u = (struct eng_usage){.prompt = r->n_prompt, .reused = reused, .generated = r->emitted};
    u->drafted = r->drafted;
    u->accepted = r->accepted;
    u->queue_us = placed - r->queued_at;
    u->prefill_us = r->decode_at != 0 ? r->decode_at - placed : 0;
    u->decode_us = r->decode_at != 0 ? now - r->decode_at : 0;
}

static void end(struct eng *e, struct stub_req *r, uint32_t reused, enum eng_done why,
                const struct vt_err *err)
{
    struct eng_usage u;
    usage_of(r, reused, &u);
    uint64_t handle = r->handle, emitted = r->emitted;
    e->counters.cancelled += why == ENG_CANCELLED;
    free(r->ids);
    memset(r, 0, sizeof *r);
    e->ev.done(e->arg, handle, why, emitted, &u, err);
}

static void end_slot(struct eng *e, struct stub_slot *s, enum eng_done why, const struct vt_err *err)
{
    end(e, &s->req, s->reused, why, err);
    e->ev.dirty(e->arg, (uint32_t)(s - e->slots), true);
}

/* The slot asked for, else the idle one with the longest common prefix, else the idle one that was used longest ago. */
static struct stub_slot *choose(struct eng *e, const struct stub_req *r)
{
    struct stub_slot *best = NULL;
    uint32_t best_n = 0;
    if (r->slot >= 0)
        return e->slots[r->slot].req.used ? NULL : &e->slots[r->slot];
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        struct stub_slot *s = &e->slots[i];
        if (s->req.used)
            continue;
        uint32_t n = r->reuse ? stub_prefix(e, s, r->tenant, r->ids, r->n_ids) : 0;
        if (best == NULL || n > best_n || (n == best_n && s->used < best->used)) {
            best = s;
            best_n = n;
        }
    }
    return best;
}

static uint32_t reusable(const struct eng *e, const struct stub_slot *s, const char *tenant,
                         const uint32_t *ids, uint32_t n_ids)
{
    uint32_t n = stub_prefix(e, s, tenant, ids, n_ids);
    if (n > 0 && n >= n_ids)
        n = n_ids - 1; /* the last position has to be computed for its logits */
    if (e->o.lose_state)
        return 0;
    return e->o.hybrid ? n - n % ENG_PAGE : n; /* recurrent state exists at borders only */
}

static uint32_t resident(const struct eng *e, const struct eng_request *q)
{
    return q->reuse ? reusable(e, NULL, q->tenant, q->ids, (uint32_t)q->n_ids) : 0;
}

static uint32_t place(struct eng *e, struct stub_slot *s, const struct stub_req *r)
{
    uint32_t n = r->reuse ? reusable(e, s, r->tenant, r->ids, r->n_ids) : 0;
    memcpy(s->items, r->ids, n * sizeof *s->items);
    s->req = *r;
    s->req.placed_at = now_us();
    s->n = s->reused = n;
    s->prefilled = false;
    s->used = ++e->serial;
    s->epoch++;
    memcpy(s->tenant, r->tenant, sizeof s->tenant);
    e->counters.prompt_reused += n;
    return n;
}

static void refuse(struct eng *e, uint64_t handle, int code, const char *text)
{
    struct vt_err why;
    vt_fail(&why, code, "%s", text);
    e->ev.refused(e->arg, handle, &why, code == VT_E_QUEUE_FULL ? 1000 : 0);
}

static int take(struct eng *e, const struct eng_request *q, struct stub_req *r)
{
    uint8_t sha[VT_SHA256_LEN];
    char hex[2 * VT_SHA256_LEN + 1];
    *r = (struct stub_req){
        .used = true, .handle = q->handle, .slot = q->slot, .max_new = q->max_new, .credit = q->credit};
    r->n_prompt = (uint32_t)q->n_ids;
    r->n_ids = (uint32_t)(q->n_ids + q->n_emitted);
    r->ids = malloc((r->n_ids + 1) * sizeof *r->ids);
    if (r->ids == NULL)
        return -1;
    memcpy(r->ids, q->ids, q->n_ids * sizeof *r->ids);
    if (q->n_emitted > 0)
        memcpy(r->ids + q->n_ids, q->emitted, q->n_emitted * sizeof *r->ids);
    memcpy(r->rid, q->rid, sizeof r->rid);
    snprintf(r->tenant, sizeof r->tenant, "%s", q->tenant);
    r->n_stop = q->n_stop_ids < 64 ? (uint32_t)q->n_stop_ids : 64;
    if (r->n_stop > 0)
        memcpy(r->stop_ids, q->stop_ids, r->n_stop * sizeof *r->stop_ids);
    r->emitted = (uint32_t)q->n_emitted;
    r->logprobs = q->logprobs;
    r->pool = q->pool;
    r->reuse = q->reuse && q->pool == ENG_POOL_OFF;
    r->seed = q->sampling.seed;
    if (!q->sampling.has_seed)
        vt_random(&r->seed, sizeof r->seed);
    r->queued_at = now_us();
    vt_sha256(q->ids, q->n_ids * sizeof *q->ids, sha);
    vt_hex(sha, sizeof sha, hex);
    r->crash = e->o.crash_on[0] != 0 && strncmp(hex, e->o.crash_on, strlen(e->o.crash_on)) == 0;
    return 0;
}

static void submit(struct eng *e, const struct eng_request *q)
{
    struct stub_req r;
    if (q->n_ids == 0 || q->n_ids + q->n_emitted >= e->facts.window) {
        refuse(e, q->handle, q->n_ids == 0 ? VT_E_PARAM : VT_E_WINDOW,
               "the prompt is empty or longer than the window");
        return;
    }
    if (q->n_grammar > 0) {
        refuse(e, q->handle, VT_E_CAPABILITY, "this engine follows a script and no grammar");
        return;
    }
    if (q->n_forced > 0) {
        refuse(e, q->handle, VT_E_CAPABILITY, "this engine follows a script and tells no ids of others");
        return;
    }
    if (q->slot >= (int32_t)e->facts.slots) {
        refuse(e, q->handle, VT_E_NO_SLOT, "there is no such slot");
        return;
    }
    if (e->n_queue == STUB_QUEUE || take(e, q, &r) < 0) {
        refuse(e, q->handle, VT_E_QUEUE_FULL, "the queue is full");
        return;
    }
    struct stub_slot *s = e->n_queue == 0 || q->slot >= 0 ? choose(e, &r) : NULL;
    if (s != NULL) {
        uint32_t reused = place(e, s, &r);
        e->ev.accepted(e->arg, r.handle, (uint32_t)(s - e->slots), reused, 0, r.seed);
    } else {
        e->queue[e->n_queue++] = r;
        e->ev.accepted(e->arg, r.handle, r.slot >= 0 ? (uint32_t)r.slot : UINT32_MAX, 0, e->n_queue, r.seed);
    }
    bump(e, ENG_OP_PREFILL);
}

static void cancel(struct eng *e, uint64_t handle)
{
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        if (e->slots[i].req.used && e->slots[i].req.handle == handle)
            end_slot(e, &e->slots[i], ENG_CANCELLED, NULL);
    }
    for (unsigned i = 0; i < e->n_queue; i++) {
        if (e->queue[i].handle != handle)
            continue;
        struct stub_req r = e->queue[i];
        memmove(e->queue + i, e->queue + i + 1, (--e->n_queue - i) * sizeof r);
        end(e, &r, 0, ENG_CANCELLED, NULL);
    }
    bump(e, ENG_OP_DECODE);
}

static void credit(struct eng *e, uint64_t handle, uint32_t add)
{
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        if (e->slots[i].req.used && e->slots[i].req.handle == handle)
            e->slots[i].req.credit += add;
    }
    for (unsigned i = 0; i < e->n_queue; i++) {
        if (e->queue[i].handle == handle)
            e->queue[i].credit += add;
    }
}

static void end_all(struct eng *e, enum eng_done why, const struct vt_err *err)
{
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        if (e->slots[i].req.used)
            end_slot(e, &e->slots[i], why, err);
    }
    while (e->n_queue > 0) {
        struct stub_req r = e->queue[--e->n_queue];
        end(e, &r, 0, why, err);
    }
    bump(e, ENG_OP_DECODE);
}

static void park_all(struct eng *e)
{
    end_all(e, ENG_PARKED, NULL);
}

/* ---- step ---- */

static void start_queued(struct eng *e)
{
    for (unsigned i = 0; i < e->n_queue; i++) {
        struct stub_req r = e->queue[i];
        struct stub_slot *s = choose(e, &r);
        if (s == NULL)
            continue;
        memmove(e->queue + i, e->queue + i + 1, (--e->n_queue - i) * sizeof r);
        uint32_t reused = place(e, s, &r);
        e->ev.prefill(e->arg, r.handle, reused, r.n_ids, reused);
        i--;
    }
}

/* One chunk of one slot's prompt, as a real step would. */
static bool prefill(struct eng *e)
{
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        struct stub_slot *s = &e->slots[i];
        if (!s->req.used || s->prefilled)
            continue;
        uint32_t n = s->req.n_ids - s->n < e->cfg.ubatch ? s->req.n_ids - s->n : e->cfg.ubatch;
        if (e->o.prefill_rate > 0)
            stub_sleep_us((uint64_t)n * 1000000 / e->o.prefill_rate);
        stub_sleep_us((uint64_t)e->o.slow_prefill_ms * 1000);
        memcpy(s->items + s->n, s->req.ids + s->n, n * sizeof *s->items);
        s->n += n;
        s->epoch++;
        e->counters.prompt_tokens += n;
        e->ev.prefill(e->arg, s->req.handle, s->n, s->req.n_ids, s->reused);
        s->prefilled = s->n == s->req.n_ids;
        if (s->prefilled) {
            s->req.decode_at = now_us();
            e->counters.prompt_us += s->req.decode_at - s->req.placed_at;
            e->ev.dirty(e->arg, i, false);
        }
        return true;
    }
    return false;
}

/* A vector of each id is (id, 1, place, ids); whatever is pooled is (sum of the ids, 1, pooling, ids). */
static void tell_vectors(struct eng *e, const struct stub_req *r)
{
    float all = 0, v[STUB_DIM] = {0, 1, (float)r->pool, (float)r->n_ids};
    for (uint32_t i = 0; i < r->n_ids; i++) {
        all += (float)r->ids[i];
        v[0] = (float)r->ids[i];
        v[2] = (float)i;
        if (r->pool == ENG_POOL_ROWS)
            e->ev.vectors(e->arg, r->handle, i, 1, STUB_DIM, v);
    }
    v[0] = all;
    v[2] = (float)r->pool;
    if (r->pool != ENG_POOL_ROWS)
        e->ev.vectors(e->arg, r->handle, 0, 1, STUB_DIM, v);
}

static void tell_token(struct eng *e, const struct stub_req *r, uint32_t id)
{
    struct eng_top top[64];
    unsigned n = r->logprobs > 1 ? r->logprobs - 1u : 0;
    for (unsigned k = 0; k < n && k < 64; k++)
        top[k] = (struct eng_top){id + k, -0.5f * (float)(k + 1)};
    struct eng_token t = {
        .pos = r->emitted, .id = id, .logprob = -0.5f, .top = top, .n_top = n < 64 ? n : 64, .state = NAN};
    e->ev.token(e->arg, r->handle, &t);
}

static void decode_one(struct eng *e, struct stub_slot *s)
{
    struct stub_req *r = &s->req;
    struct vt_err err;
    bool scripted = e->script != NULL;
    stub_fault_token(e, r);
    if (stub_fault_nan(e)) {
        e->tokens++;
        vt_fail(&err, VT_E_NOT_FINITE, "the stub was told to see numbers that are not finite");
        end_slot(e, s, ENG_ERROR, &err);
        return;
    }
    if (r->pool != ENG_POOL_OFF)
        tell_vectors(e, r);
    if (r->emitted >= r->max_new || s->n >= e->facts.window) {
        end_slot(e, s, ENG_LENGTH, NULL);
        return;
    }
    if (scripted && r->emitted >= e->n_script) {
        end_slot(e, s, ENG_EOS, NULL);
        return;
    }
    uint32_t id = scripted ? e->script[r->emitted] : stub_token(&e->o, r->seed, r->emitted);
    tell_token(e, r, id);
    s->items[s->n++] = id;
    s->epoch++;
    r->emitted++;
    r->credit--;
    e->tokens++;
    e->counters.predicted++;
    stub_guess(e, r);
    if (s->n % ENG_PAGE == 0)
        e->ev.dirty(e->arg, (uint32_t)(s - e->slots), false);
    for (uint32_t i = 0; i < r->n_stop; i++) {
        if (r->stop_ids[i] == id) {
            end_slot(e, s, ENG_STOP_ID, NULL);
            return;
        }
    }
    if (r->emitted >= r->max_new)
        end_slot(e, s, ENG_LENGTH, NULL);
}

static bool decode(struct eng *e)
{
    struct vt_err err;
    uint32_t busy = 0;
    for (uint32_t i = 0; i < e->facts.slots; i++)
        busy += e->slots[i].req.used && e->slots[i].prefilled &&
                (e->slots[i].req.credit > 0 || e->slots[i].req.max_new == 0);
    if (busy == 0)
        return false;
    if (stub_fault_device(e)) {
        vt_fail(&err, VT_E_DEVICE_LOST, "the stub was told to lose its device");
        end_all(e, ENG_ERROR, &err);
        return true;
    }
    if (e->o.rate > 0)
        stub_sleep_us(1000000 / e->o.rate);
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        struct stub_slot *s = &e->slots[i];
        if (s->req.used && s->prefilled && (s->req.credit > 0 || s->req.max_new == 0))
            decode_one(e, s);
    }
    e->counters.decode_calls++;
    e->counters.busy_slots_sum += busy;
    return true;
}

static bool step(struct eng *e)
{
    start_queued(e);
    bool filled = prefill(e), decoded = decode(e);
    if (!filled && !decoded)
        return false;
    bump(e, filled ? ENG_OP_PREFILL : ENG_OP_DECODE);
    return true;
}

/* ---- what others look at ---- */

static void pulse(const struct eng *e, struct eng_pulse *out)
{
    out->step = atomic_load(&e->step);
    out->stamp_us = atomic_load(&e->stamp);
    out->in_flight = atomic_load(&e->in_flight);
    out->op = (uint8_t)atomic_load(&e->op);
}

static void counters(const struct eng *e, struct eng_counters *out)
{
    *out = e->counters;
    out->deferred = e->n_queue;
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        out->processing += e->slots[i].req.used;
        out->kv_used_tokens += e->slots[i].n;
        if (e->slots[i].n > out->max_tokens)
            out->max_tokens = e->slots[i].n;
    }
}

static uint32_t slots(const struct eng *e, struct eng_slot_info *out, uint32_t max)
{
    uint32_t n = e->facts.slots < max ? e->facts.slots : max;
    for (uint32_t i = 0; i < n; i++) {
        const struct stub_slot *s = &e->slots[i];
        const struct stub_req *r = &s->req;
        out[i] =
            (struct eng_slot_info){.slot = i, .n_tokens = s->n, .epoch = s->epoch, .n_reused = s->reused};
        memcpy(out[i].tenant, s->tenant, sizeof s->tenant);
        if (!r->used)
            continue;
        out[i].state = !s->prefilled ? 2 : r->credit > 0 ? 3 : 4;
        out[i].n_prompt = r->n_prompt;
        out[i].n_decoded = r->emitted;
        out[i].n_remain = r->max_new > r->emitted ? r->max_new - r->emitted : 0;
        memcpy(out[i].rid, r->rid, sizeof r->rid);
    }
    return n;
}

static int erase(struct eng *e, uint32_t slot, uint32_t *n_erased, struct vt_err *err)
{
    if (slot >= e->facts.slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %u does not exist", slot);
    if (e->slots[slot].req.used)
        return vt_fail(err, VT_E_BUSY, "slot %u is at work", slot);
    *n_erased = e->slots[slot].n;
    e->slots[slot].n = 0;
    e->slots[slot].epoch++;
    return 0;
}

const struct eng_ops eng_stub = {.load = load,
                                 .free = stub_free,
                                 .facts = facts,
                                 .selftest = selftest,
                                 .submit = submit,
                                 .cancel = cancel,
                                 .credit = credit,
                                 .step = step,
                                 .canary = canary,
                                 .park_all = park_all,
                                 .pulse = pulse,
                                 .counters = counters,
                                 .slots = slots,
                                 .erase = erase,
                                 .export_begin = stub_export_begin,
                                 .export_free = stub_export_free,
                                 .export_read = stub_export_read,
                                 .resident = resident,
                                 .import_begin = stub_import_begin,
                                 .import_write = stub_import_write,
                                 .import_publish = stub_import_publish,
                                 .import_free = stub_import_free};
