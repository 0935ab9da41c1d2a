#include "random.h"
#include "sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V 8

/* Temperature 1, nothing cut. */
static struct vt_sampling plain_sampling(void)
{
    struct vt_sampling p;
    vt_sampling_init(&p);
    p.temperature = 1;
    p.seed = 7;
    return p;
}

static const float row[V] = {1.0f, 2.5f, -1.0f, 2.0f, 0.0f, 1.5f, -3.0f, 0.5f};

static struct sampler *make(uint32_t n)
{
    struct sampler *s;
    assert_int_equal(sampler_new(&s, n, NULL), 0);
    return s;
}

static enum sampler_rc try(struct sampler *s, const struct vt_sampling *p, const float *logits,
                           struct sampler_got *g)
{
    return sampler_pick(s, &(struct sampler_ask){.p = p, .logits = logits}, g);
}

static uint32_t pick(struct sampler *s, const struct vt_sampling *p, const float *logits, uint64_t pos)
{
    struct sampler_got g = {.id = UINT32_MAX};
    struct sampler_ask a = {.p = p, .logits = logits, .position = pos};
    assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_OK);
    return g.id;
}

/* The probabilities that `p` should give for `row` after the given filter. */
static void expect(const bool keep[V], double temperature, double want[V])
{
    double sum = 0;
    for (int i = 0; i < V; i++)
        sum += want[i] = keep[i] ? exp((double)row[i] / temperature) : 0;
    for (int i = 0; i < V; i++)
        want[i] /= sum;
}

/* Draws n times and compares the counts with the exact distribution: chi-square with V - 1 degrees of freedom at most,
 * limit for p = 1e-4. The draws are a function of seed and position, so that this never flickers. */
static void check_distribution(const struct vt_sampling *p, const double want[V])
{
    enum { N = 100000 };
    struct sampler *s = make(V);
    double count[V] = {0}, chi = 0;
    for (uint64_t i = 0; i < N; i++)
        count[pick(s, p, row, i)]++;
    for (int i = 0; i < V; i++) {
        if (want[i] == 0)
            assert_true(count[i] == 0);
        else
            chi += (count[i] - N * want[i]) * (count[i] - N * want[i]) / (N * want[i]);
    }
    assert_true(chi < 29.9);
    sampler_free(s);
}

static void philox_known_answers(void **state)
{
    /* from the authors' kat_vectors */
    static const struct {
        uint32_t c[4], k[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        uint32_t out[4];
        philox4x32(kat[i].c, kat[i].k, out);
        assert_memory_equal(out, kat[i].out, sizeof out);
    }
}

static void random_is_uniform(void **state)
{
    enum { N = 200000, BINS = 64 };
    double bins[BINS] = {0}, chi = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = random_at(i % 3, i / 3, RANDOM_DRAW);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
    }
    for (int i = 0; i < BINS; i++)
        chi += (bins[i] - (double)N / BINS) * (bins[i] - (double)N / BINS) / ((double)N / BINS);
    assert_true(chi < 117); /* 63 degrees of freedom, p = 1e-4 */
}

static void temperature_scales(void **state)
{
    static const bool all[V] = {1, 1, 1, 1, 1, 1, 1, 1};
    double want[V];
    struct vt_sampling p = plain_sampling();
    expect(all, 1, want);
    check_distribution(&p, want);
    p.temperature = 0.5f;
    expect(all, 0.5, want);
    check_distribution(&p, want);
    p.temperature = 3;
    expect(all, 3, want);
    check_distribution(&p, want);
}

static void top_k_keeps_k(void **state)
{
    static const bool keep[V] = {0, 1, 0, 1, 0, 1, 0, 0};
    double want[V];
    struct vt_sampling p = plain_sampling();
    p.top_k = 3;
    expect(keep, 1, want);
    check_distribution(&p, want);
}

static void top_p_keeps_the_smallest_head(void **state)
{
    /* sorted: 1 (.408), 3 (.248), 5 (.150), 0 (.091), 7, 4, 2, 6; cumulated .408 .656 .806 */
    static const bool keep[V] = {0, 1, 0, 1, 0, 1, 0, 0};
    double want[V];
    struct vt_sampling p = plain_sampling();
    p.top_p = 0.7f;
    expect(keep, 1, want);
    check_distribution(&p, want);
    p.top_p = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        struct sampler *s = make(V);
        assert_int_equal(pick(s, &p, row, i), 1);
        sampler_free(s);
    }
    static const bool two[V] = {0, 1, 0, 1, 0, 0, 0, 0};
    p.min_keep = 2;
    expect(two, 1, want);
    check_distribution(&p, want);
}

static void min_p_is_relative_to_the_best(void **state)
{
    /* logit >= 2.5 + ln 0.3 = 1.296 */
    static const bool keep[V] = {0, 1, 0, 1, 0, 1, 0, 0};
    static const bool four[V] = {1, 1, 0, 1, 0, 1, 0, 0};
    double want[V];
    struct vt_sampling p = plain_sampling();
    p.min_p = 0.3f;
    expect(keep, 1, want);
    check_distribution(&p, want);
    p.min_keep = 4;
    expect(four, 1, want);
    check_distribution(&p, want);
}

static void filters_come_before_temperature(void **state)
{
    /* top-p looks at the probabilities at temperature 1; then they are flattened */
    static const bool keep[V] = {0, 1, 0, 1, 0, 1, 0, 0};
    double want[V];
    struct vt_sampling p = plain_sampling();
    p.top_p = 0.7f;
    p.temperature = 4;
    expect(keep, 4, want);
    check_distribution(&p, want);
}

static void greedy_takes_the_first_of_the_best(void **state)
{
    static const float tie[V] = {0, 3, 3, 1, 3, 0, 0, 0};
    struct sampler *s = make(V);
    struct vt_sampling p = plain_sampling();
    p.temperature = 0;
    p.top_k = 1;
    assert_int_equal(pick(s, &p, row, 0), 1);
    assert_int_equal(pick(s, &p, tie, 0), 1);
    p.temperature = 1; /* top-k 1 is greedy, too */
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(pick(s, &p, tie, i), 1);
    sampler_free(s);
}

static void extreme_temperatures_do_not_overflow(void **state)
{
    struct sampler *s = make(V);
    struct vt_sampling p = plain_sampling();
    p.temperature = 1e-38f;
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(pick(s, &p, row, i), 1);
    p.temperature = 1e38f;
    for (uint64_t i = 0; i < 100; i++)
        assert_true(pick(s, &p, row, i) < V);
    sampler_free(s);
}

static void bias_moves_and_bans(void **state)
{
    uint32_t ids[2] = {6, 1};
    struct sampler_got g;
    float bias[2] = {100, -INFINITY};
    struct sampler *s = make(V);
    struct vt_sampling p = plain_sampling();
    p.bias_ids = ids;
    p.bias = bias;
    p.n_bias = 2;
    p.temperature = 0;
    assert_int_equal(pick(s, &p, row, 0), 6);
    bias[0] = 0;
    assert_int_equal(pick(s, &p, row, 0), 3);
    p.temperature = 1;
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_not_equal(pick(s, &p, row, i), 1);

    uint32_t all[V];
    float ban[V];
    for (uint32_t i = 0; i < V; i++) {
        all[i] = i;
        ban[i] = -INFINITY;
    }
    p.bias_ids = all;
    p.bias = ban;
    p.n_bias = V;
    assert_int_equal(try(s, &p, row, &g), SAMPLER_NOTHING);
    sampler_free(s);
}

static uint32_t greedy_after(struct sampler *s, const struct vt_sampling *p, const uint32_t *items, size_t n)
{
    struct sampler_got g;
    struct sampler_ask a = {.p = p, .logits = row, .items = items, .n_items = n};
    assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_OK);
    return g.id;
}

static void penalties_count_the_last_items(void **state)
{
    static const uint32_t items[] = {1, 1, 1, 3, 2, 2};
    struct sampler *s = make(V);
    struct vt_sampling p = plain_sampling();
    p.temperature = 0;
    p.repeat_last_n = 64;
    p.repeat_penalty = 1.3f; /* 1: 1.92, 3: 1.54, 5: 1.5 */
    assert_int_equal(greedy_after(s, &p, items, 6), 1);
    p.repeat_penalty = 1.8f; /* 1: 1.39, 3: 1.11 */
    assert_int_equal(greedy_after(s, &p, items, 6), 5);
    p.repeat_last_n = 3; /* 3, 2, 2: token 1 is free */
    assert_int_equal(greedy_after(s, &p, items, 6), 1);
    p.repeat_last_n = 0;
    assert_int_equal(greedy_after(s, &p, items, 6), 1);
    p.repeat_last_n = -1;
    assert_int_equal(greedy_after(s, &p, items, 6), 5);

    p.repeat_penalty = 1;
    p.frequency_penalty = 0.3f; /* 1: 2.5 - 0.9, 3: 2 - 0.3 */
    assert_int_equal(greedy_after(s, &p, items, 6), 3);
    p.frequency_penalty = 0;
    p.presence_penalty = 1.2f; /* 1: 1.3, 3: 0.8, 5: 1.5 */
    assert_int_equal(greedy_after(s, &p, items, 6), 5);
    /* counts were cleared: nothing of the calls before is left */
    p.presence_penalty = 0.4f; /* 1: 2.1 */
    assert_int_equal(greedy_after(s, &p, items, 1), 1);
    sampler_free(s);
}

static void logprobs_are_those_of_the_untouched_logits(void **state)
{
    uint32_t ids[1] = {1};
    float bias[1] = {-INFINITY};
    struct sampler_top top[3];
    struct sampler_got g = {.top = top};
    struct sampler *s = make(V);
    struct vt_sampling p = plain_sampling();
    p.temperature = 0;
    p.bias_ids = ids;
    p.bias = bias;
    p.n_bias = 1;
    struct sampler_ask a = {.p = &p, .logits = row, .logprob = true, .n_top = 3};
    assert_int_equal(sampler_pick(s, &a, &g), SAMPLER_OK);
    double sum = 0;
    for (int i = 0; i < V; i++)
        sum += exp((double)row[i]);
    assert_int_equal(g.id, 3);
    assert_int_equal(g.n_top, 3);
    assert_true(fabs((double)g.logprob - (2.0 - log(sum))) < 1e-6);
    static const uint32_t best[3] = {1, 3, 5};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(top[i].id, best[i]);
        assert_true(fabs((double)top[i].logprob - ((double)row[best[i]] - log(sum))) < 1e-6);
    }
    sampler_free(s);
}

static void draws_depend_on_seed_and_position_alone(void **state)
{
    struct sampler *a = make(V), *b = make(V);
    struct vt_sampling p = plain_sampling(), q = p;
    q.seed = 8;
    int differ = 0;
    for (uint64_t i = 0; i < 200; i++) {
        uint32_t x = pick(a, &p, row, i);
        assert_int_equal(pick(b, &p, row, i), x);
        differ += pick(b, &q, row, i) != x;
    }
    assert_true(differ > 50);
    sampler_free(a);
    sampler_free(b);
}

static void numbers_that_are_not_finite_are_told(void **state)
{
    float bad[V];
    struct sampler_got g;
    struct vt_sampling p = plain_sampling();
    struct sampler *s = make(V);
    const float poison[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        memcpy(bad, row, sizeof bad);
        bad[V - 1] = poison[i];
        assert_int_equal(try(s, &p, bad, &g), SAMPLER_NOT_FINITE);
    }
    sampler_free(s);
}

static void large_vocabulary(void **state)
{
    enum { BIG = 5000 };
    float *x = malloc(BIG * sizeof *x);
    struct sampler *s = make(BIG);
    for (uint32_t i = 0; i < BIG; i++)
        x[i] = (float)(random_at(1, i, RANDOM_DRAW) * 20 - 10);
    struct sampler_top top[50];
    struct vt_sampling p = plain_sampling();
    struct sampler_ask a = {.p = &p, .logits = x, .logprob = true, .n_top = 50};
    assert_int_equal(sampler_pick(s, &a, &(struct sampler_got){.top = top}), SAMPLER_OK);
    for (int i = 0; i < 50; i++) {
        uint32_t better = 0;
        for (uint32_t j = 0; j < BIG; j++)
            better += x[j] > x[top[i].id];
        assert_int_equal(better, i);
    }
    free(x);
    sampler_free(s);
}

static void parameters_are_checked(void **state)
{
    struct vt_err err;
    struct vt_sampling p = plain_sampling();
    assert_int_equal(sampler_check(&p, V, &err), 0);
    p.temperature = NAN;
    assert_int_equal(sampler_check(&p, V, &err), -1);
    assert_int_equal(err.code, VT_E_PARAM);
    assert_non_null(strstr(err.text, "temperature"));
    p = plain_sampling();
    p.repeat_penalty = 0;
    assert_int_equal(sampler_check(&p, V, &err), -1);
    assert_non_null(strstr(err.text, "repeat_penalty"));
    p = plain_sampling();
    uint32_t id = V;
    float b = 0;
    p.bias_ids = &id;
    p.bias = &b;
    p.n_bias = 1;
    assert_int_equal(sampler_check(&p, V, &err), -1);
    id = 0;
    b = INFINITY;
    assert_int_equal(sampler_check(&p, V, &err), -1);
    b = -INFINITY;
    assert_int_equal(sampler_check(&p, V, &err), 0);
    p.repeat_last_n = -2;
    assert_int_equal(sampler_check(&p, V, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(random_is_uniform),
        cmocka_unit_test(temperature_scales),
        cmocka_unit_test(top_k_keeps_k),
        cmocka_unit_test(top_p_keeps_the_smallest_head),
        cmocka_unit_test(min_p_is_relative_to_the_best),
        cmocka_unit_test(filters_come_before_temperature),
        cmocka_unit_test(greedy_takes_the_first_of_the_best),
        cmocka_unit_test(extreme_temperatures_do_not_overflow),
        cmocka_unit_test(bias_moves_and_bans),
        cmocka_unit_test(penalties_count_the_last_items),
        cmocka_unit_test(logprobs_are_those_of_the_untouched_logits),
        cmocka_unit_test(draws_depend_on_seed_and_position_alone),
        cmocka_unit_test(numbers_that_are_not_finite_are_told),
        cmocka_unit_test(large_vocabulary),
        cmocka_unit_test(parameters_are_checked),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
