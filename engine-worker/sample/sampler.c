#include "sampler.h"
#include "cands.h"
#include "dry.h"
#include "ends.h"
#include "score.h"
#include "steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    struct cands cands;
    struct dry dry;
    uint32_t *counts; /* [n_vocab] occurrences among the last items; zero between picks */
};

/* ---- parameters ---- */

static int bad(struct vt_err *err, const char *name, double v, const char *need)
{
    return vt_fail(err, VT_E_PARAM, "%s is %g; %s is needed", name, v, need);
}

static int check_bias(const struct vt_sampling *p, uint32_t n_vocab, struct vt_err *err)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias_ids[i] >= n_vocab)
            return vt_fail(err, VT_E_PARAM, "logit_bias names token %u; the vocabulary has %u",
                           p->bias_ids[i], n_vocab);
        if (isnan(p->bias[i]) || p->bias[i] == INFINITY)
            return vt_fail(err, VT_E_PARAM, "logit_bias of token %u is not a finite number", p->bias_ids[i]);
    }
    return 0;
}

int sampler_check(const struct vt_sampling *p, uint32_t n_vocab, struct vt_err *err)
{
#define finite_F(name, v)                                                                                    \
    if (!isfinite(v) || fabs(v) > 1e38)                                                                      \
        return bad(err, name, v, "a number that fits a float");
#define finite_I(name, v)
#define SAMPLING(key, NAME, field, kind, neutral) finite_##kind(#field, p->field)
#include "sampling.def"
#undef SAMPLING
#undef finite_F
#undef finite_I
    if (p->repeat_penalty <= 0)
        return bad(err, "repeat_penalty", p->repeat_penalty, "a number above 0");
    if (p->repeat_last_n < -1)
        return bad(err, "repeat_last_n", (double)p->repeat_last_n, "-1 or more");
    if (p->mirostat < 0 || p->mirostat > 2)
        return bad(err, "mirostat", (double)p->mirostat, "0, 1 or 2");
    if (p->adaptive_decay < 0 || p->adaptive_decay > 0.99)
        return bad(err, "adaptive_decay", p->adaptive_decay, "a number from 0 to 0.99");
    if (p->adaptive_target > 1)
        return bad(err, "adaptive_target", p->adaptive_target, "a probability, or a negative number");
    return check_bias(p, n_vocab, err);
}

static bool in_chain(const struct vt_sampling *p, enum vt_sampler k)
{
    return memchr(p->chain, k, p->n_chain) != NULL;
}

static bool adapts(const struct vt_sampling *p)
{
    return p->mirostat == 0 && p->adaptive_target >= 0 && in_chain(p, VT_SAMPLER_ADAPTIVE_P);
}

bool sampler_stateful(const struct vt_sampling *p)
{
    return p->mirostat > 0 || adapts(p);
}

double sampler_state(const struct vt_sampling *p)
{
    if (p->mirostat > 0)
        return 2 * p->mirostat_tau;
    return adapts(p) ? p->adaptive_target / (1 - p->adaptive_decay) : 0;
}

/* ---- life ---- */

int sampler_new(struct sampler **out, uint32_t n_vocab, struct vt_err *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s)
        s->counts = calloc(n_vocab, sizeof *s->counts);
    if (!s || !s->counts || cands_init(&s->cands, n_vocab)) {
        sampler_free(s);
        return vt_fail(err, VT_E_NOMEM, "out of memory for a sampler of %u tokens", n_vocab);
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    cands_fini(&s->cands);
    dry_fini(&s->dry);
    free(s->counts);
    free(s);
}

/* ---- steps that change logits ---- */

static void apply_bias(struct cands *s, const struct vt_sampling *p)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        struct cand *c = cands_find(s, p->bias_ids[i]);
        if (c)
            c->logit += p->bias[i];
        if (p->bias[i] > 0)
            cands_need_rest(s); /* it may lift one that is not known */
    }
}

static void penalize(const void *arg, struct cand *c, uint32_t count)
{
    const struct vt_sampling *p = arg;
    float repeat = (float)p->repeat_penalty;
    c->logit = c->logit <= 0 ? c->logit * repeat : c->logit / repeat;
    c->logit -= (float)count * (float)p->frequency_penalty + (float)p->presence_penalty;
}

static void apply_penalties(struct sampler *s, const struct sampler_ask *a)
{
    const struct vt_sampling *p = a->p;
    const uint32_t *items = a->items;
    size_t n = a->n_items;
    if (p->repeat_last_n == 0 ||
        (p->repeat_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0))
        return;
    if (p->repeat_penalty < 1 || p->presence_penalty < 0 || p->frequency_penalty < 0)
        cands_need_rest(&s->cands); /* they may lift one that is not known */
    if (p->repeat_last_n > 0 && n > (uint64_t)p->repeat_last_n) {
        items += n - (size_t)p->repeat_last_n;
        n = (size_t)p->repeat_last_n;
    }
    for (size_t i = 0; i < n; i++)
        s->counts[items[i]]++;
    cands_for_counted(&s->cands, s->counts, items, n, penalize, p);
}

/* ---- the chain ---- */

static bool reweighs(uint8_t k)
{
    return k == VT_SAMPLER_PENALTIES || k == VT_SAMPLER_DRY;
}

static bool keeps_the_best(uint8_t k)
{
    return k != VT_SAMPLER_TYPICAL_P && k != VT_SAMPLER_XTC;
}

/* Greedy: a step that shortens the list and keeps the best has no effect on the choice, unless logits change after it or
 * the list is to be told. */
static bool idle_when_greedy(const struct vt_sampling *p, unsigned at)
{
    if (p->temperature > 0 || p->dynatemp_range > 0 || p->mirostat > 0 || p->post_probs ||
        !keeps_the_best(p->chain[at]) || !in_chain(p, VT_SAMPLER_TEMPERATURE))
        return false;
    for (unsigned i = at + 1; i < p->n_chain && p->chain[i] != VT_SAMPLER_TEMPERATURE; i++)
        if (reweighs(p->chain[i]) || !keeps_the_best(p->chain[i]))
            return false;
    return true;
}

/* Whether something is left to choose from. */
static enum sampler_rc compact(struct cands *c)
{
    return cands_compact(c) ? SAMPLER_OK : c->rest ? SAMPLER_ROW : SAMPLER_NOTHING;
}

static enum sampler_rc shorten(struct cands *c, uint8_t k, const struct sampler_ask *a)
{
    enum sampler_rc rc = compact(c);
    if (rc != SAMPLER_OK)
        return rc;
    switch (k) {
    case VT_SAMPLER_TOP_K: step_top_k(c, a->p); break;
    case VT_SAMPLER_TOP_P: step_top_p(c, a->p); break;
    case VT_SAMPLER_MIN_P: step_min_p(c, a->p); break;
    case VT_SAMPLER_TYPICAL_P: return step_typical_p(c, a->p) ? SAMPLER_NOMEM : SAMPLER_OK;
    case VT_SAMPLER_TOP_N_SIGMA: step_top_n_sigma(c, a->p); break;
    case VT_SAMPLER_XTC: step_xtc(c, a->p, a->position); break;
    case VT_SAMPLER_TEMPERATURE: step_temperature(c, a->p); break;
    default: break; /* adaptive-p is an end, not a step */
    }
    return SAMPLER_OK;
}

static enum sampler_rc run_chain(struct sampler *s, const struct sampler_ask *a)
{
    const struct vt_sampling *p = a->p;
    enum sampler_rc rc = SAMPLER_OK;
    for (unsigned i = 0; i < p->n_chain && rc == SAMPLER_OK; i++) {
        uint8_t k = p->chain[i];
        if (k == VT_SAMPLER_PENALTIES)
            apply_penalties(s, a);
        else if (k == VT_SAMPLER_DRY)
            rc = dry_apply(&s->dry, &s->cands, s->counts, a) ? SAMPLER_NOMEM : SAMPLER_OK;
        else if ((p->mirostat == 0 || k == VT_SAMPLER_TEMPERATURE) &&
                 (k == VT_SAMPLER_TEMPERATURE || !idle_when_greedy(p, i)))
            rc = shorten(&s->cands, k, a);
        if (s->cands.unsure)
            return SAMPLER_ROW;
    }
    if (rc == SAMPLER_OK)
        rc = compact(&s->cands);
    return rc == SAMPLER_OK && s->cands.rest ? SAMPLER_ROW : rc; /* the draw looks at all */
}

static uint32_t choose(struct cands *c, const struct sampler_ask *a, double *state)
{
    if (a->p->mirostat > 0)
        return end_mirostat(c, a->p, a->position, state);
    if (adapts(a->p))
        return end_adaptive_p(c, a->p, a->position, state);
    return end_draw(c, a->p, a->position);
}

/* ---- log-probabilities ---- */

static void tell_before(const struct cands *c, const struct sampler_ask *a, struct sampler_got *g)
{
    g->n_top = a->n_top < c->n_vocab ? a->n_top : c->n_vocab;
    g->logprob = score_row(a->logits, c->n_vocab, g->id, g->top, g->n_top);
}

/* Of the list that the draw saw. Sorting keeps logits and probabilities in step, since both have the same order. */
static void tell_after(struct cands *c, uint32_t chosen, const struct sampler_ask *a, struct sampler_got *g)
{
    g->logprob = logf(c->probs[chosen]);
    g->n_top = a->n_top < c->n ? a->n_top : c->n;
    c->sorted = false;
    cands_sort(c, g->n_top);
    cands_softmax(c);
    for (unsigned i = 0; i < g->n_top; i++)
        g->top[i] = (struct sampler_top){c->c[i].id, logf(c->probs[i])};
}

static enum sampler_rc load(struct cands *c, const struct sampler_ask *a)
{
    if (!(a->logits ? score_finite(a->logits, c->n_vocab) : isfinite(a->best_logits[0])))
        return SAMPLER_NOT_FINITE;
    if (a->logits)
        cands_load(c, a->logits);
    else if ((a->logprob || a->n_top > 0) && !a->p->post_probs)
        return SAMPLER_ROW;
    else
        cands_load_best(c, a->best, a->best_logits, a->n_best);
    apply_bias(c, a->p);
    if (a->mask)
        cands_mask(c, a->mask);
    return c->unsure ? SAMPLER_ROW : SAMPLER_OK;
}

enum sampler_rc sampler_pick(struct sampler *s, const struct sampler_ask *a, struct sampler_got *g)
{
    struct cands *c = &s->cands;
    enum sampler_rc rc = load(c, a);
    if (rc != SAMPLER_OK)
        return rc;
    rc = run_chain(s, a);
    if (rc != SAMPLER_OK)
        return rc;
    uint32_t chosen = choose(c, a, &g->state);
    g->id = c->c[chosen].id;
    g->n_top = 0;
    if (!a->logprob && a->n_top == 0)
        return SAMPLER_OK;
    if (a->p->post_probs)
        tell_after(c, chosen, a, g);
    else
        tell_before(c, a, g);
    return SAMPLER_OK;
}
