#include "hash.h"
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void request_free(struct request *r)
{
    if (!r)
        return;
    constraint_close(&r->constraint);
    free(r->items);
    free(r->stop_ids);
    free(r->sum);
    free((void *)r->sampling.bias_ids);
    free((void *)r->sampling.bias);
    free((void *)r->sampling.breakers);
    free(r);
}

/* ---- admission ---- */

static int check_ids(const struct eng *e, const uint32_t *ids, size_t n, const char *what, struct vt_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= (uint32_t)e->model->n_vocab)
            return vt_fail(err, VT_E_PARAM, "%s: token id %u is outside of the vocabulary of %d", what,
                           ids[i], e->model->n_vocab);
    return 0;
}

static int check_pool(const struct eng *e, const struct eng_request *q, struct vt_err *err)
{
    uint64_t rows = q->pool == ENG_POOL_ROWS ? q->n_ids : q->pool != ENG_POOL_OFF,
             bytes = rows * (uint64_t)e->model->n_embd * sizeof(float);
    if (q->pool > ENG_POOL_LAST)
        return vt_fail(err, VT_E_CAPABILITY, "pooling %u is not known", (unsigned)q->pool);
    if (q->pool != ENG_POOL_OFF &&
        (q->max_new > 0 || q->n_emitted > 0 || q->n_forced > 0 || q->n_grammar > 0))
        return vt_fail(err, VT_E_PARAM, "a request for vectors has no output");
    if (bytes > ENG_VECTOR_BYTES)
        return vt_fail(err, VT_E_LIMIT, "%zu vectors of %d numbers; at most %u MiB are possible", q->n_ids,
                       e->model->n_embd, ENG_VECTOR_BYTES >> 20);
    return 0;
}

static int check(const struct eng *e, const struct eng_request *q, struct vt_err *err)
{
    if (q->n_ids == 0)
        return vt_fail(err, VT_E_PARAM, "the prompt is empty; at least one token is needed");
    if (q->n_ids >= e->window)
        return vt_fail(err, VT_E_WINDOW,
                       "request (%zu tokens) exceeds the available context size (%u tokens), try "
                       "increasing it",
                       q->n_ids, e->window);
    if (q->n_emitted > e->window - q->n_ids)
        return vt_fail(err, VT_E_PARAM, "the request brings %zu emitted tokens; %zu fit behind its prompt",
                       q->n_emitted, e->window - q->n_ids);
    if (q->n_forced >= e->window - q->n_ids || q->n_forced > q->max_new)
        return vt_fail(err, VT_E_PARAM, "%zu ids are to be told behind %zu; there is no room for them",
                       q->n_forced, q->n_ids);
    for (size_t i = 0; i < q->n_emitted && i < q->n_forced; i++)
        if (q->emitted[i] != q->forced[i])
            return vt_fail(err, VT_E_PARAM,
                           "emitted token %zu of a resumed request is not the one that was to be told", i);
    if (q->slot < -1 || q->slot >= (int64_t)e->n_slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %d does not exist; there are %u", q->slot, e->n_slots);
    if (strlen(q->tenant) > TENANT_MAX)
        return vt_fail(err, VT_E_PARAM, "the tenant's name is longer than %d bytes", TENANT_MAX);
    if (check_ids(e, q->ids, q->n_ids, "prompt", err) < 0 ||
        check_ids(e, q->emitted, q->n_emitted, "resume", err) < 0 ||
        check_ids(e, q->forced, q->n_forced, "forced ids", err) < 0 || check_pool(e, q, err) < 0)
        return -1;
    return check_ids(e, q->stop_ids, q->n_stop_ids, "stop ids", err);
}

static uint32_t *copy_ids(const uint32_t *ids, size_t n)
{
    uint32_t *copy = malloc((n ? n : 1) * sizeof *copy);
    if (copy && n)
        memcpy(copy, ids, n * sizeof *copy);
    return copy;
}

/* The caller's arrays, and a ban on the ids that must not end the sequence. */
static int copy_arrays(struct request *r, const struct eng *e, const struct vt_sampling *s)
{
    size_t n = s->n_bias + (s->ignore_eos ? e->n_eog : 0);
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    float *bias = malloc((n + 1) * sizeof *bias);
    char *breakers = malloc(s->breakers_len + 1);
    r->sampling.bias_ids = ids;
    r->sampling.bias = bias;
    r->sampling.breakers = breakers;
    if (!ids || !bias || !breakers)
        return -1;
    for (size_t i = 0; i < n; i++) {
        bool own = i < s->n_bias;
        ids[i] = own ? s->bias_ids[i] : e->eog[i - s->n_bias];
        bias[i] = own ? s->bias[i] : -__builtin_inff();
    }
    r->sampling.n_bias = n;
    if (s->breakers_len > 0)
        memcpy(breakers, s->breakers, s->breakers_len);
    return 0;
}

static int fill(struct request *r, const struct eng *e, const struct eng_request *q)
{
    const struct vt_sampling *s = &q->sampling;
    r->handle = q->handle;
    memcpy(r->rid, q->rid, sizeof r->rid);
    strcpy(r->tenant, q->tenant); /* checked: it fits */
    kv_root(q->tenant, r->root);
    r->want_slot = q->slot;
    r->n_prompt = (uint32_t)q->n_ids;
    r->n_emitted = r->n_resumed = (uint32_t)q->n_emitted;
    r->n_forced = (uint32_t)q->n_forced;
    uint32_t output = r->n_emitted > r->n_forced ? r->n_emitted : r->n_forced;
    r->n_items = r->cap_items = r->n_prompt + output;
    r->max_new = q->max_new;
    r->credit = q->credit;
    r->logprobs = q->logprobs;
    r->pool = q->pool;
    r->reuse =
        q->reuse && (q->pool == ENG_POOL_OFF || q->pool == ENG_POOL_LAST); /* the rows that are pooled */
    r->ignore_eos = s->ignore_eos != 0;
    r->sampling = *s;
    r->sampling.bias_ids = NULL;
    r->sampling.bias = NULL;
    r->sampling.breakers = NULL;
    r->state = q->n_emitted > 0 && !isnan(q->state) ? q->state : sampler_state(s);
    if (!s->has_seed)
        vt_random(&r->sampling.seed, sizeof r->sampling.seed);
    r->items = malloc(r->n_items * sizeof *r->items);
    r->stop_ids = copy_ids(q->stop_ids, q->n_stop_ids);
    r->n_stop_ids = q->n_stop_ids;
    if (r->pool == ENG_POOL_MEAN && !(r->sum = calloc((size_t)e->model->n_embd, sizeof *r->sum)))
        return -1;
    if (!r->items || !r->stop_ids || copy_arrays(r, e, s) < 0)
        return -1;
    memcpy(r->items, q->ids, q->n_ids * sizeof *r->items);
    if (q->n_forced > 0)
        memcpy(r->items + q->n_ids, q->forced, q->n_forced * sizeof *r->items);
    if (q->n_emitted > 0)
        memcpy(r->items + q->n_ids, q->emitted, q->n_emitted * sizeof *r->items);
    return 0;
}

/* The grammar, at the place to which the ids lead that the client has already. */
static int constrain(struct request *r, const struct eng *e, const struct eng_request *q, struct vt_err *err)
{
    if (q->n_grammar == 0)
        return 0;
    if (r->ignore_eos)
        return vt_fail(err, VT_E_GRAMMAR,
                       "ignore_eos cannot go with a grammar, which says where the text ends");
    if (constraint_open(e->constraints, q->grammar, q->n_grammar, &r->constraint, err) < 0)
        return -1;
    for (size_t i = q->n_forced; i < q->n_emitted; i++)
        if (constraint_advance(&r->constraint, q->emitted[i], err) < 0)
            return vt_fail_prefix(err, "emitted token %zu of a resumed request", i);
    return 0;
}

int request_new(struct request **out, const struct eng *e, const struct eng_request *q, struct vt_err *err)
{
    *out = NULL;
    if (check(e, q, err) < 0)
        return -1;
    struct request *r = calloc(1, sizeof *r);
    if (!r || fill(r, e, q) < 0) {
        request_free(r);
        return vt_fail(err, VT_E_NOMEM, "out of memory for a request of %zu tokens", q->n_ids);
    }
    if (sampler_check(&r->sampling, (uint32_t)e->model->n_vocab, err) < 0 || constrain(r, e, q, err) < 0) {
        request_free(r);
        return -1;
    }
    *out = r;
    return 0;
}

uint32_t request_made(const struct request *r)
{
    return r->n_emitted > r->n_forced ? r->n_emitted - r->n_forced : 0;
}

uint32_t request_untold(const struct request *r)
{
    return r->n_forced > r->n_emitted ? r->n_forced - r->n_emitted : 0;
}

int request_append(struct request *r, uint32_t id)
{
    if (r->n_items == r->cap_items) {
        uint32_t cap = r->cap_items * 2;
        uint32_t *grown = realloc(r->items, cap * sizeof *grown);
        if (!grown)
            return -1;
        r->items = grown;
        r->cap_items = cap;
    }
    r->items[r->n_items++] = id;
    r->n_emitted++;
    return 0;
}

/* ---- ends ---- */

static bool among(uint32_t id, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

bool request_over(const struct eng *e, const struct request *r, enum eng_done *why)
{
    if (request_made(r) > 0) {
        uint32_t last = r->items[r->n_items - 1];
        if (!r->ignore_eos && among(last, e->eog, e->n_eog)) {
            *why = ENG_EOS;
            return true;
        }
        if (among(last, r->stop_ids, r->n_stop_ids)) {
            *why = ENG_STOP_ID;
            return true;
        }
    }
    *why = ENG_LENGTH; /* max_new 0: the prompt is still to be evaluated */
    return r->n_emitted > 0 && (r->n_emitted >= r->max_new || r->n_items >= e->window);
}

void request_usage(const struct eng *e, const struct request *r, struct eng_usage *u)
{
    uint64_t now = vt_mono(&e->clock);
    *u = (struct eng_usage){
        .prompt = r->n_prompt + r->n_forced, .reused = r->n_reused, .generated = request_made(r)};
    u->drafted = r->n_drafted;
    u->accepted = r->n_accepted;
    u->queue_us = (r->placed_us ? r->placed_us : now) - r->submitted_us;
    if (r->placed_us)
        u->prefill_us = (r->first_us ? r->first_us : now) - r->placed_us;
    if (r->first_us)
        u->decode_us = now - r->first_us;
}

/* ---- finding ---- */

static bool has_rid(const uint8_t rid[16])
{
    static const uint8_t none[16];
    return memcmp(rid, none, 16) != 0;
}

static struct slot *slot_with(struct eng *e, uint64_t handle)
{
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].req && e->slots[i].req->handle == handle)
            return &e->slots[i];
    return NULL;
}

static struct request **queued_with(struct eng *e, uint64_t handle)
{
    struct request **at = &e->queue;
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

static struct request *take_queued(struct eng *e, struct request **at)
{
    struct request *r = *at;
    *at = r->next;
    r->next = NULL;
    e->n_queued--;
    return r;
}

/* A second submission of a request that is open: its progress goes to the new handle. */
static bool attach_open(struct eng *e, const struct eng_request *q)
{
    struct request *r = NULL;
    uint32_t slot = UINT32_MAX, pos = 0;
    for (uint32_t i = 0; i < e->n_slots && !r; i++)
        if (e->slots[i].req && memcmp(e->slots[i].req->rid, q->rid, 16) == 0) {
            r = e->slots[i].req;
            slot = i;
        }
    for (struct request *w = e->queue; w && !r; w = w->next) {
        pos++;
        if (memcmp(w->rid, q->rid, 16) == 0)
            r = w;
    }
    if (!r)
        return false;
    if (slot != UINT32_MAX)
        pos = 0;
    else if (r->want_slot >= 0)
        slot = (uint32_t)r->want_slot;
    if (r->handle != q->handle) {
        struct eng_usage usage;
        request_usage(e, r, &usage);
        e->ev.done(e->ev_arg, r->handle, ENG_CANCELLED, r->n_emitted, &usage, NULL);
        r->handle = q->handle;
        r->credit = q->credit;
    }
    e->ev.accepted(e->ev_arg, r->handle, slot, r->n_reused, pos, r->sampling.seed);
    return true;
}

static bool repeat_finished(struct eng *e, const struct eng_request *q)
{
    for (uint32_t i = 0; i < RIDS; i++) {
        const struct finished *f = &e->done[i];
        if (!f->used || memcmp(f->rid, q->rid, 16) != 0)
            continue;
        e->ev.accepted(e->ev_arg, q->handle, f->slot, f->reused, 0, f->seed);
        e->ev.done(e->ev_arg, q->handle, f->why, f->emitted, &f->usage, f->has_err ? &f->err : NULL);
        return true;
    }
    return false;
}

/* ---- the calls ---- */

static void enqueue(struct eng *e, struct request *r)
{
    struct request **at = &e->queue;
    while (*at)
        at = &(*at)->next;
    *at = r;
    e->n_queued++;
    uint32_t slot = r->want_slot >= 0 ? (uint32_t)r->want_slot : UINT32_MAX;
    e->ev.accepted(e->ev_arg, r->handle, slot, 0, e->n_queued, r->sampling.seed);
}

void engine_submit(struct eng *e, const struct eng_request *q)
{
    struct vt_err err;
    struct request *r;
    if (has_rid(q->rid) && (attach_open(e, q) || repeat_finished(e, q)))
        return;
    if (slot_with(e, q->handle) || *queued_with(e, q->handle)) {
        vt_fail(&err, VT_E_BAD_FRAME, "handle %llu is in use", (unsigned long long)q->handle);
        e->ev.refused(e->ev_arg, q->handle, &err, 0);
        return;
    }
    if (e->n_queued >= QUEUE_MAX) {
        vt_fail(&err, VT_E_QUEUE_FULL, "%u requests are waiting", e->n_queued);
        e->ev.refused(e->ev_arg, q->handle, &err, 1000);
        return;
    }
    if (request_new(&r, e, q, &err) < 0) {
        e->ev.refused(e->ev_arg, q->handle, &err, 0);
        return;
    }
    r->order = ++e->order;
    r->submitted_us = vt_mono(&e->clock);
    enum eng_done why;
    if (request_over(e, r, &why)) { /* the ids that came along end it already */
        e->ev.accepted(e->ev_arg, r->handle, UINT32_MAX, 0, 0, r->sampling.seed);
        request_finish(e, r, why, NULL);
        return;
    }
    slot_place_queued(e); /* a slot that has just become idle belongs to those that wait */
    struct slot *s = slot_choose(e, r);
    if (!s) {
        enqueue(e, r);
        return;
    }
    slot_place(e, s, r);
    e->ev.accepted(e->ev_arg, r->handle, s->index, r->n_reused, 0, r->sampling.seed);
}

void engine_cancel(struct eng *e, uint64_t handle)
{
    struct slot *s = slot_with(e, handle);
    struct request **at = queued_with(e, handle);
    if (!s && !*at)
        return; /* it has ended: that was told already */
    e->counters.cancelled++;
    if (s)
        slot_finish(e, s, ENG_CANCELLED, NULL);
    else
        request_finish(e, take_queued(e, at), ENG_CANCELLED, NULL);
}

void engine_credit(struct eng *e, uint64_t handle, uint32_t add)
{
    struct slot *s = slot_with(e, handle);
    struct request *r = s ? s->req : *queued_with(e, handle);
    if (r)
        r->credit = r->credit > UINT32_MAX - add ? UINT32_MAX : r->credit + add;
}

void engine_park_all(struct eng *e)
{
    while (e->queue)
        request_finish(e, take_queued(e, &e->queue), ENG_PARKED, NULL);
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].req)
            slot_finish(e, &e->slots[i], ENG_PARKED, NULL);
}
