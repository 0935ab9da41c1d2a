/* Everything at once: random submissions, cancels, credits, parking, exports, imports and erasures on three slots. Every
 * request has one end and every token is the one of the undisturbed text. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define IDS 2000

static uint32_t ids[IDS];

#define BASES  3
#define LENGTH 24

static uint32_t rng_state;
static uint32_t below(uint32_t n)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (rng_state >> 8) % n;
}

struct walk {
    uint32_t unit; /* a base is cut to unit * (k + 1) tokens */
    uint32_t ctx;
    struct rig r;
    uint32_t texts[BASES][8][LENGTH]; /* the right text of base b cut k, greedy */
    uint64_t handle[64];
    uint8_t base[64], cut[64];
    struct eng_export *x;
    void *imp;
};

static struct eng_request walk_request(const struct walk *w, uint8_t base, uint8_t cut)
{
    return rig_request(ids + 400 * base, w->unit * (cut + 1u), LENGTH);
}

static void learn_texts(struct walk *w, const struct tiny *t)
{
    rig_open(&w->r, t, &(struct rig_opts){.slots = 1, .ubatch = 256, .ctx = w->ctx});
    for (uint8_t b = 0; b < BASES; b++)
        for (uint8_t k = 0; k < 8; k++) {
            struct eng_request q = walk_request(w, b, k);
            q.reuse = false;
            memcpy(w->texts[b][k], rig_answer(&w->r, &q)->ids, sizeof w->texts[b][k]);
        }
    rig_close(&w->r);
}

static void walk_submit(struct walk *w, int at)
{
    struct rig_req *old = w->handle[at] ? rig_at(&w->r, w->handle[at]) : NULL;
    if (old && !old->n_terminal)
        return;
    w->base[at] = (uint8_t)below(BASES);
    w->cut[at] = (uint8_t)below(8);
    struct eng_request q = walk_request(w, w->base[at], w->cut[at]);
    q.slot = below(5) ? -1 : (int32_t)below(3);
    q.reuse = below(6) != 0;
    q.n_emitted = below(3) ? 0 : below(LENGTH);
    q.emitted = w->texts[w->base[at]][w->cut[at]];
    q.credit = below(4) ? 1000 : 3;
    w->handle[at] = rig_submit(&w->r, &q);
    rig_at(&w->r, w->handle[at])->first = q.n_emitted;
}

static void walk_checkpoint(struct walk *w)
{
    struct vt_err err;
    uint32_t tokens, held;
    if (w->x) {
        if (!w->imp && w->x->n_blocks && below(2)) {
            uint32_t rec = w->x->n_rec ? w->x->rec_pos[0] : 0;
            uint32_t n = w->x->n_blocks;
            if (eng_real.import_begin(w->r.e, below(3) ? below(3) : ENG_CACHE, w->x->tenant, w->x->items,
                                      w->x->n_items, n, rec, &w->imp, &held, &err) == 0) {
                uint64_t size = eng_real.facts(w->r.e)->block_bytes,
                         rsize = eng_real.facts(w->r.e)->rec_bytes;
                uint8_t *piece = malloc(size > rsize ? size : rsize);
                for (uint32_t i = held; i < n; i++) {
                    assert_int_equal(eng_real.export_read(w->r.e, w->x, 1, i, 0, piece, size), 0);
                    assert_int_equal(eng_real.import_write(w->r.e, w->imp, 1, i, 0, piece, size, &err), 0);
                }
                if (rec) {
                    assert_int_equal(eng_real.export_read(w->r.e, w->x, 2, 0, 0, piece, rsize), 0);
                    assert_int_equal(eng_real.import_write(w->r.e, w->imp, 2, 0, 0, piece, rsize, &err), 0);
                }
                free(piece);
            }
        }
        eng_real.export_free(w->r.e, w->x);
        w->x = NULL;
    } else if (w->imp) {
        if (below(3))
            eng_real.import_publish(w->r.e, w->imp, 1 + below(2), true, &tokens,
                                    &err); /* busy slots refuse */
        eng_real.import_free(w->r.e, w->imp);
        w->imp = NULL;
    } else {
        assert_int_equal(eng_real.export_begin(w->r.e, below(3), &w->x, &err), 0);
    }
}

static void walk_check(struct walk *w)
{
    for (int i = 0; i < 64; i++) {
        if (!w->handle[i])
            continue;
        const struct rig_req *a = rig_at(&w->r, w->handle[i]);
        assert_true(a->first + a->n <= LENGTH);
        assert_memory_equal(a->ids, w->texts[w->base[i]][w->cut[i]] + a->first, a->n * sizeof *ids);
    }
}

static void random_walk(struct walk *w, const struct tiny *t, uint32_t seed)
{
    struct vt_err err;
    uint32_t n;
    memset(w->handle, 0, sizeof w->handle);
    w->x = NULL;
    w->imp = NULL;
    rng_state = seed;
    rig_open(&w->r, t,
             &(struct rig_opts){.slots = 3,
                                .ubatch = w->unit / 2 + 4,
                                .snaps = 2,
                                .ctx = w->ctx,
                                .spec_n = seed % 2 ? 5 : 0}); /* with guesses, too */
    for (int op = 0; op < 1200; op++) {
        int at = (int)below(12);
        switch (below(12)) {
        case 0:
        case 1: walk_submit(w, at); break;
        case 2:
            if (w->handle[at] && below(2))
                eng_real.cancel(w->r.e, w->handle[at]);
            break;
        case 3:
            if (w->handle[at])
                eng_real.credit(w->r.e, w->handle[at], below(10));
            break;
        case 4: walk_checkpoint(w); break;
        case 5:
            if (below(30) == 0)
                eng_real.park_all(w->r.e);
            else if (below(8) == 0)
                eng_real.erase(w->r.e, below(3), &n, &err);
            break;
        default: eng_real.step(w->r.e);
        }
        if (op % 50 == 0)
            walk_check(w);
    }
    for (int i = 0; i < 64; i++)
        if (w->handle[i])
            eng_real.credit(w->r.e, w->handle[i], 1000);
    if (w->x)
        eng_real.export_free(w->r.e, w->x);
    eng_real.import_free(w->r.e, w->imp);
    rig_run(&w->r);
    walk_check(w);
    rig_close(&w->r);
}

static void random_walks(void **state)
{
    struct tiny narrow = tiny_gemma3; /* prompts of up to 960 tokens leave their first windows behind */
    narrow.window = 40;
    const struct tiny *const models[] = {&tiny_qwen3, &tiny_qwen35, &tiny_moe, &narrow};
    struct walk *w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (int i = 0; i < 4; i++) {
        w->unit = models[i]->window ? 120 : 40;
        w->ctx = models[i]->window ? 1024 : 512;
        learn_texts(w, models[i]);
        for (uint32_t seed = 1; seed <= 3; seed++)
            random_walk(w, models[i], seed);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_walks)};
    tiny_ids(ids, IDS, 256);
    for (uint32_t i = 0; i < IDS; i++) /* no period shorter than the array */
        ids[i] = (ids[i] + i / 7) % 256;
    return cmocka_run_group_tests_name("walk", tests, NULL, NULL);
}
