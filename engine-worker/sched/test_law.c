/* The law: the same text alone, with seven neighbours, with any prefill chunk size, after a cut anywhere, after a restore.
 * Both greedy and sampled with a seed. */
#include "rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROMPT 300 /* over a page border */
#define NEW    40

struct text {
    uint32_t ids[NEW];
};

static uint32_t prompts[8][PROMPT];

static void make_prompts(void)
{
    for (uint32_t p = 0; p < 8; p++)
        for (uint32_t i = 0; i < PROMPT; i++)
            prompts[p][i] = (i * (31 + 2 * p) + 7 * p + i * i % 11) % 256;
}

static struct eng_request request(uint32_t p, bool sampled)
{
    struct eng_request q = rig_request(prompts[p], PROMPT - 30 * p, NEW);
    if (sampled) {
        q.sampling.temperature = 0.9f;
        q.sampling.top_k = 40;
        q.sampling.top_p = 0.95f;
        q.sampling.min_p = 0.02f;
        q.sampling.repeat_penalty = 1.1f;
        q.sampling.repeat_last_n = 64;
        q.sampling.seed = 1000 + p;
        q.sampling.has_seed = true;
    }
    return q;
}

static void copy_text(struct text *t, const struct rig_req *a)
{
    assert_int_equal(a->why, ENG_LENGTH);
    assert_int_equal(a->n, NEW);
    memcpy(t->ids, a->ids, sizeof t->ids);
}

static void is_text(const struct text *want, const struct rig_req *a)
{
    assert_int_equal(a->why, ENG_LENGTH);
    assert_int_equal(a->emitted, NEW);
    assert_memory_equal(a->ids, want->ids + a->first, a->n * sizeof *a->ids);
}

/* Texts of all eight prompts, each alone in an engine of its own; computed once. */
static void alone(const struct tiny *t, bool sampled, struct text want[8])
{
    static struct text known[3][2][8];
    static bool done[3][2];
    int kind = t->nv > 0 ? 1 : t->n_expert > 0 ? 2 : 0;
    for (uint32_t p = 0; p < 8 && !done[kind][sampled]; p++) {
        struct rig r;
        rig_open(&r, t, &(struct rig_opts){.slots = 1, .ubatch = 256});
        struct eng_request q = request(p, sampled);
        copy_text(&known[kind][sampled][p], rig_answer(&r, &q));
        rig_close(&r);
    }
    done[kind][sampled] = true;
    memcpy(want, known[kind][sampled], sizeof known[kind][sampled]);
}

static void neighbours(const struct tiny *t, bool sampled, uint32_t ubatch, int threads)
{
    struct text want[8];
    uint64_t h[8];
    struct rig r;
    alone(t, sampled, want);
    rig_open(&r, t, &(struct rig_opts){.slots = 8, .ubatch = ubatch, .threads = threads});
    for (uint32_t p = 0; p < 8; p++) { /* they come one after the other while the first ones decode */
        struct eng_request q = request(p, sampled);
        h[p] = rig_submit(&r, &q);
        for (int i = 0; i < 3; i++)
            eng_real.step(r.e);
    }
    rig_run(&r);
    for (uint32_t p = 0; p < 8; p++)
        is_text(&want[p], rig_at(&r, h[p]));
    rig_close(&r);
}

static void chunks_and_neighbours(void **state)
{
    static const uint32_t sizes[] = {1, 7, 64, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        neighbours(&tiny_qwen3, false, sizes[i], 1);
        neighbours(&tiny_qwen35, false, sizes[i], 1);
    }
    neighbours(&tiny_moe, false, 7, 2);
    neighbours(&tiny_moe, false, 64, 1);
    neighbours(&tiny_qwen3, true, 64, 2);
    neighbours(&tiny_qwen35, true, 64, 2);
}

/* The text so far comes back as `emitted`, in a new engine (nothing cached) and in the same one (all cached). */
static void resume(const struct tiny *t, bool sampled)
{
    struct text want[8];
    struct rig fresh, warm;
    alone(t, sampled, want);
    rig_open(&warm, t, NULL);
    for (uint32_t cut = 0; cut <= NEW; cut++) {
        struct eng_request q = request(1, sampled);
        q.emitted = want[1].ids;
        q.n_emitted = cut;
        struct rig_req *a = rig_answer(&warm, &q);
        is_text(&want[1], a);
        assert_int_equal(a->usage.generated, NEW);
        assert_int_equal(a->usage.prompt, q.n_ids);
        if (cut % 10 == 1) {
            rig_open(&fresh, t, NULL);
            is_text(&want[1], rig_answer(&fresh, &q));
            rig_close(&fresh);
        }
    }
    rig_close(&warm);
}

static void resume_at_any_cut(void **state)
{
    resume(&tiny_qwen3, false);
    resume(&tiny_qwen3, true);
    resume(&tiny_qwen35, false);
    resume(&tiny_qwen35, true);
}

/* A sampler with a state goes on from the state that was told with the last token; without it the text becomes another. */
static void resume_with_a_sampler_state(void **state)
{
    for (int adaptive = 0; adaptive < 2; adaptive++) {
        struct eng_request q = request(0, true);
        struct rig r;
        struct text want;
        double states[NEW];
        q.sampling.mirostat = adaptive ? 0 : 2;
        q.sampling.temperature = 5; /* flat enough for the state to matter */
        q.sampling.mirostat_tau = 3;
        q.sampling.mirostat_eta = 0.5;
        q.sampling.adaptive_target = adaptive ? 0.3 : -1;
        q.sampling.chain[0] = VT_SAMPLER_ADAPTIVE_P;
        int differ = 0;
        rig_open(&r, &tiny_qwen3, NULL);
        copy_text(&want, rig_answer(&r, &q));
        for (uint32_t cut = 1; cut < NEW; cut++) {
            q.max_new = cut;
            states[cut] = rig_answer(&r, &q)->state;
        }
        q.max_new = NEW;
        q.emitted = want.ids;
        for (uint32_t cut = 1; cut < NEW; cut += 3) {
            q.n_emitted = cut;
            q.state = states[cut];
            is_text(&want, rig_answer(&r, &q));
            q.state = NAN;
            const struct rig_req *a = rig_answer(&r, &q);
            differ += memcmp(a->ids, want.ids + a->first, a->n * sizeof *a->ids) != 0;
        }
        rig_close(&r);
        assert_true(differ > 0);
    }
}

/* The same prompt again, a longer one, one that branches off inside, in the same and in other slots: reuse as far as the
 * model allows, and the text of an engine that had nothing cached. */
static void reuse(const struct tiny *t)
{
    bool hybrid = t->nv > 0;
    struct text want[8], branch;
    struct rig r;
    alone(t, false, want);
    uint32_t ids[PROMPT];
    memcpy(ids, prompts[0], sizeof ids);
    ids[280] ^= 1;
    struct eng_request b = rig_request(ids, PROMPT, NEW);
    rig_open(&r, t, &(struct rig_opts){.slots = 1});
    copy_text(&branch, rig_answer(&r, &b));
    rig_close(&r);

    rig_open(&r, t, NULL);
    struct eng_request q = request(0, false);
    struct rig_req *a = rig_answer(&r, &q);
    assert_int_equal(a->reused, 0);
    is_text(&want[0], a);
    a = rig_answer(&r, &q);
    assert_int_equal(a->reused, hybrid ? 256 : PROMPT - 1); /* one token is always evaluated */
    is_text(&want[0], a);
    a = rig_answer(&r, &b);
    assert_int_equal(a->reused, hybrid ? 256 : 280);
    is_text(&branch, a);
    q.slot = 2; /* another slot shares the pages */
    a = rig_answer(&r, &q);
    assert_int_equal(a->reused, hybrid ? 256 : 280); /* the branch has replaced the rest */
    is_text(&want[0], a);
    q.reuse = false;
    a = rig_answer(&r, &q);
    assert_int_equal(a->reused, 0);
    is_text(&want[0], a);
    q.reuse = true;
    q.tenant = "other";
    a = rig_answer(&r, &q);
    assert_int_equal(a->reused, 0);
    is_text(&want[0], a);
    rig_close(&r);
}

static void reuse_changes_no_text(void **state)
{
    reuse(&tiny_qwen3);
    reuse(&tiny_qwen35);
}

/* A turn is continued: the conversation so far plus more. Only the new part is evaluated. */
static void next_turn(const struct tiny *t)
{
    struct text want[8];
    struct rig r, other;
    uint32_t ids[PROMPT + NEW + 20];
    alone(t, false, want);
    memcpy(ids, prompts[0], sizeof prompts[0]);
    memcpy(ids + PROMPT, want[0].ids, sizeof want[0].ids);
    tiny_ids(ids + PROMPT + NEW, 20, 256);
    struct eng_request q = request(0, false), next = rig_request(ids, PROMPT + NEW + 20, NEW);
    rig_open(&r, t, NULL);
    rig_answer(&r, &q);
    struct rig_req *a = rig_answer(&r, &next);
    assert_int_equal(a->reused, PROMPT + NEW - 1); /* the last token of a turn is told, not evaluated */
    rig_open(&other, t, NULL);
    struct rig_req *b = rig_answer(&other, &next);
    assert_memory_equal(a->ids, b->ids, NEW * sizeof *a->ids);
    rig_close(&other);
    rig_close(&r);
}

static void a_next_turn_goes_on_from_the_live_state(void **state)
{
    next_turn(&tiny_qwen3);
    next_turn(&tiny_qwen35);
}

/* ---- cancel ---- */

static void cancelled_neighbour(const struct tiny *t, int phase)
{
    struct text want[8];
    struct rig r;
    alone(t, false, want);
    rig_open(&r, t, &(struct rig_opts){.slots = 2, .ubatch = 16});
    struct eng_request a = request(0, false), b = request(1, false), c = request(2, false);
    uint64_t ha = rig_submit(&r, &a), hb = rig_submit(&r, &b), hc = rig_submit(&r, &c);
    assert_int_equal(rig_at(&r, hc)->queue_pos, 1);
    uint64_t victim = phase == 0 ? hc : hb;
    if (phase == 1)
        for (int i = 0; i < 4; i++)
            eng_real.step(r.e);
    if (phase == 2)
        rig_run_to(&r, hb, 5);
    eng_real.cancel(r.e, victim);
    eng_real.cancel(r.e, victim); /* idempotent */
    assert_int_equal(rig_at(&r, victim)->why, ENG_CANCELLED);
    rig_run(&r);
    is_text(&want[0], rig_at(&r, ha));
    if (phase == 0)
        is_text(&want[1], rig_at(&r, hb));
    else
        is_text(&want[2], rig_at(&r, hc));
    struct eng_counters n;
    eng_real.counters(r.e, &n);
    assert_int_equal(n.cancelled, 1);
    is_text(&want[1], rig_answer(&r, &b)); /* what the victim left is good to use */
    rig_close(&r);
}

static void cancel_touches_one_request(void **state)
{
    for (int phase = 0; phase < 3; phase++) {
        cancelled_neighbour(&tiny_qwen3, phase);
        cancelled_neighbour(&tiny_qwen35, phase);
    }
}

/* ---- checkpoint ---- */

static void restore(const struct tiny *t)
{
    struct text want[8];
    struct rig a, b;
    struct vt_err err;
    alone(t, false, want);
    rig_open(&a, t, NULL);
    rig_open(&b, t, NULL);
    struct eng_request q = request(0, false);
    uint64_t h = rig_submit(&a, &q);
    rig_run_to(&a, h, 20); /* exported while it decodes */
    assert_memory_equal(eng_real.facts(a.e)->layout_fp, eng_real.facts(b.e)->layout_fp, 32);
    assert_int_equal(rig_carry(&a, &b, 3, 1), 256);
    assert_int_equal(eng_real.selftest(b.e, &err), 0); /* leaves restored prefixes alone */
    q.emitted = rig_at(&a, h)->ids;
    q.n_emitted = 20;
    struct rig_req *r = rig_answer(&b, &q);
    assert_int_equal(r->slot, 3);
    assert_int_equal(r->reused, 256);
    is_text(&want[0], r);
    assert_int_equal(rig_carry(&a, &b, 1, 0), 0); /* its only block was bad: the slot is as before */
    rig_run(&a);
    is_text(&want[0], rig_at(&a, h));
    rig_close(&b);
    rig_close(&a);
}

/* Into no slot: found by whoever begins so, and what is there does not come twice. */
static void restore_to_cache(const struct tiny *t)
{
    struct text want[8];
    struct rig a, b;
    alone(t, false, want);
    rig_open(&a, t, NULL);
    rig_open(&b, t, NULL);
    struct eng_request q = request(0, false);
    uint64_t h = rig_submit(&a, &q);
    rig_run_to(&a, h, 20);
    assert_int_equal(eng_real.resident(b.e, &q), 0);
    assert_int_equal(rig_carry(&a, &b, ENG_CACHE, 0), 0); /* its only block was bad */
    assert_int_equal(eng_real.resident(b.e, &q), 0);
    assert_int_equal(rig_carry(&a, &b, ENG_CACHE, 1), 256);
    assert_int_equal(rig_carry(&a, &b, ENG_CACHE, 1), 256);
    struct eng_slot_info s[8];
    for (uint32_t i = 0, n = eng_real.slots(b.e, s, 8); i < n; i++)
        assert_int_equal(s[i].n_tokens, 0);
    assert_int_equal(eng_real.resident(b.e, &q), 256);
    const struct rig_req *r = rig_answer(&b, &q);
    assert_int_equal(r->reused, 256);
    is_text(&want[0], r);
    q.tenant = "somebody else";
    assert_int_equal(eng_real.resident(b.e, &q), 0);
    rig_run(&a);
    rig_close(&b);
    rig_close(&a);
}

static void an_import_may_wait_for_its_request(void **state)
{
    restore_to_cache(&tiny_qwen3);
    restore_to_cache(&tiny_qwen35);
}

static void a_restored_engine_goes_on(void **state)
{
    restore(&tiny_qwen3);
    restore(&tiny_qwen35);
    restore(&tiny_moe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_and_neighbours),
        cmocka_unit_test(resume_at_any_cut),
        cmocka_unit_test(resume_with_a_sampler_state),
        cmocka_unit_test(reuse_changes_no_text),
        cmocka_unit_test(a_next_turn_goes_on_from_the_live_state),
        cmocka_unit_test(cancel_touches_one_request),
        cmocka_unit_test(a_restored_engine_goes_on),
        cmocka_unit_test(an_import_may_wait_for_its_request),
    };
    make_prompts();
    return cmocka_run_group_tests_name("law", tests, NULL, NULL);
}
