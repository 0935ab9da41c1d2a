/* A pick from the best of a row is that from the whole row, bit for bit, or says that it needs the row; and the common settings do
 * not need it. */
#include "random.h"
#include "sampler.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V_MAX 400
#define BEST  64
#define ITEMS 40

struct rng {
    uint64_t seed, at;
};

static double uniform(struct rng *r)
{
    return random_at(r->seed, r->at++, RANDOM_DRAW);
}

static int below(struct rng *r, int n)
{
    return (int)(uniform(r) * n);
}

struct world {
    uint32_t n;
    float row[V_MAX], bias[V_MAX], best_logits[V_MAX];
    uint32_t bias_ids[V_MAX], items[ITEMS], best[V_MAX], allowed[V_MAX];
    uint64_t bits[(V_MAX + 63) / 64];
    struct token_mask mask;
    struct vt_sampling p;
    struct sampler_ask ask;
};

static const float *by_logit;

static int before(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (by_logit[i] != by_logit[k])
        return by_logit[i] > by_logit[k] ? -1 : 1;
    return i < k ? -1 : 1;
}

/* n_best of the row, as be_best gives them. */
static void find_best(struct world *w, uint32_t n_best)
{
    for (uint32_t i = 0; i < w->n; i++)
        w->best[i] = i;
    by_logit = w->row;
    qsort(w->best, w->n, sizeof *w->best, before);
    for (uint32_t i = 0; i < n_best; i++)
        w->best_logits[i] = w->row[w->best[i]];
    w->ask.best = w->best;
    w->ask.best_logits = w->best_logits;
    w->ask.n_best = n_best;
}

static void random_row(struct world *w, struct rng *r)
{
    static const float scales[] = {0, 1, 1, 10, 1e30f};
    float scale = scales[below(r, 5)];
    bool coarse = below(r, 3) == 0; /* many are equal */
    for (uint32_t i = 0; i < w->n; i++) {
        float v = (float)(sqrt(-2 * log(1 - uniform(r))) * cos(6.2831853 * uniform(r)));
        w->row[i] = (coarse ? rintf(v) : v) * scale;
    }
}

/* Mostly what does not need the row, sometimes everything else. */
static void random_sampling(struct world *w, struct rng *r)
{
    struct vt_sampling *p = &w->p;
    uint8_t t;
    vt_sampling_init(p);
    p->seed = (uint64_t)below(r, 1000);
    p->temperature = below(r, 3) ? uniform(r) * 2 : 0;
    p->top_k = below(r, 4) ? 1 + below(r, below(r, 2) ? 8 : (int)w->n) : 0;
    p->top_p = below(r, 3) ? uniform(r) : 1;
    p->min_p = below(r, 3) ? uniform(r) * (below(r, 2) ? 0.1 : 1.1) : 0;
    p->min_keep = below(r, 3) ? 0 : below(r, 10);
    if (below(r, 2))
        p->repeat_penalty = 0.3 + 1.5 * uniform(r);
    if (below(r, 8) == 0)
        p->repeat_penalty = 1e37;
    if (below(r, 3) == 0)
        p->presence_penalty = uniform(r) * 2 - 0.5;
    if (below(r, 3) == 0)
        p->frequency_penalty = uniform(r) * 2 - 0.5;
    p->repeat_last_n = below(r, 3) ? -1 : below(r, ITEMS);
    if (below(r, 3) == 0)
        p->dry_multiplier = uniform(r) * 4 - 1;
    if (below(r, 8) == 0)
        p->typical_p = uniform(r);
    if (below(r, 8) == 0)
        p->top_n_sigma = uniform(r) * 3;
    if (below(r, 4) == 0)
        p->xtc_probability = uniform(r);
    if (below(r, 8) == 0)
        p->dynatemp_range = uniform(r);
    p->mirostat = below(r, 10) ? 0 : below(r, 3);
    if (below(r, 10) == 0)
        p->adaptive_target = uniform(r);
    p->post_probs = below(r, 2);
    for (unsigned i = p->n_chain; below(r, 2) && i-- > 1;) { /* another order */
        unsigned k = (unsigned)below(r, (int)i + 1);
        t = p->chain[i];
        p->chain[i] = p->chain[k];
        p->chain[k] = t;
    }
    if (below(r, 6) == 0)
        p->n_chain = (size_t)below(r, (int)p->n_chain + 1);
}

static void random_bias(struct world *w, struct rng *r)
{
    w->p.n_bias = below(r, 2) ? 0 : (size_t)below(r, 1 + (int)w->n / (1 + below(r, 8)));
    bool up = below(r, 4) == 0;
    for (size_t i = 0; i < w->p.n_bias; i++) {
        w->bias_ids[i] = (uint32_t)below(r, (int)w->n);
        w->bias[i] = below(r, 3) == 0 ? -INFINITY : -(float)uniform(r) * 3;
        if (up && below(r, 4) == 0)
            w->bias[i] = (float)uniform(r) * 3;
    }
    w->p.bias_ids = w->bias_ids;
    w->p.bias = w->bias;
}

static void random_mask(struct world *w, struct rng *r)
{
    w->ask.mask = NULL;
    if (below(r, 2))
        return;
    int share = below(r, 101); /* of a hundred */
    memset(w->bits, 0, sizeof w->bits);
    w->mask = (struct token_mask){0};
    for (uint32_t i = 0; i < w->n; i++)
        if (below(r, 100) < share) {
            w->allowed[w->mask.n++] = i;
            w->bits[i / 64] |= 1ull << i % 64;
        }
    if (below(r, 2))
        w->mask.bits = w->bits;
    else
        w->mask.ids = w->allowed;
    if (w->mask.n > 0)
        w->ask.mask = &w->mask;
}

static void same_pick(struct sampler *s, struct world *w, const float *logits, unsigned *n_rows)
{
    struct sampler_top tops[2][V_MAX];
    struct sampler_got got[2];
    enum sampler_rc rc[2];
    for (int i = 0; i < 2; i++) {
        got[i] = (struct sampler_got){.top = tops[i], .state = sampler_state(&w->p)};
        w->ask.logits = i ? logits : NULL;
        rc[i] = sampler_pick(s, &w->ask, &got[i]);
    }
    *n_rows += rc[0] == SAMPLER_ROW;
    assert_int_not_equal(rc[1], SAMPLER_ROW);
    if (rc[0] == SAMPLER_ROW)
        return;
    assert_int_equal(rc[0], rc[1]);
    if (rc[0] != SAMPLER_OK)
        return;
    assert_int_equal(got[0].id, got[1].id);
    assert_int_equal(got[0].n_top, got[1].n_top);
    assert_memory_equal(&got[0].state, &got[1].state, sizeof got[0].state);
    assert_memory_equal(&got[0].logprob, &got[1].logprob, sizeof got[0].logprob);
    assert_memory_equal(tops[0], tops[1], got[0].n_top * sizeof *tops[0]);
}

static void any_settings(void **state)
{
    enum { ROUNDS = 30000 };
    static struct world w;
    unsigned n_rows = 0;
    struct rng r = {.seed = 3};
    for (int k = 0; k < ROUNDS; k++) {
        struct sampler *s;
        w.n = 1 + (uint32_t)below(&r, k % 4 ? 60 : V_MAX);
        assert_int_equal(sampler_new(&s, w.n, NULL), 0);
        random_row(&w, &r);
        random_sampling(&w, &r);
        random_bias(&w, &r);
        for (int i = 0; i < ITEMS; i++)
            w.items[i] = (uint32_t)below(&r, (int)w.n);
        w.ask = (struct sampler_ask){.p = &w.p,
                                     .items = w.items,
                                     .n_items = (size_t)below(&r, ITEMS + 1),
                                     .position = (uint64_t)k,
                                     .logprob = below(&r, 4) == 0};
        w.ask.n_top = w.ask.logprob && below(&r, 2) ? (unsigned)below(&r, (int)w.n + 1) : 0;
        random_mask(&w, &r);
        find_best(&w, below(&r, 2) ? 1 + (uint32_t)below(&r, (int)w.n) : w.n < BEST ? w.n : BEST);
        same_pick(s, &w, w.row, &n_rows);
        same_pick(s, &w, w.row, &n_rows); /* what the pick before has left behind */
        sampler_free(s);
    }
    print_message("%u of %u picks needed the row\n", n_rows, 2 * ROUNDS);
    assert_in_range(n_rows, ROUNDS / 5, 2 * ROUNDS - ROUNDS / 5);
}

static void not_finite(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    static const uint32_t id = 3;
    struct vt_sampling p;
    struct sampler *s;
    struct sampler_got g;
    vt_sampling_init(&p);
    assert_int_equal(sampler_new(&s, 1000, NULL), 0);
    for (int i = 0; i < 3; i++) {
        struct sampler_ask a = {.p = &p, .best = &id, .best_logits = &odd[i], .n_best = 1};
        assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_NOT_FINITE);
    }
    sampler_free(s);
}

static void common_settings_need_no_row(void **state)
{
    static struct world w;
    unsigned n_rows = 0;
    struct rng r = {.seed = 4};
    struct sampler *s;
    w.n = V_MAX;
    assert_int_equal(sampler_new(&s, w.n, NULL), 0);
    for (int k = 0; k < 500; k++) {
        for (uint32_t i = 0; i < w.n; i++)
            w.row[i] = (float)uniform(&r) * 10;
        for (int i = 0; i < ITEMS; i++)
            w.items[i] = (uint32_t)below(&r, (int)w.n);
        w.ask = (struct sampler_ask){.p = &w.p, .items = w.items, .n_items = ITEMS, .position = (uint64_t)k};
        find_best(&w, BEST);
        vt_sampling_init(&w.p); /* greedy */
        w.p.temperature = 0;
        same_pick(s, &w, w.row, &n_rows);
        w.p.repeat_penalty = 1.1;
        same_pick(s, &w, w.row, &n_rows);
        vt_sampling_init(&w.p);
        w.p.temperature = 0.8;
        w.p.top_k = 40;
        w.p.top_p = 0.95;
        w.p.min_p = 0.05;
        same_pick(s, &w, w.row, &n_rows);
        w.p.dry_multiplier = 0.8;
        w.p.presence_penalty = 0.5;
        same_pick(s, &w, w.row, &n_rows);
        vt_sampling_init(&w.p);
        w.p.temperature = 1;
        w.p.min_p = 0.5;
        same_pick(s, &w, w.row, &n_rows);
    }
    assert_int_equal(n_rows, 0);
    sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_settings),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(common_settings_need_no_row),
    };
    return cmocka_run_group_tests_name("best", tests, NULL, NULL);
}
