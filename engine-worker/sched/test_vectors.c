/* Vectors: what is pooled of the hidden states, against a forward pass in double, and what they leave to the others. */
#include "rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROMPT = 150 };
static uint32_t ids[PROMPT];

static struct eng_request pooled(uint32_t n, enum eng_pool pool)
{
    struct eng_request q = rig_request(ids, n, 0);
    q.pool = pool;
    return q;
}

static double *reference(const struct tiny *t)
{
    const char *path = tiny_path("vectors");
    struct gguf_file *f;
    tiny_write(t, path);
    assert_int_equal(gguf_open(&f, path, false, NULL), 0);
    double *h = oracle_hidden(f, ids, PROMPT);
    gguf_close(f);
    unlink(path);
    return h;
}

/* Distance relative to the length of the reference. */
static double distance(const float *got, const double *want, size_t n)
{
    double d2 = 0, w2 = 0;
    for (size_t i = 0; i < n; i++) {
        d2 += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        w2 += want[i] * want[i];
    }
    return sqrt(d2 / w2);
}

static void agree(const struct tiny *t)
{
    struct rig r;
    double *want = reference(t), *mean = calloc(t->n_embd, sizeof *mean);
    const size_t n = t->n_embd;
    rig_open(&r, t, &(struct rig_opts){.ubatch = 48, .threads = 2});
    for (size_t i = 0; i < PROMPT * n; i++)
        mean[i % n] += want[i] / PROMPT;
    struct eng_request plain = rig_request(ids, PROMPT, 3);
    rig_answer(&r, &plain); /* what is cached does not take the place of what is pooled */
    const struct {
        enum eng_pool pool;
        uint32_t n;
        const double *want;
    } all[] = {{ENG_POOL_ROWS, PROMPT, want},
               {ENG_POOL_MEAN, 1, mean},
               {ENG_POOL_FIRST, 1, want},
               {ENG_POOL_LAST, 1, want + (PROMPT - 1) * n}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct eng_request q = pooled(PROMPT, all[i].pool);
        struct rig_req *a = rig_answer(&r, &q);
        assert_int_equal(a->why, ENG_LENGTH);
        assert_int_equal(a->n_vectors, all[i].n);
        assert_int_equal(a->dim, n);
        assert_int_equal(a->usage.prompt, PROMPT);
        assert_int_equal(a->n, 0);
        assert_true(distance(a->vectors, all[i].want, all[i].n * n) < 2e-3);
    }
    rig_close(&r);
    free(want);
    free(mean);
}

static void agree_with_the_oracle(void **state)
{
    for (unsigned i = 0; i < TINY_KINDS; i++)
        agree(tiny_all[i]);
}

/* The same bits alone and in company, of others that generate and others that pool, and the others' text stays, too. */
static void company(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen35, &(struct rig_opts){.ubatch = 32});
    struct eng_request text = rig_request(ids + 20, 60, 40), mean = pooled(PROMPT, ENG_POOL_MEAN),
                       last = pooled(77, ENG_POOL_LAST);
    struct rig_req want = *rig_answer(&r, &text), m = *rig_answer(&r, &mean), l = *rig_answer(&r, &last);
    uint64_t a = rig_submit(&r, &text), b = rig_submit(&r, &mean), c = rig_submit(&r, &last);
    rig_run(&r);
    assert_memory_equal(rig_at(&r, a)->ids, want.ids, want.n * sizeof *ids);
    assert_memory_equal(rig_at(&r, b)->vectors, m.vectors, m.dim * sizeof(float));
    assert_memory_equal(rig_at(&r, c)->vectors, l.vectors, l.dim * sizeof(float));
    rig_close(&r);
}

/* Nothing of it is saved, and no conversation loses its slot while another one is free. */
static void leave_nothing(void **state)
{
    struct rig r;
    uint32_t n;
    struct eng_slot_info slots[2];
    rig_open(&r, &tiny_qwen3, &(struct rig_opts){.slots = 2});
    struct eng_request text = rig_request(ids, 100, 4), other = rig_request(ids + 40, 100, 4);
    struct rig_req *first = rig_answer(&r, &text);
    uint32_t slot = first->slot;
    unsigned dirty = r.n_dirty;
    for (int i = 0; i < 5; i++) {
        struct eng_request q = pooled(PROMPT, i % 2 ? ENG_POOL_LAST : ENG_POOL_MEAN);
        assert_int_not_equal(rig_answer(&r, &q)->slot, slot);
    }
    assert_int_equal(r.n_dirty, dirty);
    n = eng_real.slots(r.e, slots, 2);
    assert_int_equal(n, 2);
    assert_int_equal(slots[1 - slot].n_tokens, 0);
    assert_int_not_equal(rig_answer(&r, &other)->slot, slot); /* the empty one is there for a new text */
    assert_true(rig_answer(&r, &text)->reused >= 99);
    rig_close(&r);
}

static void refusals_and_ends(void **state)
{
    struct rig r;
    struct eng_request q = pooled(10, ENG_POOL_MEAN), bad = q;
    rig_open(&r, &tiny_qwen3, NULL);
    bad.max_new = 1;
    assert_int_equal(rig_at(&r, rig_submit(&r, &bad))->err.code, VT_E_PARAM);
    bad = q;
    bad.pool = 17;
    assert_int_equal(rig_at(&r, rig_submit(&r, &bad))->err.code, VT_E_CAPABILITY);
    static uint32_t many[600];
    bad = rig_request(many, 512, 0);
    bad.pool = ENG_POOL_LAST;
    assert_int_equal(rig_at(&r, rig_submit(&r, &bad))->err.code, VT_E_WINDOW);
    q = pooled(PROMPT, ENG_POOL_ROWS);
    uint64_t h = rig_submit(&r, &q);
    assert_true(eng_real.step(r.e));
    eng_real.cancel(r.e, h);
    assert_int_equal(rig_at(&r, h)->why, ENG_CANCELLED);
    assert_true(rig_at(&r, h)->n_vectors < PROMPT);
    h = rig_submit(&r, &q);
    assert_true(eng_real.step(r.e));
    eng_real.park_all(r.e);
    assert_int_equal(rig_at(&r, h)->why, ENG_PARKED);
    rig_close(&r);
}

static void numbers_that_are_none(void **state)
{
    struct tiny t = tiny_qwen3;
    struct rig r;
    t.nan_tensor = "token_embd.weight"; /* of the last id */
    rig_open(&r, &t, NULL);
    uint32_t bad[20] = {[10] = t.n_vocab - 1};
    for (enum eng_pool pool = ENG_POOL_ROWS; pool <= ENG_POOL_LAST; pool++) {
        struct eng_request q = pooled(20, pool);
        q.ids = bad;
        struct rig_req *a = rig_answer(&r, &q);
        assert_int_equal(a->why, ENG_ERROR);
        assert_int_equal(a->err.code, VT_E_NOT_FINITE);
    }
    rig_close(&r);
}

int main(void)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (i * 29 + 7) % 250;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agree_with_the_oracle), cmocka_unit_test(company),
        cmocka_unit_test(leave_nothing),         cmocka_unit_test(refusals_and_ends),
        cmocka_unit_test(numbers_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
