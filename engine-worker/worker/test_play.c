/* A client as the gateway would play it, and the orders of vitriold; every token is checked against the stub's reference. */
#include "sampling.h"
#include "test_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t ref(uint64_t seed, uint64_t pos)
{
    return 33 + (uint32_t)(mix(mix(seed) + pos) % (126 - 33 + 1));
}

/* ---- requests ---- */

void rig_submit(struct rig *r, const struct ask *a)
{
    uint32_t *ids = malloc(((size_t)a->n_prompt + a->n_emitted + 1) * 4);
    uint8_t rid[16];
    memset(rid, a->rid, sizeof rid);
    if (a->rid == 0)
        memcpy(rid, &a->id, sizeof a->id);
    for (uint32_t i = 0; i < a->n_prompt; i++)
        ids[i] = a->first + i;
    struct vt_enc *e = peer_begin(&r->gw, VT_F_SUBMIT, a->id);
    vt_enc_bin(e, VT_SUBMIT_RID, rid, 16);
    vt_enc_u64(e, VT_SUBMIT_OP, a->op);
    vt_enc_str(e, VT_SUBMIT_TENANT, a->tenant != NULL ? a->tenant : "t");
    vt_enc_i64(e, VT_SUBMIT_SLOT, a->slot);
    vt_enc_bin(e, VT_SUBMIT_ITEMS, ids, a->n_prompt * 4);
    vt_enc_u64(e, VT_SUBMIT_MAX_NEW, a->max_new);
    vt_enc_map(e, VT_SUBMIT_SAMPLING, 1);
    vt_enc_put_u64(e, VT_SAMPLING_SEED);
    vt_enc_put_u64(e, a->seed);
    if (a->logprobs > 0)
        vt_enc_u64(e, VT_SUBMIT_LOGPROBS, a->logprobs);
    if (a->credit > 0)
        vt_enc_u64(e, VT_SUBMIT_CREDIT, a->credit);
    if (a->n_emitted > 0) {
        for (uint32_t i = 0; i < a->n_emitted; i++)
            ids[i] = ref(a->seed, i);
        vt_enc_map(e, VT_SUBMIT_RESUME, 3);
        vt_enc_put_u64(e, VT_RESUME_EMITTED);
        vt_enc_put_bin(e, ids, a->n_emitted * 4);
        vt_enc_put_u64(e, VT_RESUME_ATTEMPT);
        vt_enc_put_u64(e, 1);
        vt_enc_put_u64(e, VT_RESUME_SEED);
        vt_enc_put_u64(e, a->seed);
    }
    if (a->pool > 0)
        vt_enc_u64(e, VT_SUBMIT_POOL, a->pool);
    peer_send(&r->gw);
    free(ids);
}

uint32_t rig_accepted(struct rig *r, uint64_t id, unsigned dup)
{
    struct got *g = rig_wait(r, &r->gw, VT_F_ACCEPTED, id, 5000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_ACCEPTED_DUP, 9), dup);
    uint32_t reused = (uint32_t)vt_frame_u64(&g->f, VT_ACCEPTED_REUSED, 0);
    got_free(g);
    return reused;
}

void rig_tokens(struct rig *r, uint64_t id, uint64_t seed, uint32_t from, uint32_t to)
{
    while (from < to) {
        size_t n;
        struct got *g = rig_wait(r, &r->gw, VT_F_TOKENS, id, 5000);
        if (g == NULL)
            fail_msg("no token at %u of %u", from, to);
        const uint8_t *ids = vt_frame_bin(&g->f, VT_TOKENS_IDS, &n);
        assert_int_equal(vt_frame_u64(&g->f, VT_TOKENS_FIRST, 999), from);
        for (size_t i = 0; i < n / 4; i++) {
            uint32_t v;
            memcpy(&v, ids + 4 * i, 4);
            assert_int_equal(v, ref(seed, from + i));
        }
        from += (uint32_t)(n / 4);
        got_free(g);
    }
    assert_int_equal(from, to);
}

void rig_done(struct rig *r, uint64_t id, unsigned reason, uint64_t emitted)
{
    struct got *g = rig_wait(r, &r->gw, VT_F_DONE, id, 5000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), reason);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_EMITTED, 0), emitted);
    assert_int_equal(vt_map_u64(vt_frame_map(&g->f, VT_DONE_USAGE), VT_USAGE_GENERATED, 0), emitted);
    got_free(g);
    assert_int_equal(rig_count(&r->gw, VT_F_TOKENS, id), 0);
}

void rig_refused(struct rig *r, uint64_t id, int code)
{
    struct got *g = rig_wait(r, &r->gw, VT_F_REFUSED, id, 5000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_KEY_CODE, 0), code);
    got_free(g);
}

void rig_credit(struct rig *r, uint64_t id, uint64_t value)
{
    vt_enc_u64(peer_begin(&r->gw, VT_F_CREDIT, id), VT_CREDIT_ADD, value);
    peer_send(&r->gw);
}

void rig_cancel(struct rig *r, uint64_t id)
{
    vt_enc_u64(peer_begin(&r->gw, VT_F_CANCEL, id), VT_CANCEL_WHY, 1);
    peer_send(&r->gw);
}

void rig_order(struct rig *r, unsigned verb, uint64_t id, unsigned deadline_ms)
{
    struct vt_enc *e = peer_begin(&r->life, VT_F_ORDER, id);
    vt_enc_u64(e, VT_ORDER_VERB, verb);
    if (deadline_ms > 0)
        vt_enc_u64(e, VT_ORDER_DEADLINE_MS, deadline_ms);
    peer_send(&r->life);
}

void rig_order_done(struct rig *r, unsigned verb, uint64_t id, bool ok)
{
    struct got *g = rig_wait(r, &r->life, VT_F_ORDER_DONE, id, 10000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_ORDER_DONE_VERB, 0), verb);
    assert_int_equal(vt_frame_u64(&g->f, VT_ORDER_DONE_OK, 9), ok);
    got_free(g);
}

const char *const rig_small[] = {
    "engine.slots=2",         "engine.ctx_tokens=2048",    "engine.ubatch_tokens=128",
    "store.turn_save_ms=100", "engine.orphan_s=1",         "engine.credit_stall_s=1",
    "store.autosave_s=1",     "store.prefix_wait_ms=1000", NULL};

void rig_up(struct rig *r, const char *extra, bool with_store)
{
    if (with_store && r->shelf == NULL)
        r->shelf = calloc(1, sizeof *r->shelf);
    rig_start(r, extra, rig_small);
    rig_ready(r, with_store);
    rig_open_gateway(r);
}
