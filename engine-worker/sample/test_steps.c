/* The steps of the chain and its ends, each beside a plain computation in double on random logits. */
#include "random.h"
#include "sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { V = 64, ROUNDS = 200 };

static double uniform(uint64_t *at)
{
    return random_at(99, (*at)++, RANDOM_DRAW);
}

static void random_row(float *x, uint64_t *at)
{
    for (int i = 0; i < V; i++)
        x[i] = (float)(uniform(at) * 12 - 6);
}

static struct vt_sampling with_chain(const char *letters)
{
    struct vt_sampling p;
    vt_sampling_init(&p);
    p.temperature = 1;
    p.seed = 5;
    p.post_probs = 1;
    p.n_chain = 0;
    for (; *letters; letters++)
        p.chain[p.n_chain++] = (uint8_t)vt_sampler_letter(*letters);
    return p;
}

/* What the draw saw: got[id] is its probability, 0 when it was cut. Returns the id that was drawn. */
static uint32_t seen(const struct vt_sampling *p, const float *x, uint64_t position, const uint32_t *items,
                     size_t n, double got[V])
{
    struct sampler *s;
    struct sampler_top top[V];
    struct sampler_got g = {.top = top, .state = sampler_state(p)};
    struct sampler_ask a = {
        .p = p, .logits = x, .items = items, .n_items = n, .position = position, .logprob = true, .n_top = V};
    assert_int_equal(sampler_new(&s, V, NULL), 0);
    assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_OK);
    for (int i = 0; i < V; i++)
        got[i] = 0;
    for (unsigned i = 0; i < g.n_top; i++)
        got[top[i].id] = exp((double)top[i].logprob);
    assert_true(fabs(got[g.id] - exp((double)g.logprob)) < 1e-5);
    sampler_free(s);
    return g.id;
}

static void softmax(const double *x, const bool *keep, double *p)
{
    double sum = 0, max = -HUGE_VAL;
    for (int i = 0; i < V; i++)
        max = (!keep || keep[i]) && x[i] > max ? x[i] : max;
    for (int i = 0; i < V; i++)
        sum += p[i] = !keep || keep[i] ? exp(x[i] - max) : 0;
    for (int i = 0; i < V; i++)
        p[i] /= sum;
}

static void same(const double *got, const double *want)
{
    for (int i = 0; i < V; i++)
        if (fabs(got[i] - want[i]) > 1e-4 * want[i] + 1e-7)
            fail_msg("token %d: %g instead of %g", i, got[i], want[i]);
}

static void widen(const float *x, double *y)
{
    for (int i = 0; i < V; i++)
        y[i] = (double)x[i];
}

static void top_n_sigma(void **state)
{
    uint64_t at = 0;
    for (int r = 0; r < ROUNDS; r++) {
        float x[V];
        double y[V], want[V], got[V], mean = 0, var = 0, max = -HUGE_VAL;
        bool keep[V];
        struct vt_sampling p = with_chain("st");
        p.top_n_sigma = 0.2 + uniform(&at);
        random_row(x, &at);
        widen(x, y);
        for (int i = 0; i < V; i++)
            mean += y[i] / V, max = fmax(max, y[i]);
        for (int i = 0; i < V; i++)
            var += (y[i] - mean) * (y[i] - mean) / V;
        for (int i = 0; i < V; i++)
            keep[i] = y[i] >= max - p.top_n_sigma * sqrt(var);
        softmax(y, keep, want);
        seen(&p, x, (uint64_t)r, NULL, 0, got);
        same(got, want);
    }
}

static const double *by_key;
static int ascending(const void *a, const void *b)
{
    double x = by_key[*(const int *)a], y = by_key[*(const int *)b];
    return x < y ? -1 : x > y ? 1 : 0;
}

static void typical(void **state)
{
    uint64_t at = 1000000;
    for (int r = 0; r < ROUNDS; r++) {
        float x[V];
        double y[V], prob[V], key[V], want[V], got[V], h = 0, sum = 0;
        bool keep[V] = {0};
        int order[V];
        struct vt_sampling p = with_chain("yt");
        p.typical_p = 0.1 + 0.8 * uniform(&at);
        p.min_keep = r % 7;
        random_row(x, &at);
        widen(x, y);
        softmax(y, NULL, prob);
        for (int i = 0; i < V; i++)
            h -= prob[i] * log(prob[i]);
        for (int i = 0; i < V; i++)
            key[i] = fabs(-log(prob[i]) - h), order[i] = i;
        by_key = key;
        qsort(order, V, sizeof *order, ascending);
        for (int i = 0; i < V; i++) {
            keep[order[i]] = true;
            sum += prob[order[i]];
            if (sum > p.typical_p && i + 1 >= p.min_keep)
                break;
        }
        softmax(y, keep, want);
        seen(&p, x, (uint64_t)r, NULL, 0, got);
        same(got, want);
    }
}

static void xtc(void **state)
{
    uint64_t at = 2000000;
    int acted = 0;
    for (int r = 0; r < ROUNDS; r++) {
        float x[V];
        double y[V], prob[V], want[V], got[V], least = HUGE_VAL;
        bool keep[V];
        struct vt_sampling p = with_chain("xt");
        p.xtc_probability = 0.5;
        p.xtc_threshold = 0.05;
        random_row(x, &at);
        widen(x, y);
        softmax(y, NULL, prob);
        bool chance = random_at(p.seed, (uint64_t)r, RANDOM_XTC) < 0.5;
        for (int i = 0; i < V; i++)
            least = prob[i] >= 0.05 ? fmin(least, prob[i]) : least;
        for (int i = 0; i < V; i++)
            keep[i] = !chance || prob[i] <= least;
        acted += chance;
        softmax(y, keep, want);
        seen(&p, x, (uint64_t)r, NULL, 0, got);
        same(got, want);
    }
    assert_true(acted > ROUNDS / 4 && acted < 3 * ROUNDS / 4);
}

static void dynamic_temperature(void **state)
{
    uint64_t at = 3000000;
    for (int r = 0; r < ROUNDS; r++) {
        float x[V];
        double y[V], prob[V], want[V], got[V], h = 0;
        struct vt_sampling p = with_chain("t");
        p.temperature = 1;
        p.dynatemp_range = 0.2 + 1.5 * uniform(&at); /* beyond 1 the lower end is 0 */
        p.dynatemp_exponent = 0.5 + uniform(&at);
        random_row(x, &at);
        widen(x, y);
        softmax(y, NULL, prob);
        for (int i = 0; i < V; i++)
            h -= prob[i] * log(prob[i]);
        double low = fmax(0, 1 - p.dynatemp_range), high = 1 + p.dynatemp_range;
        double t = low + (high - low) * pow(h / log(V), p.dynatemp_exponent);
        for (int i = 0; i < V; i++)
            y[i] /= t;
        softmax(y, NULL, want);
        seen(&p, x, (uint64_t)r, NULL, 0, got);
        same(got, want);
    }
}

static void order_is_the_callers(void **state)
{
    static const float x[V] = {[3] = 4, [5] = 3, [7] = 2};
    double got[V];
    struct vt_sampling p = with_chain("tp"), q = with_chain("pt");
    p.temperature = q.temperature = 4; /* flattened first, top-p keeps far more */
    p.top_p = q.top_p = 0.5;
    int kept_p = 0, kept_q = 0;
    seen(&p, x, 0, NULL, 0, got);
    for (int i = 0; i < V; i++)
        kept_p += got[i] > 0;
    seen(&q, x, 0, NULL, 0, got);
    for (int i = 0; i < V; i++)
        kept_q += got[i] > 0;
    assert_true(kept_p > kept_q);
    struct vt_sampling none = with_chain(""); /* nothing but the draw */
    none.temperature = 0;
    none.top_k = 1;
    seen(&none, x, 0, NULL, 0, got);
    for (int i = 0; i < V; i++)
        assert_true(got[i] > 0);
}

static void greedy_is_the_same_with_every_idle_step(void **state)
{
    uint64_t at = 4000000;
    for (int r = 0; r < ROUNDS; r++) {
        float x[V];
        double got[V];
        uint32_t items[12];
        struct vt_sampling p = with_chain("edskypmxt"), q = with_chain("t");
        random_row(x, &at);
        for (int i = 0; i < 12; i++)
            items[i] = (uint32_t)(uniform(&at) * V);
        p.temperature = q.temperature = 0;
        p.top_k = 3;
        p.top_p = 0.3;
        p.min_p = 0.2;
        p.top_n_sigma = 1;
        uint32_t want = seen(&q, x, 0, items, 12, got);
        assert_int_equal(seen(&p, x, 0, items, 12, got), want);
        p.post_probs = 0; /* now the steps are left out */
        struct sampler *s;
        struct sampler_got g = {0};
        assert_int_equal(sampler_new(&s, V, NULL), 0);
        assert_int_equal(
            sampler_pick(s, &(struct sampler_ask){.p = &p, .logits = x, .items = items, .n_items = 12}, &g),
            SAMPLER_OK);
        assert_int_equal(g.id, want);
        sampler_free(s);
    }
}

/* ---- DRY ---- */

static const uint8_t *letters(const void *arg, uint32_t id, size_t *len)
{
    /* tokens 0..25 are letters, 26 is a newline, 27 "b:" and 28 "::" */
    static const char text[29][3] = {"a", "b", "c", "d", "e", "f", "g",  "h",  "i", "j",
                                     "k", "l", "m", "n", "o", "p", "q",  "r",  "s", "t",
                                     "u", "v", "w", "x", "y", "z", "\n", "b:", "::"};
    *len = id < 29 ? strlen(text[id]) : 0;
    return id < 29 ? (const uint8_t *)text[id] : NULL;
}

/* The definition, in quadratic time. */
static void dry_plainly(const struct vt_sampling *p, const uint32_t *items, int n, int limit, double *y)
{
    int longest[V] = {0};
    for (int j = 0; j < n - 1; j++) {
        int len = 0;
        while (len < limit && len <= j && items[j - len] == items[n - 1 - len])
            len++;
        if (len > longest[items[j + 1]])
            longest[items[j + 1]] = len;
    }
    for (int i = 0; i < V; i++)
        if (longest[i] >= p->dry_allowed_length)
            y[i] -= p->dry_multiplier * pow(p->dry_base, longest[i] - (double)p->dry_allowed_length);
}

static void dry(void **state)
{
    uint64_t at = 5000000;
    for (int r = 0; r < ROUNDS; r++) {
        float x[V];
        double y[V], want[V], got[V];
        uint32_t items[60];
        int n = 1 + (int)(uniform(&at) * 59), limit = n;
        struct vt_sampling p = with_chain("dt");
        struct sampler *s;
        struct sampler_top top[V];
        struct sampler_got g = {.top = top};
        p.dry_multiplier = 0.8;
        p.dry_allowed_length = 1 + r % 3;
        p.breakers = "\n\0:";
        p.breakers_len = r % 2 ? 4 : 0;
        for (int i = 0; i < n; i++)
            items[i] = uniform(&at) < 0.06 ? 26 + (uint32_t)(uniform(&at) * 3) : (uint32_t)(uniform(&at) * 3);
        for (int i = n - 1; i >= 0 && p.breakers_len; i--)
            if (items[i] >= 26) {
                limit = n - 1 - i;
                break;
            }
        random_row(x, &at);
        widen(x, y);
        dry_plainly(&p, items, n, limit, y);
        softmax(y, NULL, want);
        assert_int_equal(sampler_new(&s, V, NULL), 0);
        struct sampler_ask a = {.p = &p,
                                .logits = x,
                                .items = items,
                                .n_items = (size_t)n,
                                .bytes = letters,
                                .logprob = true,
                                .n_top = V};
        assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_OK);
        for (unsigned i = 0; i < g.n_top; i++)
            got[top[i].id] = exp((double)top[i].logprob);
        same(got, want);
        /* and after a truncation that takes nothing away, where candidates have moved */
        struct vt_sampling q = p;
        q.chain[0] = VT_SAMPLER_TOP_K;
        q.chain[1] = VT_SAMPLER_DRY;
        q.chain[2] = VT_SAMPLER_TEMPERATURE;
        q.n_chain = 3;
        q.top_k = V;
        a.p = &q;
        assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_OK);
        for (unsigned i = 0; i < g.n_top; i++)
            got[top[i].id] = exp((double)top[i].logprob);
        same(got, want);
        sampler_free(s);
    }
}

/* A breaker that is spread over two tokens counts, too. */
static void breakers_cross_tokens(void **state)
{
    static const uint32_t items[] = {2, 3, 4, 5, 0, 1, 2, 3}; /* c d e f a b c d: "ab" breaks */
    static const float x[V] = {0};
    double got[V];
    struct vt_sampling p = with_chain("dt");
    struct sampler *s;
    struct sampler_top top[V];
    struct sampler_got g = {.top = top};
    struct sampler_ask a = {
        .p = &p, .logits = x, .items = items, .n_items = 8, .bytes = letters, .logprob = true, .n_top = V};
    p.dry_multiplier = 5;
    p.dry_allowed_length = 2;
    p.breakers = "ab";
    p.breakers_len = 3;
    assert_int_equal(sampler_new(&s, V, NULL), 0);
    for (int allowed = 2; allowed <= 3; allowed++) {
        p.dry_allowed_length = allowed; /* "c d" is all there is after the breaker */
        assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_OK);
        for (unsigned i = 0; i < g.n_top; i++)
            got[top[i].id] = exp((double)top[i].logprob);
        assert_int_equal(got[4] < 0.9 / V, allowed == 2);
    }
    sampler_free(s);
}

/* ---- ends with a state ---- */

static void run_on(const struct vt_sampling *p, double state, uint64_t from, uint64_t to, uint32_t *ids,
                   double *states, double *bits)
{
    struct sampler *s;
    struct sampler_got g = {.state = state};
    uint64_t at = 6000000 + from * V;
    assert_int_equal(sampler_new(&s, V, NULL), 0);
    for (uint64_t i = from; i < to; i++) {
        float x[V];
        double y[V], prob[V];
        random_row(x, &at);
        widen(x, y);
        softmax(y, NULL, prob);
        assert_int_equal(sampler_pick(s, &(struct sampler_ask){.p = p, .logits = x, .position = i}, &g),
                         SAMPLER_OK);
        ids[i] = g.id;
        states[i] = g.state;
        bits[i] = -log2(prob[g.id]);
    }
    sampler_free(s);
}

/* Stopping anywhere and going on with the state gives the same tokens. */
static void check_resume(const struct vt_sampling *p)
{
    enum { N = 60 };
    uint32_t ids[N], again[N];
    double states[N], states2[N], bits[N];
    assert_true(sampler_stateful(p));
    run_on(p, sampler_state(p), 0, N, ids, states, bits);
    for (int k = 1; k < N; k += 7) {
        run_on(p, states[k - 1], (uint64_t)k, N, again, states2, bits);
        assert_memory_equal(ids + k, again + k, (N - (size_t)k) * sizeof *ids);
        assert_true(states[N - 1] == states2[N - 1]);
    }
}

static void mirostat_steers_surprise(void **state)
{
    enum { N = 3000 };
    static uint32_t ids[N];
    static double states[N], bits[N];
    for (int version = 1; version <= 2; version++)
        for (int tau = 1; tau <= 3; tau++) {
            struct vt_sampling p = with_chain("edskypmxt");
            p.post_probs = 0;
            p.mirostat = version;
            p.mirostat_tau = tau;
            p.top_k = 1; /* has no part in it */
            run_on(&p, sampler_state(&p), 0, N, ids, states, bits);
            /* The state adds up how far the surprise among the kept ones was from tau: it must not run away. */
            double off = (sampler_state(&p) - states[N - 1]) / (p.mirostat_eta * N);
            if (fabs(off) > 0.05 * tau)
                fail_msg("version %d, tau %d: mean surprise %g", version, tau, tau + off);
            check_resume(&p);
        }
}

static void adaptive_p_steers_probability(void **state)
{
    enum { N = 3000 };
    static uint32_t ids[N];
    static double states[N], bits[N];
    double last = 2;
    for (int k = 3; k >= 1; k--) {
        struct vt_sampling p = with_chain("amt"); /* it acts last all the same */
        double mean = 0;
        p.post_probs = 0;
        p.min_p = 0.02;
        p.adaptive_target = 0.2 * k;
        run_on(&p, sampler_state(&p), 0, N, ids, states, bits);
        for (int i = 0; i < N; i++)
            mean += exp2(-bits[i]) / N;
        assert_true(mean < last);
        last = mean;
        check_resume(&p);
    }
    struct vt_sampling off = with_chain("mt");
    off.adaptive_target = 0.5; /* not in the chain */
    assert_false(sampler_stateful(&off));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_n_sigma),
        cmocka_unit_test(typical),
        cmocka_unit_test(xtc),
        cmocka_unit_test(dynamic_temperature),
        cmocka_unit_test(order_is_the_callers),
        cmocka_unit_test(greedy_is_the_same_with_every_idle_step),
        cmocka_unit_test(dry),
        cmocka_unit_test(breakers_cross_tokens),
        cmocka_unit_test(mirostat_steers_surprise),
        cmocka_unit_test(adaptive_p_steers_probability),
    };
    return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
