#include "internal.h"
#include "score.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Idle means that nothing can go on: what waits for credit, or behind what does, is not work in flight, or a client that
 * does not read would look like a hang. */
void pulse_set(struct eng *e, enum eng_op op)
{
    uint32_t n = op == ENG_OP_IDLE ? 0 : e->n_queued;
    for (uint32_t i = 0; op != ENG_OP_IDLE && i < e->n_slots; i++)
        n += e->slots[i].req != NULL;
    atomic_store_explicit(&e->pulse_op, (uint8_t)op, memory_order_relaxed);
    atomic_store_explicit(&e->pulse_in_flight, n, memory_order_relaxed);
    atomic_store_explicit(&e->pulse_stamp, vt_mono(&e->clock), memory_order_relaxed);
}

static void pulse_bump(struct eng *e)
{
    atomic_fetch_add_explicit(&e->pulse_step, 1, memory_order_relaxed);
    atomic_store_explicit(&e->pulse_stamp, vt_mono(&e->clock), memory_order_relaxed);
}

/* ---- building the batch ---- */

/* The row behind whose item the next forced id comes; n_items - 1 when there is none. */
static uint32_t first_scored(const struct slot *s)
{
    return s->req->n_items - 1 - request_untold(s->req);
}

/* Its last row gives a token. */
static bool samples(const struct request *r)
{
    return r->n_emitted + request_untold(r) < r->max_new;
}

static void add_run(struct eng *e, struct slot *s, uint32_t n)
{
    const struct request *r = s->req;
    uint32_t from = s->seq.n;
    e->run_slots[e->n_runs] = s;
    e->runs[e->n_runs++] = (struct fw_run){.row0 = e->n_rows,
                                           .n_rows = n,
                                           .pos0 = (int32_t)from,
                                           .pages = s->seq.pages,
                                           .wpages = s->seq.wpages,
                                           .state = s->seq.state};
    memcpy(e->ids + e->n_rows, r->items + from, n * sizeof *e->ids);
    memset(e->want + e->n_rows, 0, n);
    for (uint32_t i = first_scored(s); i < from + n && i + 1 < r->n_items; i++, e->n_scores++)
        e->want[e->n_rows + i - from] = 1;
    if (from + n == r->n_items)
        e->want[e->n_rows + n - 1] = samples(r);
    e->n_rows += n;
}

static bool decoding(const struct slot *s)
{
    return s->req && s->req->first_us != 0;
}

static void add_decodes(struct eng *e)
{
    for (uint32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (decoding(s) && s->req->credit > 0 && slot_room(e, s, 1) == 1)
            add_run(e, s, 1);
    }
}

/* Slots whose prompt is not evaluated yet, the oldest request first. */
static uint32_t find_prefills(struct eng *e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (!s->req || decoding(s))
            continue;
        uint32_t at = n++;
        while (at > 0 && e->todo[at - 1]->req->order > s->req->order) {
            e->todo[at] = e->todo[at - 1];
            at--;
        }
        e->todo[at] = s;
    }
    return n;
}

/* Prompt rows that a slot can do with. Every row that gives a token must have credit, and room for its logits. */
static uint32_t rows_needed(const struct eng *e, const struct slot *s)
{
    const struct request *r = s->req;
    uint32_t untold = request_untold(r), free = first_scored(s) - s->seq.n;
    uint32_t most = SCORE_ROWS - (uint32_t)e->n_scores;
    if (untold > (r->credit < most ? r->credit : most))
        return free + (r->credit < most ? r->credit : most);
    if (untold > 0 && !samples(r))
        return free + untold;
    return free + untold + (r->credit > untold || !samples(r));
}

/* At most ubatch prompt rows a step, in equal shares; what a short prompt leaves goes to those behind it. Hybrids stop at
 * page borders, where their state is kept. */
static void add_prefills(struct eng *e)
{
    uint32_t n = find_prefills(e), left = e->ubatch;
    for (uint32_t i = 0; i < n && left > 0; i++) {
        struct slot *s = e->todo[i];
        uint32_t need = rows_needed(e, s);
        uint32_t share = (left + (n - i) - 1) / (n - i);
        uint32_t rows = need < share ? need : share;
        uint32_t border = BE_PAGE - s->seq.n % BE_PAGE;
        if (s->seq.state && rows > border)
            rows = border;
        rows = slot_room(e, s, rows);
        if (rows == 0)
            continue;
        add_run(e, s, rows);
        left -= rows;
        e->n_prefill_rows += rows;
    }
}

/* ---- after the forward pass ---- */

static const uint8_t *token_bytes(const void *tok, uint32_t id, size_t *len)
{
    return tok_bytes(tok, id, len);
}

static unsigned tops_of(const struct eng *e, const struct request *r)
{
    unsigned n = r->logprobs > 1 ? r->logprobs - 1u : 0;
    return n < (unsigned)e->model->n_vocab ? n : (unsigned)e->model->n_vocab;
}

static void pick_one(void *arg, int64_t i)
{
    struct eng *e = arg;
    struct slot *s = e->todo[i];
    const struct request *r = s->req;
    struct fw_best best = fw_best(e->fw, s->row);
    struct sampler_ask ask = {.p = &r->sampling,
                              .logits = s->logits,
                              .best = best.ids,
                              .best_logits = best.logits,
                              .n_best = best.n,
                              .items = r->items,
                              .n_items = r->n_items,
                              .mask = r->constraint.use ? &s->pick.mask : NULL,
                              .position = request_made(r),
                              .bytes = token_bytes,
                              .bytes_arg = e->tok,
                              .logprob = r->logprobs > 0,
                              .n_top = tops_of(e, r)};
    s->pick.got = (struct sampler_got){.top = s->pick.top, .state = r->state};
    s->pick.rc = sampler_pick(s->sampler, &ask, &s->pick.got);
}

static void tell_token(struct eng *e, const struct request *r, uint32_t id, float logprob,
                       const struct sampler_top *tops, unsigned n_top)
{
    struct eng_top top[LOGPROBS_MAX];
    for (unsigned i = 0; i < n_top; i++)
        top[i] = (struct eng_top){tops[i].id, tops[i].logprob};
    struct eng_token t = {.pos = r->n_emitted - 1,
                          .id = id,
                          .logprob = r->logprobs ? logprob : 0,
                          .top = top,
                          .n_top = n_top,
                          .state = sampler_stateful(&r->sampling) ? r->state : NAN};
    e->ev.token(e->ev_arg, r->handle, &t);
}

static void end_not_finite(struct eng *e, struct slot *s)
{
    struct vt_err err;
    kv_seq_poison(&s->seq);
    slot_changed(s);
    vt_fail(&err, VT_E_NOT_FINITE,
            "the model gave numbers that are not finite at position %u; this request ends, "
            "others go on",
            s->req->n_prompt + s->req->n_emitted);
    slot_finish(e, s, ENG_ERROR, &err);
}

static void deliver(struct eng *e, struct slot *s)
{
    struct request *r = s->req;
    const struct sampler_got *g = &s->pick.got;
    struct vt_err err;
    enum eng_done why;
    if (r->first_us == 0)
        r->first_us = vt_mono(&e->clock);
    if (s->pick.rc == SAMPLER_NOT_FINITE) {
        end_not_finite(e, s);
        return;
    }
    if (s->pick.rc == SAMPLER_NOTHING) {
        vt_fail(&err, r->constraint.use ? VT_E_GRAMMAR : VT_E_PARAM, "%s",
                r->constraint.use ? "logit_bias bans every token that the grammar allows"
                                  : "every token is banned");
        slot_finish(e, s, ENG_ERROR, &err);
        return;
    }
    if (s->pick.rc == SAMPLER_NOMEM || request_append(r, g->id) < 0) {
        vt_fail(&err, VT_E_NOMEM, "out of memory for the output");
        slot_finish(e, s, ENG_ERROR, &err);
        return;
    }
    if (constraint_advance(&r->constraint, g->id, &err) < 0) {
        slot_finish(e, s, ENG_ERROR, &err);
        return;
    }
    r->state = g->state;
    r->credit--;
    e->counters.predicted++;
    tell_token(e, r, g->id, g->logprob, g->top, g->n_top);
    if (request_over(e, r, &why))
        slot_finish(e, s, why, NULL);
}

/* ---- forced ids ---- */

static void score_one(void *arg, int64_t i)
{
    struct eng *e = arg;
    struct score *c = &e->scores[i];
    const struct request *r = c->slot->req;
    uint32_t before = 0, vocab = (uint32_t)e->model->n_vocab;
    for (int64_t k = i; k > 0 && e->scores[k - 1].slot == c->slot; k--)
        before++;
    c->finite = score_finite(c->logits, vocab);
    if (c->finite && r->logprobs > 0)
        c->logprob =
            score_row(c->logits, vocab, r->items[r->n_prompt + r->n_emitted + before], c->top, tops_of(e, r));
}

static int tell_scores(struct eng *e, struct vt_err *err)
{
    for (int64_t i = 0; i < e->n_scores; i++)
        if (fw_row(e->fw, e->scores[i].row, &e->scores[i].logits, err) < 0)
            return -1;
    be_pool_run(e->pool, score_one, e, e->n_scores);
    for (int64_t i = 0; i < e->n_scores; i++) {
        const struct score *c = &e->scores[i];
        struct request *r = c->slot->req;
        enum eng_done why;
        if (!r)
            continue; /* it ended with the one before */
        if (!c->finite) {
            end_not_finite(e, c->slot);
            continue;
        }
        r->credit--;
        r->n_emitted++;
        tell_token(e, r, r->items[r->n_prompt + r->n_emitted - 1], c->logprob, c->top,
                   r->logprobs > 0 ? tops_of(e, r) : 0);
        if (request_over(e, r, &why)) {
            r->first_us = vt_mono(&e->clock);
            slot_finish(e, c->slot, why, NULL);
        }
    }
    return 0;
}

/* Books what a run has evaluated. Returns true when its logits are to be sampled. */
static bool advance(struct eng *e, struct slot *s, const struct fw_run *run)
{
    struct request *r = s->req;
    uint32_t pages = s->seq.n / BE_PAGE;
    bool prompt = !decoding(s);
    kv_seq_advance(&s->seq, r->items + s->seq.n, (uint32_t)run->n_rows);
    slot_changed(s);
    if (s->seq.n > e->counters.max_tokens)
        e->counters.max_tokens = s->seq.n;
    bool whole = s->seq.n == r->n_items;
    if (prompt) {
        e->counters.prompt_tokens += (uint64_t)run->n_rows;
        e->ev.prefill(e->ev_arg, r->handle, s->seq.n, r->n_items, r->n_reused);
    }
    if (e->ev.dirty && (s->seq.n / BE_PAGE > pages || (prompt && whole)))
        e->ev.dirty(e->ev_arg, s->index, false);
    return whole;
}

static void account(struct eng *e, uint64_t us)
{
    uint64_t prompt = e->n_rows ? us * (uint64_t)e->n_prefill_rows / (uint64_t)e->n_rows : 0;
    e->counters.prompt_us += prompt;
    e->counters.predict_us += us - prompt;
    e->counters.decode_calls++;
    for (uint32_t i = 0; i < e->n_slots; i++)
        e->counters.busy_slots_sum += e->slots[i].req != NULL;
}

static void fail_batch(struct eng *e, const struct vt_err *err)
{
    for (int i = 0; i < e->n_runs; i++)
        if (e->run_slots[i]->req)
            slot_finish(e, e->run_slots[i], ENG_ERROR, err);
}

static bool asks_for_mask(const struct slot *s, const struct fw_run *run)
{
    const struct request *r = s->req;
    return r->constraint.use && s->seq.n + (uint32_t)run->n_rows == r->n_items && samples(r);
}

/* Masks depend on what has been written, not on logits: those that are to be made are, while the batch is computed. */
static void make_masks(void *arg)
{
    struct eng *e = arg;
    struct token_mask m;
    for (int i = 0; i < e->n_runs; i++) {
        struct slot *s = e->run_slots[i];
        if (asks_for_mask(s, &e->runs[i]))
            constraint_mask(&s->req->constraint, &m, NULL); /* an error comes again when it is asked for */
    }
}

static bool any_to_make(struct eng *e)
{
    for (int i = 0; i < e->n_runs; i++) {
        struct slot *s = e->run_slots[i];
        if (asks_for_mask(s, &e->runs[i]) && !constraint_has_mask(&s->req->constraint))
            return true;
    }
    return false;
}

/* What the grammar lets come next. False: nothing, and the request has ended. */
static bool mask(struct eng *e, struct slot *s)
{
    struct vt_err err;
    if (!s->req->constraint.use || constraint_mask(&s->req->constraint, &s->pick.mask, &err) == 0)
        return true;
    s->req->first_us = s->req->first_us ? s->req->first_us : vt_mono(&e->clock);
    slot_finish(e, s, ENG_ERROR, &err);
    return false;
}

/* Books all runs; e->todo takes the slots that a token is to be sampled for. */
static int64_t book(struct eng *e)
{
    int64_t n = 0, n_rows = 0, n_scores = 0;
    for (int i = 0; i < e->n_runs; i++) {
        struct slot *s = e->run_slots[i];
        uint32_t end = s->seq.n + (uint32_t)e->runs[i].n_rows;
        for (uint32_t k = first_scored(s); k < end && k + 1 < s->req->n_items; k++) {
            e->scores[n_scores].slot = s;
            e->scores[n_scores++].row = n_rows++;
        }
        if (!advance(e, s, &e->runs[i]))
            continue;
        if (samples(s->req)) {
            s->row = n_rows++;
            s->logits = NULL;
            e->todo[n++] = s;
        } else if (request_untold(s->req) == 0) { /* only the prompt was wanted */
            s->req->first_us = vt_mono(&e->clock);
            slot_finish(e, s, ENG_LENGTH, NULL);
        }
    }
    assert(n_scores == e->n_scores);
    return n;
}

static void pick_again(void *arg, int64_t i)
{
    struct eng *e = arg;
    if (e->todo[i]->pick.rc == SAMPLER_ROW)
        pick_one(e, i);
}

/* From the best of a row; once more from all of it where these did not tell. */
static int pick_all(struct eng *e, int64_t n, struct vt_err *err)
{
    bool again = false;
    be_pool_run(e->pool, pick_one, e, n);
    for (int64_t i = 0; i < n; i++) {
        struct slot *s = e->todo[i];
        if (s->pick.rc != SAMPLER_ROW)
            continue;
        again = true;
        if (fw_row(e->fw, s->row, &s->logits, err) < 0)
            return -1;
    }
    if (again)
        be_pool_run(e->pool, pick_again, e, n);
    return 0;
}

static int finish_batch(struct eng *e, struct vt_err *err)
{
    int64_t n = book(e), n_picks = 0;
    if (tell_scores(e, err) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (e->todo[i]->req && mask(e, e->todo[i]))
            e->todo[n_picks++] = e->todo[i];
    if (pick_all(e, n_picks, err) < 0)
        return -1;
    for (int64_t i = 0; i < n_picks; i++)
        deliver(e, e->todo[i]);
    return 0;
}

bool engine_step(struct eng *e)
{
    e->n_rows = e->n_prefill_rows = e->n_scores = 0;
    e->n_runs = 0;
    slot_place_queued(e);
    add_decodes(e);
    add_prefills(e);
    if (e->n_rows == 0) {
        pulse_set(e, ENG_OP_IDLE);
        return false;
    }
    uint64_t start = vt_mono(&e->clock);
    pulse_set(e, e->n_prefill_rows > 0 ? ENG_OP_PREFILL : ENG_OP_DECODE);
    struct fw_batch b = {
        .n_rows = e->n_rows, .ids = e->ids, .want = e->want, .runs = e->runs, .n_runs = e->n_runs};
    struct vt_err err;
    if (any_to_make(e))
        aside_start(e->aside, make_masks, e);
    int rc = fw_forward(e->fw, &b, NULL, &err);
    aside_wait(e->aside);
    account(e, vt_mono(&e->clock) - start);
    if (rc < 0 || finish_batch(e, &err) < 0)
        fail_batch(e, &err);
    pulse_bump(e);
    return true;
}

/* ---- proof of life ---- */

static int prove(struct eng *e, const struct fw_batch *b, int64_t rows, const char *what, struct vt_err *err)
{
    if (fw_forward(e->fw, b, NULL, err) < 0)
        return vt_fail_prefix(err, "%s", what);
    for (int64_t i = 0; i < rows; i++) {
        struct fw_best best = fw_best(e->fw, i);
        if (!isfinite(best.logits[0]))
            return vt_fail(err, VT_E_NOT_FINITE,
                           "%s: logit %u of row %lld is not finite; the model file is damaged or "
                           "this machine computes wrongly",
                           what, best.ids[0], (long long)i);
    }
    return 0;
}

static uint32_t some_id(const struct eng *e, uint32_t i)
{
    return (i * 37u + 11u) % (uint32_t)e->model->n_vocab;
}

int engine_canary(struct eng *e, struct vt_err *err)
{
    pulse_set(e, ENG_OP_CANARY);
    if (e->canary.state)
        be_zero(e->be, e->canary.state, e->model->state_floats * sizeof *e->canary.state);
    struct fw_run run = {
        .n_rows = 1, .pages = e->canary.pages, .wpages = e->canary.wpages, .state = e->canary.state};
    uint32_t id = some_id(e, 1);
    uint8_t want = 1;
    struct fw_batch b = {.n_rows = 1, .ids = &id, .want = &want, .runs = &run, .n_runs = 1};
    if (prove(e, &b, 1, "canary", err) < 0)
        return -1;
    uint32_t got = fw_best(e->fw, 0).ids[0];
    if (e->canary_known && got != e->canary_expect)
        return vt_fail(err, VT_E_INTERNAL, "canary: the same token gave %u before and %u now",
                       e->canary_expect, got);
    e->canary_expect = got;
    e->canary_known = true;
    pulse_bump(e);
    pulse_set(e, ENG_OP_IDLE);
    return 0;
}

/* One row for every slot in one batch, each with a state of its own. They share the canary's first page at positions of
 * their own, which is as good as pages of their own for this purpose and takes none from restored prefixes. */
static int test_decodes(struct eng *e, struct vt_err *err)
{
    uint32_t n = e->n_slots < BE_PAGE ? e->n_slots : BE_PAGE;
    size_t floats = e->model->state_floats;
    void *memory;
    if (be_alloc(e->be, &memory, n * floats * sizeof(float), err) < 0)
        return vt_fail_prefix(err, "self-test");
    for (uint32_t i = 0; i < n; i++) {
        e->ids[i] = some_id(e, i);
        e->want[i] = 1;
        e->runs[i] = (struct fw_run){.row0 = i,
                                     .n_rows = 1,
                                     .pos0 = (int32_t)i,
                                     .pages = e->canary.pages,
                                     .wpages = e->canary.wpages,
                                     .state = floats ? (float *)memory + i * floats : NULL};
    }
    struct fw_batch b = {.n_rows = n, .ids = e->ids, .want = e->want, .runs = e->runs, .n_runs = (int)n};
    int rc = prove(e, &b, n, "self-test (one token in every slot)", err);
    be_release(e->be, memory, n * floats * sizeof(float));
    return rc;
}

static int test_ubatch(struct eng *e, struct vt_err *err)
{
    if (e->canary.state)
        be_zero(e->be, e->canary.state, e->model->state_floats * sizeof *e->canary.state);
    for (uint32_t i = 0; i < e->ubatch; i++) {
        e->ids[i] = some_id(e, i);
        e->want[i] = i + 1 == e->ubatch;
    }
    struct fw_run run = {
        .n_rows = e->ubatch, .pages = e->canary.pages, .wpages = e->canary.wpages, .state = e->canary.state};
    struct fw_batch b = {.n_rows = e->ubatch, .ids = e->ids, .want = e->want, .runs = &run, .n_runs = 1};
    return prove(e, &b, 1, "self-test (largest batch)", err);
}

int engine_selftest(struct eng *e, struct vt_err *err)
{
    pulse_set(e, ENG_OP_CANARY);
    if (test_decodes(e, err) < 0)
        return -1;
    pulse_bump(e);
    if (test_ubatch(e, err) < 0)
        return -1;
    pulse_bump(e);
    return engine_canary(e, err);
}
