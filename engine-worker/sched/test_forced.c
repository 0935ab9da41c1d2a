/* Ids that the output begins with whatever the sampler says: told once each, with the log-probabilities of the model. */
#include "rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPT = 150, NEW = 9 };
static uint32_t ids[PROMPT];

static struct eng_request forced(uint32_t n_ids, uint32_t n, uint32_t n_new)
{
    struct eng_request q = rig_request(ids, n_ids, n + n_new);
    q.forced = ids + n_ids;
    q.n_forced = n;
    q.logprobs = 3;
    return q;
}

/* Of id behind the first n: as the sampler tells it when nothing else may come. */
static float logprob_of(struct rig *r, uint32_t n, uint32_t id)
{
    float push = 1e6f;
    struct eng_request q = rig_request(ids, n, 1);
    q.sampling.bias_ids = &id;
    q.sampling.bias = &push;
    q.sampling.n_bias = 1;
    q.logprobs = 1;
    struct rig_req *a = rig_answer(r, &q);
    assert_int_equal(a->ids[0], id);
    return a->logprobs[0];
}

static void told_with_what_the_model_thinks(const struct tiny *t)
{
    struct rig r;
    rig_open(&r, t, &(struct rig_opts){.ubatch = 48, .threads = 2});
    struct eng_request plain = rig_request(ids, PROMPT, NEW), q = forced(1, PROMPT - 1, NEW);
    struct rig_req want = *rig_answer(&r, &plain), *a = rig_answer(&r, &q); /* what is cached is of no use */
    assert_int_equal(a->n, PROMPT - 1 + NEW);
    assert_int_equal(a->why, ENG_LENGTH);
    assert_int_equal(a->usage.prompt, PROMPT);
    assert_int_equal(a->usage.generated, NEW);
    assert_int_equal(a->reused, 0);
    assert_memory_equal(a->ids, ids + 1, (PROMPT - 1) * sizeof *ids);
    assert_memory_equal(a->ids + PROMPT - 1, want.ids, NEW * sizeof *ids);
    struct rig_req got = *a;
    for (uint32_t i = 1; i < PROMPT; i += 37) {
        assert_true(fabsf(got.logprobs[i - 1] - logprob_of(&r, i, ids[i])) < 1e-5f);
        assert_true(got.top[i - 1][0].logprob >= got.top[i - 1][1].logprob);
        assert_true(got.top[i - 1][0].logprob >= got.logprobs[i - 1]);
    }
    rig_close(&r);
}

static void told(void **state)
{
    told_with_what_the_model_thinks(&tiny_qwen3);
    told_with_what_the_model_thinks(&tiny_qwen35);
    told_with_what_the_model_thinks(&tiny_gemma3);
}

static void prompt_only_and_ends(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = forced(1, PROMPT - 1, 0);
    struct rig_req *a = rig_answer(&r, &q);
    assert_int_equal(a->n, PROMPT - 1);
    assert_int_equal(a->why, ENG_LENGTH);
    assert_int_equal(a->usage.generated, 0);
    /* ids that end a generation do not end a prompt, nor do stop ids */
    uint32_t mine[4] = {5, 257, 257, 6}, stop = 6;
    q = rig_request(mine, 1, 3 + 2);
    q.forced = mine + 1;
    q.n_forced = 3;
    q.stop_ids = &stop;
    q.n_stop_ids = 1;
    q.sampling.ignore_eos = false;
    a = rig_answer(&r, &q);
    assert_true(a->n >= 4);
    assert_memory_equal(a->ids, mine + 1, sizeof mine - sizeof *mine);
    rig_close(&r);
}

static void in_steps_of_credit(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = forced(1, PROMPT - 1, NEW), other = rig_request(ids, 40, 30);
    struct rig_req want = *rig_answer(&r, &q);
    q.credit = 0;
    uint64_t h = rig_submit(&r, &q);
    rig_answer(&r, &other); /* nobody waits for it */
    assert_int_equal(rig_at(&r, h)->n, 0);
    for (uint32_t had = 0, add = 1; !rig_at(&r, h)->done; add = add % 50 + 7) {
        eng_real.credit(r.e, h, add);
        rig_run(&r);
        had += add;
        assert_int_equal(rig_at(&r, h)->n, had < want.n ? had : want.n);
    }
    assert_memory_equal(rig_at(&r, h)->ids, want.ids, want.n * sizeof *ids);
    assert_memory_equal(rig_at(&r, h)->logprobs, want.logprobs, want.n * sizeof *want.logprobs);
    rig_close(&r);
}

static void goes_on_anywhere(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen35, &(struct rig_opts){.ctx = 1024});
    struct eng_request q = forced(1, PROMPT - 1, NEW);
    struct rig_req want = *rig_answer(&r, &q);
    static const uint32_t at[] = {1, 63, 64, PROMPT - 2, PROMPT - 1, PROMPT, PROMPT - 1 + NEW};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        q.emitted = want.ids;
        q.n_emitted = at[i];
        struct rig_req *a = rig_answer(&r, &q);
        assert_int_equal(a->n, want.n - at[i]);
        assert_memory_equal(a->ids, want.ids + at[i], a->n * sizeof *ids);
        assert_memory_equal(a->logprobs, want.logprobs + at[i], a->n * sizeof *a->logprobs);
    }
    rig_close(&r);
}

static void refusals(void **state)
{
    struct rig r;
    uint32_t wrong[2] = {ids[1] ^ 1u, 1}, wild[1] = {1u << 20};
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = forced(1, 20, 5), bad = q;
    bad.emitted = wrong;
    bad.n_emitted = 2;
    assert_int_equal(rig_at(&r, rig_submit(&r, &bad))->err.code, VT_E_PARAM);
    bad = q;
    bad.max_new = 19;
    assert_int_equal(rig_at(&r, rig_submit(&r, &bad))->err.code, VT_E_PARAM);
    bad = q;
    bad.forced = wild;
    bad.n_forced = 1;
    assert_int_equal(rig_at(&r, rig_submit(&r, &bad))->err.code, VT_E_PARAM);
    static uint32_t many[600];
    bad = rig_request(many, 1, 700);
    bad.forced = many;
    bad.n_forced = 511;
    assert_int_equal(rig_at(&r, rig_submit(&r, &bad))->err.code, VT_E_PARAM);
    rig_close(&r);
}

int main(void)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (i * 29 + 7) % 250;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told),
        cmocka_unit_test(prompt_only_and_ends),
        cmocka_unit_test(in_steps_of_credit),
        cmocka_unit_test(goes_on_anywhere),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
