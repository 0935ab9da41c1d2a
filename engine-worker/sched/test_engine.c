/* The engine's manners: admission, ends, queue, credit, duplicates, parking, faults, memory pressure. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t ids[2048];

static struct eng_request request(uint32_t n, uint32_t max_new)
{
    return rig_request(ids, n, max_new);
}

/* ---- admission ---- */

static void refused_with(struct rig *r, const struct eng_request *q, int code, const char *text)
{
    struct rig_req *a = rig_at(r, rig_submit(r, q));
    assert_true(a->refused);
    assert_int_equal(a->err.code, code);
    if (!strstr(a->err.text, text))
        fail_msg("\"%s\" lacks \"%s\"", a->err.text, text);
}

static void admission(void **state)
{
    struct rig r;
    uint32_t wild[2] = {1, 320};
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = request(512, 1);
    refused_with(&r, &q, VT_E_WINDOW,
                 "request (512 tokens) exceeds the available context size (512 tokens), try increasing it");
    q = request(0, 1);
    refused_with(&r, &q, VT_E_PARAM, "empty");
    q = request(10, 1);
    q.slot = 4;
    refused_with(&r, &q, VT_E_NO_SLOT, "slot 4");
    q = rig_request(wild, 2, 1);
    refused_with(&r, &q, VT_E_PARAM, "320");
    q = request(10, 1);
    q.stop_ids = wild;
    q.n_stop_ids = 2;
    refused_with(&r, &q, VT_E_PARAM, "stop ids");
    q = request(10, 1);
    q.sampling.repeat_penalty = -1;
    refused_with(&r, &q, VT_E_PARAM, "repeat_penalty");
    q = request(500, 100);
    q.emitted = ids;
    q.n_emitted = 13;
    refused_with(&r, &q, VT_E_PARAM, "13 emitted");
    assert_false(eng_real.step(r.e));
    rig_close(&r);
}

/* ---- ends ---- */

static void ends(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = request(20, 12);
    struct rig_req *a = rig_answer(&r, &q), full = *a;
    assert_int_equal(a->why, ENG_LENGTH);
    assert_int_equal(a->emitted, 12);
    assert_int_equal(a->usage.prompt, 20);
    assert_int_equal(a->usage.generated, 12);

    uint32_t stop = full.ids[7], at = 7;
    for (uint32_t i = 0; i < 7; i++)
        at = full.ids[i] == stop && i < at ? i : at;
    q.stop_ids = &stop;
    q.n_stop_ids = 1;
    a = rig_answer(&r, &q);
    assert_int_equal(a->why, ENG_STOP_ID);
    assert_int_equal(a->n, at + 1); /* the stop id itself is told */

    /* an end that was told already is not run over */
    q.emitted = full.ids;
    q.n_emitted = at + 1;
    a = rig_answer(&r, &q);
    assert_int_equal(a->why, ENG_STOP_ID);
    assert_int_equal(a->emitted, at + 1);
    assert_int_equal(a->n, 0);

    q = request(20, 0); /* only the prompt */
    a = rig_answer(&r, &q);
    assert_int_equal(a->why, ENG_LENGTH);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->prefill_done, 20);

    q = request(500, 1000); /* the window is full */
    a = rig_answer(&r, &q);
    assert_int_equal(a->why, ENG_LENGTH);
    assert_int_equal(a->n, 12);
    rig_close(&r);
}

static void eog_ids_end_unless_ignored(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, NULL);
    uint32_t eos = 257;
    float push = 1000;
    struct eng_request q = request(20, 5);
    q.sampling.bias_ids = &eos;
    q.sampling.bias = &push;
    q.sampling.n_bias = 1;
    q.sampling.ignore_eos = false;
    struct rig_req *a = rig_answer(&r, &q);
    assert_int_equal(a->why, ENG_EOS);
    assert_int_equal(a->n, 1);
    assert_int_equal(a->ids[0], 257);
    q.sampling.ignore_eos = true;
    a = rig_answer(&r, &q);
    assert_int_equal(a->why, ENG_LENGTH);
    for (uint32_t i = 0; i < a->n; i++)
        assert_int_not_equal(a->ids[i], 257);
    rig_close(&r);
}

static void logprobs_come_with_tokens(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = request(20, 5);
    q.logprobs = 4;
    struct rig_req *a = rig_answer(&r, &q);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->top[i][0].id, a->ids[i]); /* greedy: the best one */
        assert_true(a->top[i][0].logprob == a->logprobs[i] && a->logprobs[i] < 0);
        assert_true(a->top[i][1].logprob <= a->top[i][0].logprob &&
                    a->top[i][2].logprob <= a->top[i][1].logprob);
    }
    rig_close(&r);
}

/* ---- queue, slots, credit ---- */

static void queue_is_fair(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, &(struct rig_opts){.slots = 2});
    struct eng_request q = request(30, 20);
    q.slot = 0;
    uint64_t a = rig_submit(&r, &q), b = rig_submit(&r, &q); /* b waits for slot 0 */
    q.slot = -1;
    uint64_t c = rig_submit(&r, &q); /* takes slot 1 at once: it does not wait behind b */
    uint64_t d = rig_submit(&r, &q);
    assert_int_equal(rig_at(&r, a)->slot, 0);
    assert_int_equal(rig_at(&r, b)->queue_pos, 1);
    assert_int_equal(rig_at(&r, b)->slot, 0);
    assert_int_equal(rig_at(&r, c)->queue_pos, 0);
    assert_int_equal(rig_at(&r, c)->slot, 1);
    assert_int_equal(rig_at(&r, d)->queue_pos, 2);
    assert_int_equal(rig_at(&r, d)->slot, UINT32_MAX);
    struct eng_counters n;
    eng_real.counters(r.e, &n);
    assert_int_equal(n.processing, 2);
    assert_int_equal(n.deferred, 2);
    rig_run_to(&r, b, 1);
    assert_true(rig_at(&r, a)->done);
    rig_run(&r);
    assert_true(rig_at(&r, d)->done);
    rig_close(&r);
}

static void nobody_jumps_the_queue(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, &(struct rig_opts){.slots = 1});
    struct eng_request q = request(30, 3);
    uint64_t a = rig_submit(&r, &q), b = rig_submit(&r, &q);
    eng_real.cancel(r.e, a);
    uint64_t c = rig_submit(&r, &q); /* comes while the slot is idle and b has not been looked at yet */
    assert_int_equal(rig_at(&r, c)->queue_pos, 1);
    rig_run_to(&r, b, 1);
    assert_int_equal(rig_at(&r, c)->n, 0);
    rig_run(&r);
    rig_close(&r);
}

static void a_long_prompt_does_not_stop_others(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, &(struct rig_opts){.ubatch = 16, .ctx = 1024});
    struct eng_request q = request(10, 60), l = request(800, 5), s = request(12, 3);
    uint64_t a = rig_submit(&r, &q);
    rig_run_to(&r, a, 1);
    uint64_t b = rig_submit(&r, &l);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t had = rig_at(&r, a)->n;
        eng_real.step(r.e);
        assert_int_equal(rig_at(&r, a)->n, had + 1); /* one token a step, whatever else is done */
    }
    s.ids = ids + 1000;
    uint64_t c = rig_submit(&r, &s); /* a short prompt shares the steps and overtakes the long one */
    rig_run_to(&r, c, 1);
    assert_int_equal(rig_at(&r, b)->n, 0);
    rig_run(&r);
    rig_close(&r);
}

static void credit_pauses_one_request(void **state)
{
    struct rig r;
    struct eng_slot_info info[4];
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = request(20, 30);
    struct rig_req whole = *rig_answer(&r, &q);
    q.credit = 4;
    uint64_t a = rig_submit(&r, &q);
    q = request(25, 30);
    uint64_t b = rig_submit(&r, &q);
    rig_run(&r); /* returns when a waits for credit and b is done */
    assert_int_equal(rig_at(&r, a)->n, 4);
    assert_true(rig_at(&r, b)->done);
    eng_real.slots(r.e, info, 4);
    assert_int_equal(info[rig_at(&r, a)->slot].state, 4);
    eng_real.credit(r.e, a, 3);
    rig_run(&r);
    assert_int_equal(rig_at(&r, a)->n, 7);
    eng_real.credit(r.e, a, UINT32_MAX);
    eng_real.credit(r.e, a, UINT32_MAX);
    rig_run(&r);
    assert_memory_equal(rig_at(&r, a)->ids, whole.ids, 30 * sizeof *ids);
    rig_close(&r);
}

static void no_credit_no_first_token(void **state)
{
    struct rig r;
    struct eng_pulse p;
    rig_open(&r, &tiny_qwen35, NULL);
    struct eng_request q = request(300, 5);
    struct rig_req whole = *rig_answer(&r, &q);
    q.credit = 0;
    q.reuse = false;
    uint64_t h = rig_submit(&r, &q);
    rig_run(&r);
    assert_int_equal(rig_at(&r, h)->n, 0);
    assert_int_equal(rig_at(&r, h)->prefill_done, 299);
    eng_real.pulse(r.e, &p); /* waiting for a client is not work in flight */
    assert_int_equal(p.op, ENG_OP_IDLE);
    assert_int_equal(p.in_flight, 0);
    eng_real.credit(r.e, h, 100);
    rig_run(&r);
    assert_memory_equal(rig_at(&r, h)->ids, whole.ids, 5 * sizeof *ids);
    rig_close(&r);
}

static void slots_tell_what_they_do(void **state)
{
    struct rig r;
    struct eng_slot_info info[4];
    struct vt_err err;
    uint32_t n;
    rig_open(&r, &tiny_qwen35, NULL);
    struct eng_request q = request(300, 10);
    uint64_t h = rig_submit(&r, &q);
    uint32_t s = rig_at(&r, h)->slot;
    eng_real.step(r.e);
    assert_int_equal(eng_real.slots(r.e, info, 4), 4);
    assert_int_equal(info[s].state, 2);
    assert_int_equal(info[s].n_tokens, 64);
    assert_int_equal(eng_real.erase(r.e, s, &n, &err), -1);
    assert_int_equal(err.code, VT_E_BUSY);
    rig_run_to(&r, h, 3);
    eng_real.slots(r.e, info, 4);
    assert_int_equal(info[s].state, 3);
    assert_int_equal(info[s].n_decoded, 3);
    assert_int_equal(info[s].n_remain, 7);
    assert_string_equal(info[s].tenant, "default");
    uint64_t epoch = info[s].epoch;
    rig_run(&r);
    eng_real.slots(r.e, info, 4);
    assert_int_equal(info[s].state, 0);
    assert_int_equal(info[s].n_tokens, 309);
    assert_true(info[s].epoch > epoch);
    assert_int_equal(eng_real.erase(r.e, s, &n, &err), 0);
    assert_int_equal(n, 309);
    assert_int_equal(eng_real.erase(r.e, 9, &n, &err), -1);
    assert_int_equal(r.n_turn_end, 1);
    assert_true(r.n_dirty >= 3); /* page, prompt, turn */
    rig_close(&r);
}

/* ---- duplicates, parking ---- */

static void a_request_runs_once(void **state)
{
    struct rig r;
    rig_open(&r, &tiny_qwen3, NULL);
    struct eng_request q = request(20, 10);
    memset(q.rid, 7, sizeof q.rid);
    uint64_t a = rig_submit(&r, &q);
    rig_run_to(&r, a, 4);
    q.handle = a; /* delivered twice */
    eng_real.submit(r.e, &q);
    assert_int_equal(rig_at(&r, a)->n_accepted, 2);
    rig_run_to(&r, a, 5);
    uint64_t b = rig_submit(&r, &q); /* again under a new handle: the progress goes there */
    assert_int_equal(rig_at(&r, a)->why, ENG_CANCELLED);
    rig_run(&r);
    assert_int_equal(rig_at(&r, b)->first, 5);
    assert_int_equal(rig_at(&r, b)->n, 5);
    assert_int_equal(rig_at(&r, b)->why, ENG_LENGTH);
    struct eng_counters n;
    eng_real.counters(r.e, &n);
    assert_int_equal(n.predicted, 10);
    uint64_t c = rig_submit(&r, &q); /* it has ended: the end is told again */
    assert_int_equal(rig_at(&r, c)->why, ENG_LENGTH);
    assert_int_equal(rig_at(&r, c)->emitted, 10);
    assert_false(eng_real.step(r.e));
    rig_close(&r);
}

static void parked_requests_may_come_back(void **state)
{
    struct rig r;
    struct eng_slot_info info[4];
    rig_open(&r, &tiny_qwen35, &(struct rig_opts){.slots = 1});
    struct eng_request q = request(300, 20), w = request(30, 2);
    struct rig_req whole = *rig_answer(&r, &q);
    memset(q.rid, 9, sizeof q.rid);
    uint64_t a = rig_submit(&r, &q), b = rig_submit(&r, &w);
    rig_run_to(&r, a, 6);
    eng_real.park_all(r.e);
    assert_int_equal(rig_at(&r, a)->why, ENG_PARKED);
    assert_int_equal(rig_at(&r, a)->emitted, 6);
    assert_int_equal(rig_at(&r, b)->why, ENG_PARKED);
    eng_real.slots(r.e, info, 1);
    assert_int_equal(info[0].state, 5);
    q.emitted = rig_at(&r, a)->ids;
    q.n_emitted = 6;
    struct rig_req *c = rig_answer(&r, &q);
    assert_int_equal(c->reused, 305); /* everything that was evaluated */
    assert_int_equal(c->first, 6);
    assert_memory_equal(c->ids, whole.ids + 6, 14 * sizeof *ids);
    rig_close(&r);
}

/* ---- faults ---- */

static void numbers_that_are_not_finite_end_one_request(void **state)
{
    struct tiny t = tiny_qwen35;
    struct rig r;
    uint32_t bad[300];
    t.nan_tensor =
        "token_embd.weight"; /* the last token's row is poisoned; the head is a matrix of its own */
    rig_open(&r, &t, NULL);
    struct eng_request q = request(280, 20);
    struct rig_req whole = *rig_answer(&r, &q);
    tiny_ids(bad, 300, 256);
    bad[100] = 319;
    struct eng_request p = rig_request(bad, 300, 20);
    q.reuse = false;
    uint64_t a = rig_submit(&r, &q), b = rig_submit(&r, &p);
    rig_run(&r);
    assert_int_equal(rig_at(&r, b)->why, ENG_ERROR);
    assert_int_equal(rig_at(&r, b)->err.code, VT_E_NOT_FINITE);
    assert_memory_equal(rig_at(&r, a)->ids, whole.ids, 20 * sizeof *ids);
    struct rig_req *again = rig_answer(&r, &p); /* nothing of it is reused but what came before */
    assert_int_equal(again->reused, 100 / ENG_PAGE);
    assert_int_equal(again->err.code, VT_E_NOT_FINITE);
    q.slot = (int32_t)rig_at(&r, b)->slot; /* the slot is clean */
    q.reuse = true;
    assert_memory_equal(rig_answer(&r, &q)->ids, whole.ids, 20 * sizeof *ids);
    rig_close(&r);
}

static void proof_of_life(void **state)
{
    struct rig r;
    struct vt_err err = {0};
    struct eng_pulse p0, p1;
    rig_open(&r, &tiny_qwen35, &(struct rig_opts){.slots = 8, .ubatch = 300, .threads = 2});
    const struct eng_facts *f = eng_real.facts(r.e);
    assert_string_equal(f->arch, "qwen35");
    assert_int_equal(f->slots, 8);
    assert_int_equal(f->window, 512);
    assert_int_equal(f->pool_tokens, 8 * 512);
    /* two attention layers, two heads, K and V of 32 halves */
    assert_int_equal(f->kv_bytes_per_token, 2 * 2 * 2 * 32 * 2);
    assert_int_equal(f->block_bytes, f->kv_bytes_per_token * ENG_PAGE);
    assert_int_equal(f->kv_planned, f->kv_measured);
    assert_true(f->layout_len > 0 && f->layout_len < 65536);
    eng_real.pulse(r.e, &p0);
    if (eng_real.selftest(r.e, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < 3; i++)
        assert_int_equal(eng_real.canary(r.e, &err), 0);
    eng_real.pulse(r.e, &p1);
    assert_true(p1.step > p0.step);
    assert_int_equal(p1.op, ENG_OP_IDLE);
    struct eng_counters n;
    eng_real.counters(r.e, &n);
    assert_int_equal(n.kv_used_tokens, 0);
    assert_int_equal(n.kv_evicted_tokens, 0);
    rig_close(&r);
}

static void selftest_finds_a_damaged_model(void **state)
{
    struct tiny t = tiny_qwen35;
    struct rig r;
    struct vt_err err = {0};
    t.nan_tensor = "blk.3.ffn_down.weight";
    rig_open(&r, &t, NULL);
    assert_int_equal(eng_real.selftest(r.e, &err), -1);
    assert_int_equal(err.code, VT_E_NOT_FINITE);
    rig_close(&r);
}

static void layouts_differ_with_the_payload(void **state)
{
    struct tiny t = tiny_qwen35;
    struct rig a, b;
    rig_open(&a, &t, NULL);
    t.seed++; /* another training of the same shape */
    rig_open(&b, &t, NULL);
    assert_memory_not_equal(eng_real.facts(a.e)->layout_fp, eng_real.facts(b.e)->layout_fp, 32);
    rig_close(&a);
    rig_close(&b);
}

static void bad_configurations(void **state)
{
    struct eng_config c = {
        .model_path = "/nowhere/at/all.gguf", .slots = 1, .ctx_tokens = 512, .ubatch = 16, .simd = -1};
    struct eng_events ev = {0};
    struct eng *e = NULL;
    struct vt_err err = {0};
    assert_int_equal(eng_real.load(&e, &c, &ev, NULL, &err), -1);
    assert_int_equal(err.code, VT_E_NO_INPUT);
    c.ctx_tokens = 300;
    assert_int_equal(eng_real.load(&e, &c, &ev, NULL, &err), -1);
    assert_int_equal(err.code, VT_E_CONFIG);
    c.ctx_tokens = 512;
    c.slots = 0;
    assert_int_equal(eng_real.load(&e, &c, &ev, NULL, &err), -1);
    assert_null(e);
}

/* ---- memory pressure ---- */

static void held_exports_make_others_wait(void **state)
{
    struct rig r;
    struct eng_export *x[2];
    struct vt_err err;
    void *imp;
    uint32_t held;
    rig_open(&r, &tiny_qwen35, &(struct rig_opts){.slots = 2, .ctx = 512});
    struct eng_request q = request(500, 5);
    for (uint32_t s = 0; s < 2; s++) { /* both windows full and frozen by exports: no page is free */
        q.slot = (int32_t)s;
        q.ids = ids + 40 * s;
        rig_answer(&r, &q);
        assert_int_equal(eng_real.export_begin(r.e, s, &x[s], &err), 0);
        assert_int_equal(x[s]->n_blocks, 1);
    }
    assert_int_equal(eng_real.import_begin(r.e, 0, "default", ids, 512, 1, 256, &imp, &held, &err),
                     0); /* evicts slot 1, whose whole page the export keeps */
    struct eng_counters n;
    eng_real.counters(r.e, &n);
    assert_int_equal(n.kv_evicted_tokens, 504 - 256);
    assert_int_equal(n.kv_evicted_pages, 0);
    q.slot = 1;
    q.ids = ids + 900;
    uint64_t h = rig_submit(&r, &q);
    rig_run(&r);
    assert_false(rig_at(&r, h)->done); /* waits: all pages are held */
    eng_real.import_free(r.e, imp);
    rig_run(&r);
    assert_true(rig_at(&r, h)->done);
    assert_int_equal(rig_at(&r, h)->why, ENG_LENGTH);
    for (int s = 0; s < 2; s++)
        eng_real.export_free(r.e, x[s]);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admission),
        cmocka_unit_test(ends),
        cmocka_unit_test(eog_ids_end_unless_ignored),
        cmocka_unit_test(logprobs_come_with_tokens),
        cmocka_unit_test(queue_is_fair),
        cmocka_unit_test(nobody_jumps_the_queue),
        cmocka_unit_test(a_long_prompt_does_not_stop_others),
        cmocka_unit_test(credit_pauses_one_request),
        cmocka_unit_test(no_credit_no_first_token),
        cmocka_unit_test(slots_tell_what_they_do),
        cmocka_unit_test(a_request_runs_once),
        cmocka_unit_test(parked_requests_may_come_back),
        cmocka_unit_test(numbers_that_are_not_finite_end_one_request),
        cmocka_unit_test(proof_of_life),
        cmocka_unit_test(selftest_finds_a_damaged_model),
        cmocka_unit_test(layouts_differ_with_the_payload),
        cmocka_unit_test(bad_configurations),
        cmocka_unit_test(held_exports_make_others_wait),
    };
    tiny_ids(ids, 2048, 256);
    for (uint32_t i = 0; i < 2048; i++) /* no period shorter than the array */
        ids[i] = (ids[i] + i / 7) % 256;
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
