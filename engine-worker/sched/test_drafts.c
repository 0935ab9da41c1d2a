/* The text with guesses is the text without them, in everything that is told of it, and so is what it leaves behind: whatever the
 * model, the sampler, the grammar, the neighbours, and wherever the text ends. The bytes of the cache are compared, too. */
#include "rig.h"

#include "automaton.h"
#include "pool.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROMPT 150
#define CASES  10

static uint32_t prompt[8][PROMPT];

/* Few letters and a lot of repetition: guesses that come out, half of them, or not at all. */
static void make_prompts(void)
{
    for (uint32_t p = 0; p < 8; p++)
        for (uint32_t i = 0; i < PROMPT; i++)
            prompt[p][i] = p % 2 ? 65 + i % 7 : 60 + (i * i + p) % 13;
}

/* Four letters are left; each may follow each. */
static const uint32_t letters[] = {65, 66, 67, 68};
static const float lift[] = {60, 60, 60, 60};

static void alphabet(struct eng_request *q)
{
    q->sampling.bias_ids = letters;
    q->sampling.bias = lift;
    q->sampling.n_bias = 4;
}

static void warm(struct eng_request *q, double temperature, uint64_t seed)
{
    q->sampling.temperature = temperature;
    q->sampling.seed = seed;
    q->sampling.has_seed = true;
}

/* root ::= ("A" [BC] "D")* */
static uint8_t *grammar(size_t *n)
{
    struct vt_automaton a;
    uint8_t *bytes;
    assert_int_equal(vt_automaton_alloc(&a, 1, 3, 3, 0, NULL), 0);
    for (uint32_t s = 0; s < 3; s++) {
        a.first[s] = s;
        a.edges[s] = (struct vt_edge){.kind = VT_EDGE_BYTES, .to = (s + 1) % 3};
    }
    a.first[3] = 3;
    a.accept[0] = true;
    a.edges[0].lo = a.edges[0].hi = 'A';
    a.edges[1].lo = 'B', a.edges[1].hi = 'C';
    a.edges[2].lo = a.edges[2].hi = 'D';
    assert_int_equal(vt_automaton_save(&a, &bytes, n, NULL), 0);
    vt_automaton_fini(&a);
    return bytes;
}

static uint8_t *grammar_bytes;
static size_t grammar_n;

/* Requests of every kind; i chooses one. */
static struct eng_request request(unsigned i, unsigned p, uint64_t seed)
{
    static const uint32_t stop = 67;
    struct eng_request q = rig_request(prompt[p], PROMPT, 60);
    q.sampling.seed = seed;
    q.sampling.has_seed = true;
    switch (i % CASES) {
    case 0: break; /* greedy */
    case 1:
        alphabet(&q);
        warm(&q, 0.8, seed);
        break;
    case 2:
        alphabet(&q);
        warm(&q, 1.5, seed);
        q.logprobs = 4;
        break;
    case 3: /* penalties of what was written: each guess changes them */
        alphabet(&q);
        warm(&q, 1.0, seed);
        q.sampling.repeat_penalty = 1.3;
        q.sampling.frequency_penalty = 0.2;
        q.sampling.repeat_last_n = 16;
        break;
    case 4: /* a sampler with a state */
        alphabet(&q);
        warm(&q, 1.0, seed);
        q.sampling.mirostat = 2;
        break;
    case 5:
        q.grammar = grammar_bytes;
        q.n_grammar = grammar_n;
        q.sampling.ignore_eos = 0;
        warm(&q, 0.7, seed);
        break;
    case 6: /* ends at a letter that guesses hold */
        alphabet(&q);
        warm(&q, 0.6, seed);
        q.stop_ids = &stop;
        q.n_stop_ids = 1;
        break;
    case 7: /* ends by its length, at every place of a guess */
        alphabet(&q);
        warm(&q, 0.2, seed);
        q.max_new = 1 + (uint32_t)seed % 24;
        break;
    case 8: /* over a page border */
        alphabet(&q);
        warm(&q, 0.3, seed);
        q.max_new = 200;
        break;
    default: /* ids that are given, first */
        alphabet(&q);
        warm(&q, 0.5, seed);
        q.forced = letters;
        q.n_forced = 3;
        q.logprobs = 2;
    }
    return q;
}

static void is_same(const struct rig_req *a, const struct rig_req *b)
{
    assert_int_equal(b->why, a->why);
    assert_int_equal(b->n, a->n);
    assert_int_equal(b->emitted, a->emitted);
    assert_int_equal(b->seed, a->seed);
    assert_memory_equal(b->ids, a->ids, a->n * sizeof *a->ids);
    assert_memory_equal(b->logprobs, a->logprobs, a->n * sizeof *a->logprobs);
    assert_memory_equal(b->top, a->top, sizeof a->top);
    assert_memory_equal(&b->state, &a->state, sizeof a->state);
    assert_int_equal(b->usage.prompt, a->usage.prompt);
    assert_int_equal(b->usage.generated, a->usage.generated);
    assert_int_equal(a->usage.drafted, 0);
    assert_in_range(b->usage.accepted, 0, b->usage.drafted);
}

/* What slot 0 would save is the same, byte for byte. */
static void is_same_cache(const struct rig *a, const struct rig *b, bool hybrid)
{
    const struct eng_facts *f = eng_real.facts(a->e);
    uint64_t size = f->block_bytes > f->rec_bytes ? f->block_bytes : f->rec_bytes;
    uint8_t *x = malloc(size), *y = malloc(size);
    struct eng_export *ea, *eb;
    struct vt_err err;
    assert_int_equal(eng_real.export_begin(a->e, 0, &ea, &err), 0);
    assert_int_equal(eng_real.export_begin(b->e, 0, &eb, &err), 0);
    if (!hybrid) /* a hybrid may have gone back to before its last guess, when the request ended */
        assert_int_equal(eb->n_items, ea->n_items);
    assert_true(eb->n_items <= ea->n_items);
    assert_memory_equal(eb->items, ea->items, eb->n_items * sizeof *ea->items);
    assert_int_equal(eb->n_blocks, ea->n_blocks);
    assert_int_equal(eb->n_rec, ea->n_rec);
    for (uint32_t i = 0; i < ea->n_blocks; i++) {
        assert_int_equal(eng_real.export_read(a->e, ea, 1, i, 0, x, f->block_bytes), 0);
        assert_int_equal(eng_real.export_read(b->e, eb, 1, i, 0, y, f->block_bytes), 0);
        assert_memory_equal(x, y, f->block_bytes);
    }
    for (uint32_t i = 0; i < ea->n_rec; i++) {
        assert_int_equal(eng_real.export_read(a->e, ea, 2, i, 0, x, f->rec_bytes), 0);
        assert_int_equal(eng_real.export_read(b->e, eb, 2, i, 0, y, f->rec_bytes), 0);
        assert_memory_equal(x, y, f->rec_bytes);
    }
    eng_real.export_free(a->e, ea);
    eng_real.export_free(b->e, eb);
    free(x);
    free(y);
}

static struct eng_counters counters(const struct rig *r)
{
    struct eng_counters c = {0};
    eng_real.counters(r->e, &c);
    return c;
}

/* One after the other in one slot, whose cache goes on from request to request. */
static void one_slot(const struct tiny *t, uint32_t spec_n)
{
    struct rig plain, spec;
    uint64_t drafted = 0, accepted = 0;
    rig_open(&plain, t, &(struct rig_opts){.slots = 1});
    rig_open(&spec, t, &(struct rig_opts){.slots = 1, .spec_n = spec_n});
    for (unsigned i = 0; i < 2 * CASES; i++) {
        struct eng_request q = request(i, i % 8, 100 + i);
        struct rig_req *a = rig_answer(&plain, &q), *b = rig_answer(&spec, &q);
        is_same(a, b);
        is_same_cache(&plain, &spec, t->nv > 0);
        drafted += b->usage.drafted;
        accepted += b->usage.accepted;
    }
    struct eng_counters c = counters(&spec), p = counters(&plain);
    assert_int_equal(c.spec_drafted, drafted);
    assert_int_equal(c.spec_accepted, accepted);
    assert_true(accepted > 100 && accepted < drafted && c.spec_refuted > 5); /* or nothing is tested */
    assert_true(c.decode_calls < p.decode_calls);
    assert_int_equal(c.predicted, p.predicted);
    assert_int_equal(p.spec_drafts, 0);
    rig_close(&plain);
    rig_close(&spec);
}

static void alone(void **state)
{
    for (int i = 0; i < TINY_KINDS; i++)
        one_slot(tiny_all[i], 7);
    one_slot(&tiny_qwen35, 1);
    one_slot(&tiny_qwen35, 32);
}

/* Many at once, more than there are slots, with credit that comes in drops. */
static void crowd(const struct tiny *t, uint32_t slots, uint32_t spec_n, int threads)
{
    struct rig plain, spec;
    uint64_t h[CASES], g[CASES];
    rig_open(&plain, t, &(struct rig_opts){.slots = slots});
    rig_open(&spec, t, &(struct rig_opts){.slots = slots, .spec_n = spec_n, .threads = threads});
    for (unsigned i = 0; i < CASES; i++) {
        struct eng_request q = request(i, i % 8, 500 + i);
        h[i] = rig_submit(&plain, &q);
        q.credit = i % 3 ? q.credit : 1 + i % 5;
        g[i] = rig_submit(&spec, &q);
        eng_real.step(spec.e);
    }
    rig_run(&plain);
    for (unsigned round = 0; round < 70; round++) {
        rig_run(&spec);
        for (unsigned i = 0; i < CASES; i++)
            eng_real.credit(spec.e, g[i], 1 + (round + i) % 5);
    }
    for (unsigned i = 0; i < CASES; i++)
        is_same(rig_at(&plain, h[i]), rig_at(&spec, g[i]));
    assert_true(counters(&spec).spec_accepted > 50);
    rig_close(&plain);
    rig_close(&spec);
}

static void in_a_crowd(void **state)
{
    crowd(&tiny_moe, 3, 6, 2);
    crowd(&tiny_gemma3, 3, 6, 1);
    crowd(&tiny_qwen35, 8, 16, 1); /* more guesses wanted than there are rows */
}

/* Up to the last token that the window holds. */
static void until_the_window_ends(void **state)
{
    static const struct tiny *const models[] = {&tiny_qwen3, &tiny_qwen35, &tiny_gemma3};
    for (int i = 0; i < 3; i++) {
        struct rig plain, spec;
        rig_open(&plain, models[i], &(struct rig_opts){.slots = 1, .ctx = 256});
        rig_open(&spec, models[i], &(struct rig_opts){.slots = 1, .ctx = 256, .spec_n = 8});
        struct eng_request q = request(1, 1, 7);
        q.max_new = 1000;
        struct rig_req *a = rig_answer(&plain, &q), *b = rig_answer(&spec, &q);
        assert_int_equal(a->why, ENG_LENGTH);
        assert_int_equal(a->n, 256 - PROMPT);
        is_same(a, b);
        assert_true(b->usage.accepted > 10);
        rig_close(&plain);
        rig_close(&spec);
    }
}

/* Cancelled, parked or resumed anywhere: what was told is the beginning of the text, and the rest follows. */
static void cut_anywhere(const struct tiny *t)
{
    struct rig plain, spec;
    rig_open(&plain, t, &(struct rig_opts){.slots = 1});
    rig_open(&spec, t, &(struct rig_opts){.slots = 2, .spec_n = 8});
    struct eng_request q = request(1, 3, 42);
    const struct rig_req *a = rig_answer(&plain, &q);
    for (uint32_t cut = 1; cut < 40; cut += 7) {
        uint64_t h = rig_submit(&spec, &q);
        rig_run_to(&spec, h, cut);
        if (cut % 2)
            eng_real.cancel(spec.e, h);
        else
            eng_real.park_all(spec.e);
        struct rig_req *b = rig_at(&spec, h);
        assert_int_equal(b->why, cut % 2 ? ENG_CANCELLED : ENG_PARKED);
        assert_true(b->n >= cut);
        assert_memory_equal(b->ids, a->ids, b->n * sizeof *a->ids);
        struct eng_request rest = q;
        rest.emitted = b->ids;
        rest.n_emitted = b->n;
        rest.state = b->state;
        struct rig_req *c = rig_answer(&spec, &rest);
        assert_int_equal(c->n, a->n - b->n);
        assert_memory_equal(c->ids, a->ids + b->n, c->n * sizeof *a->ids);
    }
    rig_close(&plain);
    rig_close(&spec);
}

static void cancelled_and_resumed(void **state)
{
    cut_anywhere(&tiny_qwen3);
    cut_anywhere(&tiny_qwen35);
}

/* A text that copies for ever is guessed right for ever; that guesses are still verified is proved by wrong ones. */
static void copies_are_controlled(void **state)
{
    struct rig r;
    static const uint32_t only = 65;
    rig_open(&r, &tiny_qwen3, &(struct rig_opts){.slots = 1, .ctx = 2048, .spec_n = 8});
    struct eng_request q = rig_request(prompt[0], PROMPT, 1000);
    q.sampling.bias_ids = &only;
    q.sampling.bias = lift;
    q.sampling.n_bias = 1;
    struct rig_req *a = rig_answer(&r, &q);
    struct eng_counters c = counters(&r);
    assert_int_equal(a->n, 1000);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(a->ids[i], only);
    assert_int_equal(c.spec_accepted, c.spec_drafted);
    assert_true(c.spec_accepted > 800);
    assert_in_range(c.spec_refuted, 3, 4); /* one in 256 */
    rig_close(&r);
}

/* A text in which nothing comes again costs nearly nothing. */
static void novel_texts_are_left_alone(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, &(struct rig_opts){.slots = 1, .spec_n = 8});
    struct eng_request q = rig_request(prompt[0], 20, 200);
    warm(&q, 5, 9);
    struct rig_req *a = rig_answer(&r, &q);
    assert_int_equal(a->n, 200);
    assert_true(a->usage.drafted <= 20);
    rig_close(&r);
}

static void wrong_settings_are_refused(void **state)
{
    struct eng *e;
    struct vt_err err;
    static const uint32_t wrong[] = {0, 33, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct eng_config c = {.model_path = "none",
                               .slots = 1,
                               .ctx_tokens = 256,
                               .ubatch = 1,
                               .spec = ENG_SPEC_NGRAM,
                               .spec_n = wrong[i]};
        assert_int_equal(eng_real.load(&e, &c, &(struct eng_events){0}, NULL, &err), -1);
        assert_int_equal(err.code, VT_E_CONFIG);
        assert_non_null(strstr(err.text, "engine.spec_n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone),
                                       cmocka_unit_test(in_a_crowd),
                                       cmocka_unit_test(until_the_window_ends),
                                       cmocka_unit_test(cancelled_and_resumed),
                                       cmocka_unit_test(copies_are_controlled),
                                       cmocka_unit_test(novel_texts_are_left_alone),
                                       cmocka_unit_test(wrong_settings_are_refused)};
    make_prompts();
    grammar_bytes = grammar(&grammar_n);
    int rc = cmocka_run_group_tests_name("drafts", tests, NULL, NULL);
    free(grammar_bytes);
    return rc;
}
