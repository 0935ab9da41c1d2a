/* A pool with a ledger dies at random moments, with the last writes of the device lost or not: whatever its successor takes over is what
 * its name says. */
#include "ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGES 12
#define SNAPS 5
#define STATE 7 /* floats: no whole number of words */
#define LAG   6 /* states of the device's memory that may be the last one */

struct world {
    struct be_pool *threads;
    struct be *be;
    struct be_attn geo;
    struct kv_shape shape;
    struct kv *kv;
    uint8_t *past[LAG]; /* the device's memory after each of the last operations */
    size_t bytes;
    uint32_t page[PAGES], id[PAGES], n; /* held by us: published when id is not 0 */
    uint32_t next_id;
    uint64_t random;
};

static uint32_t draw(struct world *w, uint32_t below)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % below;
}

static void name_of(uint32_t id, uint8_t name[KV_NAME])
{
    memset(name, 0, KV_NAME);
    for (int i = 0; i < 8; i++)
        memcpy(name + 4 * i, &id, sizeof id);
    name[31] = (uint8_t)(id * 37);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->geo = (struct be_attn){.n_head = 1, .n_kv_head = 1, .d = 2, .dv = 2};
    w->random = 7;
    w->next_id = 1;
    assert_int_equal(be_pool_new(&w->threads, 1, NULL), 0);
    assert_int_equal(be_new(&w->be, w->threads, BE_REF, NULL), 0);
    kv_lay_out(&w->geo, 1);
    w->shape = (struct kv_shape){
        .be = w->be, .n_attn = 1, .attn = &w->geo, .state_floats = STATE, .n_pages = PAGES, .n_snaps = SNAPS};
    w->bytes = kv_pool_bytes(&w->shape);
    assert_int_equal(be_alloc(w->be, &w->shape.memory, w->bytes, NULL), 0);
    w->shape.ledger = calloc(1, kv_ledger_bytes(PAGES));
    for (int i = 0; i < LAG; i++)
        w->past[i] = calloc(1, w->bytes);
    assert_int_equal(kv_new(&w->kv, &w->shape, NULL), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    while (w->n > 0)
        kv_page_unref(w->kv, w->page[--w->n]);
    kv_free(w->kv);
    be_release(w->be, w->shape.memory, w->bytes);
    free(w->shape.ledger);
    for (int i = 0; i < LAG; i++)
        free(w->past[i]);
    be_free(w->be);
    be_pool_free(w->threads);
    free(w);
    return 0;
}

static void remember(struct world *w)
{
    uint8_t *oldest = w->past[LAG - 1];
    memmove(&w->past[1], &w->past[0], (LAG - 1) * sizeof w->past[0]);
    w->past[0] = oldest;
    memcpy(oldest, w->shape.memory, w->bytes);
}

static void fill(struct world *w, uint32_t page, uint32_t id)
{
    memset(kv_page_data(w->kv, page), (int)(id * 37 & 0xff), kv_page_bytes(w->kv));
    memcpy(kv_page_data(w->kv, page), &id, sizeof id);
}

static void publish(struct world *w, uint32_t i)
{
    uint8_t name[KV_NAME];
    w->id[i] = w->next_id++;
    fill(w, w->page[i], w->id[i]);
    remember(w);
    name_of(w->id[i], name);
    assert_int_equal(kv_page_publish(w->kv, w->page[i], name), w->page[i]);
    remember(w);
    float state_of[STATE];
    for (int j = 0; j < STATE; j++)
        state_of[j] = (float)(w->id[i] * 10 + (uint32_t)j);
    if (draw(w, 3) > 0) {
        kv_snap_take(w->kv, w->page[i], state_of);
        remember(w);
    }
}

static void operation(struct world *w)
{
    uint32_t what = draw(w, 10);
    if (what < 4 && w->n < PAGES) {
        uint32_t page = kv_page_alloc(w->kv);
        if (page == KV_NONE)
            return;
        w->page[w->n] = page;
        w->id[w->n++] = 0;
        fill(w, page, 0); /* what a sequence writes before its page is full */
        remember(w);
    } else if (what < 7 && w->n > 0) {
        uint32_t i = draw(w, w->n);
        if (w->id[i] == 0)
            publish(w, i);
    } else if (w->n > 0) {
        uint32_t i = draw(w, w->n);
        if (w->id[i] != 0 && draw(w, 8) == 0)
            kv_page_forget(w->kv, w->page[i]);
        kv_page_unref(w->kv, w->page[i]);
        w->page[i] = w->page[--w->n];
        w->id[i] = w->id[w->n];
    }
}

/* Every page that can be found is right, and so is its snapshot. */
static uint32_t check(const struct world *w)
{
    uint32_t found = 0;
    for (uint32_t id = 1; id < w->next_id; id++) {
        uint8_t name[KV_NAME];
        uint32_t there;
        name_of(id, name);
        uint32_t page = kv_page_find(w->kv, name);
        if (page == KV_NONE)
            continue;
        found++;
        memcpy(&there, kv_page_data(w->kv, page), sizeof there);
        assert_int_equal(there, id);
        assert_int_equal(kv_page_data(w->kv, page)[kv_page_bytes(w->kv) - 1], id * 37 & 0xff);
        uint32_t snap = kv_snap_of(w->kv, page);
        for (int j = 0; snap != KV_NONE && j < STATE; j++)
            assert_true(kv_snap_data(w->kv, snap)[j] == (float)(id * 10 + (uint32_t)j));
    }
    return found;
}

/* The process is gone; of the device's work the last `lost` operations were not done. */
static void die(struct world *w, uint32_t lost)
{
    struct kv_stats now;
    while (w->n > 0)
        w->n--; /* nobody gives anything back */
    struct kv *gone = w->kv;
    memcpy(w->shape.memory, w->past[lost], w->bytes);
    assert_int_equal(kv_new(&w->kv, &w->shape, NULL), 0);
    kv_stats(w->kv, &now);
    uint32_t found = check(w);
    assert_int_equal(found, now.taken);
    assert_int_equal(found, now.cached);
    assert_int_equal(now.free + now.cached, PAGES);
    if (lost == 0)
        assert_int_equal(now.spoilt, 0);
    kv_abandon(gone);
    for (int i = 0; i < LAG; i++)
        memcpy(w->past[i], w->shape.memory, w->bytes);
}

static void random_deaths(void **state)
{
    struct world *w = *state;
    uint32_t taken = 0, spoilt = 0;
    for (int life = 0; life < 3000; life++) {
        struct kv_stats s;
        uint32_t n = 1 + draw(w, 40);
        for (uint32_t i = 0; i < n; i++)
            operation(w);
        die(w, draw(w, 2) * draw(w, LAG));
        kv_stats(w->kv, &s);
        taken += s.taken;
        spoilt += s.spoilt;
        if (w->next_id > 4000)
            break;
    }
    assert_true(taken > 1000);
    assert_true(spoilt > 100); /* the test has lost writes */
}

static void another_shape_is_an_empty_ledger(void **state)
{
    struct world *w = *state;
    struct kv_stats s;
    w->page[w->n] = kv_page_alloc(w->kv);
    publish(w, w->n++);
    w->shape.ledger->n_snaps++;
    struct kv *gone = w->kv;
    assert_int_equal(kv_new(&w->kv, &w->shape, NULL), 0);
    w->n = 0;
    kv_abandon(gone);
    kv_stats(w->kv, &s);
    assert_int_equal(s.taken, 0);
    assert_int_equal(s.free, PAGES);
}

static void nonsense_is_not_believed(void **state)
{
    struct world *w = *state;
    struct kv_stats s;
    for (int round = 0; round < 200; round++) {
        uint8_t *at = (uint8_t *)w->shape.ledger->entry;
        for (size_t i = 0; i < PAGES * sizeof(struct kv_ledger_entry); i++)
            at[i] = draw(w, 3) == 0 ? (uint8_t)draw(w, 256) : at[i];
        struct kv *gone = w->kv;
        assert_int_equal(kv_new(&w->kv, &w->shape, NULL), 0);
        kv_abandon(gone);
        kv_stats(w->kv, &s);
        assert_int_equal(s.taken, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_deaths, setup, teardown),
        cmocka_unit_test_setup_teardown(another_shape_is_an_empty_ledger, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense_is_not_believed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
