#include "internal.h"
#include "score.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Guesses for the run that was added last. */
static void add_drafts(struct eng *e, struct slot *s, uint32_t most)
{
    uint32_t n = drafts_guess(e, s, most);
    for (uint32_t i = 0; i < n; i++) {
        e->ids[e->n_rows] = s->drafts.ids[i];
        e->want[e->n_rows++] = 1;
    }
    e->runs[e->n_runs - 1].n_rows += n;
}

static bool decoding(const struct slot *s)
{
    return s->req && s->req->first_us != 0;
}

static bool goes_on(const struct slot *s)
{
    return decoding(s) && s->req->credit > 0;
}

/* The newest item, and those that a wrong guess took back: they have credit and a page, so that they never are more than what was
 * guessed in the step before. */
static uint32_t unevaluated(const struct slot *s)
{
    return s->req->n_items - s->seq.n;
}

/* What items of before take of the rows for guesses, guesses of now do not get. */
static void add_decodes(struct eng *e)
{
    uint32_t n = 0, again = 0;
    for (uint32_t i = 0; i < e->n_slots; i++) {
        const struct slot *s = &e->slots[i];
        n += goes_on(s);
        again += goes_on(s) ? unevaluated(s) - 1 : 0;
    }
    assert(again <= e->draft_rows);
    for (uint32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (!goes_on(s) || slot_room(e, s, unevaluated(s)) < unevaluated(s))
            continue;
        add_run(e, s, unevaluated(s));
        add_drafts(e, s, (e->draft_rows - again) / n);
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
 * the last page border that they reach, where their state is kept. */
static void add_prefills(struct eng *e)
{
    uint32_t n = find_prefills(e), left = e->ubatch;
    for (uint32_t i = 0; i < n && left > 0; i++) {
        struct slot *s = e->todo[i];
        uint32_t need = rows_needed(e, s);
        uint32_t share = (left + (n - i) - 1) / (n - i);
        uint32_t rows = need < share ? need : share;
        rows = slot_room(e, s, kv_seq_cut(&s->seq, rows));
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

/* Items among the rows of a run; guesses are behind them. */
static uint32_t items_of(const struct slot *s, const struct fw_run *run)
{
    return (uint32_t)run->n_rows - s->drafts.n;
}

/* Books n items that were evaluated. Returns true when the logits behind them are to be sampled. */
static bool advance(struct eng *e, struct slot *s, uint32_t n)
{
    struct request *r = s->req;
    uint32_t pages = s->seq.n / BE_PAGE;
    bool prompt = !decoding(s);
    kv_seq_advance(&s->seq, r->items + s->seq.n, n);
    slot_changed(s);
    if (s->seq.n > e->counters.max_tokens)
        e->counters.max_tokens = s->seq.n;
    bool whole = s->seq.n == r->n_items;
    if (prompt) {
        e->counters.prompt_tokens += n;
        e->ev.prefill(e->ev_arg, r->handle, s->seq.n, r->n_items, r->n_reused);
    }
    if (e->ev.dirty && r->pool == ENG_POOL_OFF && (s->seq.n / BE_PAGE > pages || (prompt && whole)))
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
    return r->constraint.use && s->seq.n + items_of(s, run) == r->n_items && samples(r);
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
        uint32_t items = items_of(s, &e->runs[i]), end = s->seq.n + items;
        for (uint32_t k = first_scored(s); k < end && k + 1 < s->req->n_items; k++) {
            e->scores[n_scores].slot = s;
            e->scores[n_scores++].row = n_rows++;
        }
        if (s->req->pool != ENG_POOL_OFF && !vector_take(e, s, &e->runs[i])) {
            end_not_finite(e, s);
            continue;
        }
        if (!advance(e, s, items))
            continue;
        if (samples(s->req)) {
            s->row = n_rows;
            n_rows += 1 + s->drafts.n;
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

/* Samples the rows of n slots in e->todo. Those whose token is what was guessed stay there, each at its next row; returns how
 * many. */
static int64_t sample(struct eng *e, int64_t n, struct vt_err *err)
{
    int64_t picks = 0, left = 0;
    for (int64_t i = 0; i < n; i++)
        if (e->todo[i]->req && mask(e, e->todo[i]))
            e->todo[picks++] = e->todo[i];
    if (pick_all(e, picks, err) < 0)
        return -1;
    for (int64_t i = 0; i < picks; i++) {
        struct slot *s = e->todo[i];
        deliver(e, s);
        if (!s->req || !drafts_confirm(e, s, s->pick.got.id))
            continue;
        advance(e, s, 1);
        s->row++;
        s->logits = NULL;
        e->todo[left++] = s;
    }
    return left;
}

static int finish_batch(struct eng *e, struct vt_err *err)
{
    int64_t n = book(e);
    if (tell_scores(e, err) < 0)
        return -1;
    while (n > 0)
        n = sample(e, n, err);
    return n < 0 ? -1 : 0;
}

static bool any_to_pool(const struct eng *e)
{
    for (int i = 0; i < e->n_runs; i++)
        if (e->run_slots[i]->req->pool != ENG_POOL_OFF)
            return true;
    return false;
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
    struct fw_batch b = {.n_rows = e->n_rows,
                         .ids = e->ids,
                         .want = e->want,
                         .runs = e->runs,
                         .n_runs = e->n_runs,
                         .hidden = any_to_pool(e) ? e->hidden : NULL};
    struct vt_err err;
    if (any_to_make(e))
        aside_start(e->aside, make_masks, e);
    int rc = fw_forward(e->fw, &b, NULL, &err);
    aside_wait(e->aside);
    account(e, vt_mono(&e->clock) - start);
    if (rc < 0 || finish_batch(e, &err) < 0)
        fail_batch(e, &err);
    for (int i = 0; i < e->n_runs; i++)
        drafts_judge(e, e->run_slots[i]);
    pulse_bump(e);
    return true;
}
