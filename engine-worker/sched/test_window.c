/* Layers that see a window: only their window is held, and neither chunks, neighbours, reuse nor a restore change the text. */
#include "internal.h"
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WINDOW 200
#define CTX    3072
#define PROMPT 2700 /* ten pages and a part */
#define NEW    20

static struct tiny model;
static uint32_t prompts[3][PROMPT];
static const uint32_t lengths[3] = {PROMPT, 1300, 700};

static void make_prompts(void)
{
    model = tiny_gemma3;
    model.window = WINDOW;
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t i = 0; i < PROMPT; i++)
            prompts[p][i] = (i * (31 + 2 * p) + 7 * p + i * i % 11 + i / 9) % 256;
}

static void open_rig(struct rig *r, uint32_t slots, uint32_t ubatch, uint32_t snaps)
{
    rig_open(r, &model, &(struct rig_opts){.slots = slots, .ctx = CTX, .ubatch = ubatch, .snaps = snaps});
}

static struct eng_request request(uint32_t p)
{
    return rig_request(prompts[p], lengths[p], NEW);
}

/* The text of a request in an engine that has seen nothing else. */
static void fresh(const struct eng_request *q, uint32_t text[NEW])
{
    struct rig r;
    open_rig(&r, 1, 256, 8);
    struct eng_request any = *q;
    any.slot = -1;
    const struct rig_req *a = rig_answer(&r, &any);
    if (a->n != NEW)
        fail_msg("%u tokens: %s", a->n, a->err.text);
    memcpy(text, a->ids, NEW * sizeof *text);
    rig_close(&r);
}

static const uint32_t *text_of(uint32_t p)
{
    static uint32_t texts[3][NEW];
    static bool known[3];
    struct eng_request q = request(p);
    if (!known[p])
        fresh(&q, texts[p]);
    known[p] = true;
    return texts[p];
}

static void only_the_window_is_held(void **state)
{
    struct rig r;
    struct kv_stats st;
    open_rig(&r, 2, 64, 1);
    const struct kv *win = r.e->win;
    struct eng_request q = request(0);
    q.slot = 0;
    uint64_t h = rig_submit(&r, &q);
    for (bool more = true; more;) {
        more = eng_real.step(r.e);
        const struct kv_seq *s = &r.e->slots[0].seq;
        assert_int_equal(s->first_wpage, kv_window_first(WINDOW, s->n / BE_PAGE * BE_PAGE));
        kv_stats(win, &st);
        assert_int_equal(st.used, s->n_pages - s->first_wpage + r.e->canary.n_pages);
        assert_true(st.used <= kv_window_pages(WINDOW) + 2 + r.e->canary.n_pages);
    }
    assert_int_equal(rig_at(&r, h)->n, NEW);
    assert_true(st.pages < 2 * CTX / BE_PAGE);
    const struct eng_facts *f = eng_real.facts(r.e);
    assert_int_equal(f->kv_planned, f->kv_measured);
    assert_int_equal(f->rec_bytes, kv_window_pages(WINDOW) * kv_page_bytes(win));
    rig_close(&r);
}

static void chunks_and_neighbours_change_no_text(void **state)
{
    static const uint32_t sizes[] = {30, 256, 700};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct rig r;
        uint64_t h[3];
        open_rig(&r, 3, sizes[i], 1);
        for (uint32_t p = 0; p < 3; p++) {
            struct eng_request q = request(p);
            h[p] = rig_submit(&r, &q);
            eng_real.step(r.e);
        }
        rig_run(&r);
        for (uint32_t p = 0; p < 3; p++)
            assert_memory_equal(rig_at(&r, h[p])->ids, text_of(p), NEW * sizeof(uint32_t));
        rig_close(&r);
    }
}

/* Submits the first n tokens of a prompt with another last one; the text must be that of an engine without a cache. */
static void branch(struct rig *r, int32_t slot, uint32_t p, uint32_t n, uint32_t reused)
{
    uint32_t ids[PROMPT], text[NEW];
    memcpy(ids, prompts[p], n * sizeof *ids);
    ids[n - 1] ^= 1;
    struct eng_request q = rig_request(ids, n, NEW);
    q.slot = slot;
    fresh(&q, text);
    const struct rig_req *a = rig_answer(r, &q);
    assert_int_equal(a->reused, reused);
    assert_memory_equal(a->ids, text, sizeof text);
}

static void again(struct rig *r, int32_t slot, uint32_t p, uint32_t reused)
{
    struct eng_request q = request(p);
    q.slot = slot;
    const struct rig_req *a = rig_answer(r, &q);
    assert_int_equal(a->reused, reused);
    assert_memory_equal(a->ids, text_of(p), NEW * sizeof(uint32_t));
}

static void reuse_changes_no_text(void **state)
{
    struct rig r;
    open_rig(&r, 2, 128, 1);
    again(&r, 0, 0, 0);
    again(&r, 0, 0, PROMPT - 1);  /* in the newest page */
    again(&r, 1, 0, PROMPT - 1);  /* by name, and a copy of the rest */
    branch(&r, 0, 0, 2600, 2599); /* back inside the newest page */
    branch(&r, 0, 0, 2400, 2399); /* behind it: a cached window, and the page of the other slot */
    again(&r, 1, 0, PROMPT - 1);  /* the other slot has lost nothing */
    again(&r, 1, 1, 0);
    branch(&r, 0, 0, 600, 0);     /* its window has been left long ago */
    branch(&r, 0, 1, 1290, 1289); /* of another slot */
    rig_close(&r);
}

/* The window before a border may be in the cache although the sequence that wrote it has gone on. */
static void a_cache_keeps_windows(void **state)
{
    struct rig r;
    open_rig(&r, 2, 128, 8);
    again(&r, 0, 1, 0);
    branch(&r, 1, 1, 600, 512);
    branch(&r, 0, 1, 300, 299);
    again(&r, 0, 1, 1280);
    rig_close(&r);
}

static void a_restored_engine_goes_on(void **state)
{
    for (uint32_t p = 0; p < 3; p++) {
        struct rig a, b;
        struct vt_err err;
        open_rig(&a, 2, 64, 1);
        open_rig(&b, 2, 64, 1);
        struct eng_request q = request(p);
        uint64_t h = rig_submit(&a, &q);
        rig_run_to(&a, h, 10);
        uint32_t blocks = (lengths[p] + 9) / ENG_PAGE;
        assert_int_equal(rig_carry(&a, &b, 1, blocks - 1), 0); /* the window lies at the last border only */
        assert_int_equal(rig_carry(&a, &b, 0, blocks), blocks * ENG_PAGE);
        assert_int_equal(eng_real.selftest(b.e, &err), 0);
        q.emitted = rig_at(&a, h)->ids;
        q.n_emitted = 10;
        const struct rig_req *r = rig_answer(&b, &q);
        assert_int_equal(r->slot, 0);
        assert_int_equal(r->reused, blocks * ENG_PAGE);
        assert_memory_equal(r->ids, text_of(p) + 10, (NEW - 10) * sizeof(uint32_t));
        blocks = (lengths[p] + NEW - 1) / ENG_PAGE;
        rig_run(&a);
        assert_int_equal(rig_carry(&b, &a, 0, blocks), blocks * ENG_PAGE); /* and back, over what is there */
        rig_close(&b);
        rig_close(&a);
    }
}

static void an_import_may_wait_for_its_request(void **state)
{
    for (uint32_t p = 0; p < 3; p++) {
        struct rig a, b;
        open_rig(&a, 2, 64, 1);
        open_rig(&b, 2, 64, 1);
        struct eng_request q = request(p);
        uint64_t h = rig_submit(&a, &q);
        rig_run_to(&a, h, 10);
        uint32_t blocks = (lengths[p] + 9) / ENG_PAGE;
        assert_int_equal(rig_carry(&a, &b, ENG_CACHE, blocks), blocks * ENG_PAGE);
        q.emitted = rig_at(&a, h)->ids;
        q.n_emitted = 10;
        assert_int_equal(eng_real.resident(b.e, &q), blocks * ENG_PAGE);
        const struct rig_req *r = rig_answer(&b, &q);
        assert_int_equal(r->reused, blocks * ENG_PAGE);
        assert_memory_equal(r->ids, text_of(p) + 10, (NEW - 10) * sizeof(uint32_t));
        rig_run(&a);
        rig_close(&b);
        rig_close(&a);
    }
}

/* What is exported is a function of the prefix: equal bytes from an engine that was itself restored. */
static void a_window_exports_the_same_bytes(void **state)
{
    struct rig r[2];
    struct eng_export *x[2];
    struct vt_err err;
    struct eng_request q = request(2);
    for (int i = 0; i < 2; i++) {
        open_rig(&r[i], 1, i ? 30 : 256, 1);
        rig_answer(&r[i], &q);
        assert_int_equal(eng_real.export_begin(r[i].e, 0, &x[i], &err), 0);
        assert_int_equal(x[i]->n_rec, 1);
        assert_int_equal(x[i]->rec_pos[0], 512);
    }
    uint64_t n = eng_real.facts(r[0].e)->rec_bytes;
    uint8_t *bytes[2] = {malloc(n), malloc(n)};
    for (int i = 0; i < 2; i++)
        assert_int_equal(eng_real.export_read(r[i].e, x[i], 2, 0, 0, bytes[i], n), 0);
    assert_memory_equal(bytes[0], bytes[1], n);
    assert_int_equal(eng_real.export_read(r[0].e, x[0], 2, 0, n - 7, bytes[0], 7), 0);
    assert_memory_equal(bytes[0], bytes[1] + n - 7, 7);
    assert_int_equal(eng_real.export_read(r[0].e, x[0], 2, 0, n - 7, bytes[0], 8), -1);
    for (int i = 0; i < 2; i++) {
        eng_real.export_free(r[i].e, x[i]);
        rig_close(&r[i]);
        free(bytes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_window_is_held),
        cmocka_unit_test(chunks_and_neighbours_change_no_text),
        cmocka_unit_test(reuse_changes_no_text),
        cmocka_unit_test(a_cache_keeps_windows),
        cmocka_unit_test(a_restored_engine_goes_on),
        cmocka_unit_test(an_import_may_wait_for_its_request),
        cmocka_unit_test(a_window_exports_the_same_bytes),
    };
    make_prompts();
    return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
