#include "hash.h"
#include "seq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAP      1536 /* six pages */
#define N_SEQS   5
#define STATE    4
#define PAGE_F16 (2 * BE_PAGE) /* one K and one V value per token: one layer, one head, d = 1 */

static struct be_pool *pool;
static struct be *be;

/* What the forward pass would write for a token: a function of the whole prefix, so that a wrong page cannot be right by
 * chance. */
static uint64_t mix(uint64_t h, uint32_t id)
{
    h ^= id + 0x9E3779B97F4A7C15u;
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ (h >> 29);
}

static uint64_t prefix_hash(const uint32_t *ids, uint32_t n)
{
    uint64_t h = 1;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, ids[i]);
    return h;
}

/* K [BE_PAGE], then V [BE_PAGE]. */
static uint16_t *page_f16(const struct kv *kv, uint32_t page)
{
    return (uint16_t *)(void *)kv_page_data(kv, page);
}

static struct kv *make_kv(uint32_t pages, uint32_t snaps, bool hybrid)
{
    struct be_attn geo = {.n_head = 1, .n_kv_head = 1, .d = 1, .dv = 1};
    kv_lay_out(&geo, 1);
    struct kv_shape shape = {.be = be,
                             .n_attn = 1,
                             .attn = &geo,
                             .state_floats = hybrid ? STATE : 0,
                             .n_pages = pages,
                             .n_snaps = snaps};
    struct kv *kv;
    assert_int_equal(kv_new(&kv, &shape, NULL), 0);
    assert_int_equal(kv_page_bytes(kv), PAGE_F16 * sizeof(uint16_t));
    return kv;
}

/* Writes K, V and state as a forward pass over ids would. */
static void compute(struct kv_seq *s, const uint32_t *ids, uint32_t n)
{
    uint64_t h = prefix_hash(s->ids, s->n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = s->n + i;
        h = mix(h, ids[i]);
        page_f16(s->kv, s->pages[pos / BE_PAGE])[pos % BE_PAGE] = (uint16_t)h;
        page_f16(s->kv, s->pages[pos / BE_PAGE])[BE_PAGE + pos % BE_PAGE] = (uint16_t)(h >> 16);
        if (s->win) {
            assert_true(pos / BE_PAGE >= s->first_wpage);
            page_f16(s->win, s->wpages[pos / BE_PAGE])[pos % BE_PAGE] = (uint16_t)(h >> 32);
        }
        if (s->state)
            for (int j = 0; j < STATE; j++)
                s->state[j] = (float)((h >> (8 * j)) & 0xffff);
    }
}

static void check_content(const struct kv_seq *s)
{
    uint64_t h = 1;
    /* The next row, and any row from the newest page border on, finds its window. */
    uint32_t border = s->n / BE_PAGE * BE_PAGE;
    assert_true(!s->win || s->first_wpage <= kv_window_first(s->window, border));
    for (uint32_t i = 0; i < s->n; i++) {
        h = mix(h, s->ids[i]);
        assert_int_equal(page_f16(s->kv, s->pages[i / BE_PAGE])[i % BE_PAGE], (uint16_t)h);
        assert_int_equal(page_f16(s->kv, s->pages[i / BE_PAGE])[BE_PAGE + i % BE_PAGE], (uint16_t)(h >> 16));
        if (s->win && i / BE_PAGE >= s->first_wpage)
            assert_int_equal(page_f16(s->win, s->wpages[i / BE_PAGE])[i % BE_PAGE], (uint16_t)(h >> 32));
    }
    for (int j = 0; s->state && j < STATE; j++)
        assert_true(s->state[j] == (s->n ? (float)((h >> (8 * j)) & 0xffff) : 0.0f));
}

static uint32_t grow(struct kv_seq *s, const uint32_t *ids, uint32_t n)
{
    uint32_t done = 0;
    while (done < n) {
        uint32_t part = n - done, border = BE_PAGE - s->n % BE_PAGE;
        if (s->state && part > border)
            part = border;
        part = kv_seq_room(s, part);
        if (part == 0)
            break;
        compute(s, ids + done, part);
        kv_seq_advance(s, ids + done, part);
        done += part;
    }
    return done;
}

static void fill_ids(uint32_t *ids, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint32_t)(mix(seed, i) % 1000);
}

/* ---- properties under random operations ---- */

struct world {
    struct kv *kv, *win;
    struct kv_seq seqs[N_SEQS];
    uint8_t roots[2][KV_NAME];
    uint32_t base[3][CAP]; /* conversations that prompts are cut from, so that prefixes meet */
    uint32_t rng;
};

static uint32_t below(struct world *w, uint32_t n)
{
    w->rng = w->rng * 1664525u + 1013904223u;
    return (w->rng >> 8) % n;
}

/* References counted from the outside must be those that a pool has counted; nothing is lost. */
static void check_pool(const struct kv *kv, uint32_t *refs)
{
    struct kv_stats st;
    uint32_t used = 0;
    kv_stats(kv, &st);
    for (uint32_t i = 0; i < st.pages; i++) {
        assert_int_equal(kv_page_refs(kv, i), refs[i]);
        used += refs[i] > 0;
    }
    assert_int_equal(st.used, used);
    assert_int_equal(st.used + st.cached + st.free, st.pages);
}

static void check_refs(struct world *w, const uint32_t *held, uint32_t n_held)
{
    uint32_t refs[64] = {0}, wrefs[64] = {0};
    for (int i = 0; i < N_SEQS; i++) {
        const struct kv_seq *s = &w->seqs[i];
        for (uint32_t j = 0; j < s->n_pages; j++) {
            refs[s->pages[j]]++;
            if (s->win && j >= s->first_wpage)
                wrefs[s->wpages[j]]++;
        }
    }
    for (uint32_t i = 0; i < n_held; i++)
        refs[held[i]]++;
    check_pool(w->kv, refs);
    if (w->win)
        check_pool(w->win, wrefs);
}

static void check_seq(const struct kv_seq *s)
{
    check_content(s);
    for (uint32_t i = 0; i < s->n_pages; i++) {
        bool full = (i + 1) * BE_PAGE <= s->n;
        assert_int_equal(kv_page_published(s->kv, s->pages[i]), full);
        if (!full)
            assert_int_equal(kv_page_refs(s->kv, s->pages[i]), 1);
    }
}

/* Takes a prompt (a cut of a base conversation, perhaps with its own end) into a sequence and evaluates the rest. */
static void prompt(struct world *w, struct kv_seq *s)
{
    uint32_t ids[CAP], n = 1 + below(w, CAP - 1), own = below(w, 3) ? below(w, 40) : 0;
    memcpy(ids, w->base[below(w, 3)], sizeof ids);
    for (uint32_t i = n - (own < n ? own : n); i < n; i++)
        ids[i] = below(w, 1000);
    const uint8_t *root = w->roots[below(w, 8) == 0];
    const struct kv_seq *others[N_SEQS];
    for (int i = 0; i < N_SEQS; i++)
        others[i] = &w->seqs[i];
    struct kv_reuse r = kv_seq_match(s, root, ids, n, others, N_SEQS);
    assert_true(r.n < n);
    uint32_t got = kv_seq_reuse(s, root, ids, &r);
    assert_true(got <= r.n);
    assert_int_equal(s->n, got);
    assert_memory_equal(s->ids, ids, got * sizeof *ids);
    check_seq(s);
    grow(s, ids + got, n - got);
}

/* window 0: no layers with one; else wpages of them. */
static void random_operations(bool hybrid, uint32_t pages, uint32_t window, uint32_t wpages, uint32_t seed)
{
    struct world w = {.kv = make_kv(pages, hybrid ? 12 : 0, hybrid), .rng = seed};
    w.win = window ? make_kv(wpages, 0, false) : NULL;
    uint32_t held[8], n_held = 0;
    kv_root("alice", w.roots[0]);
    kv_root("bob", w.roots[1]);
    for (uint32_t i = 0; i < 3; i++)
        fill_ids(w.base[i], CAP, i < 2 ? 5 : 6);
    fill_ids(w.base[1] + 700, CAP - 700, 9); /* shares 700 tokens with the first */
    for (int i = 0; i < N_SEQS; i++) {
        assert_int_equal(kv_seq_init(&w.seqs[i], w.kv, w.win, window, CAP, 3, NULL), 0);
        kv_seq_clear(&w.seqs[i], w.roots[0]);
    }
    for (int op = 0; op < 400; op++) {
        struct kv_seq *s = &w.seqs[below(&w, N_SEQS)];
        switch (below(&w, 8)) {
        case 0: kv_seq_clear(s, w.roots[0]); break;
        case 1: /* an export takes hold of a full page, or lets one go */
            if (n_held < 8 && s->n >= BE_PAGE)
                kv_page_ref(w.kv, held[n_held++] = s->pages[0]);
            else if (n_held > 0)
                kv_page_unref(w.kv, held[--n_held]);
            break;
        case 2: { /* decode */
            uint32_t id = below(&w, 1000);
            if (s->n < CAP)
                grow(s, &id, 1);
            break;
        }
        default: prompt(&w, s);
        }
        check_seq(s);
        if (op % 20 == 0)
            check_refs(&w, held, n_held);
    }
    for (int i = 0; i < N_SEQS; i++)
        check_seq(&w.seqs[i]);
    while (n_held > 0)
        kv_page_unref(w.kv, held[--n_held]);
    for (int i = 0; i < N_SEQS; i++)
        kv_seq_fini(&w.seqs[i]);
    struct kv_stats st;
    kv_stats(w.kv, &st);
    assert_int_equal(st.used, 0);
    kv_free(w.kv);
    if (w.win)
        kv_stats(w.win, &st);
    assert_int_equal(st.used, 0);
    kv_free(w.win);
}

static void dense_with_room(void **state)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        random_operations(false, 40, 0, 0, seed);
}

static void dense_under_pressure(void **state)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        random_operations(false, 13, 0, 0, seed);
}

static void hybrid_with_room(void **state)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        random_operations(true, 40, 0, 0, seed);
}

static void hybrid_under_pressure(void **state)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        random_operations(true, 13, 0, 0, seed);
}

/* Windows of less than a page, of several, of one token; with little memory and with a recurrent state beside. */
static void windows(void **state)
{
    static const uint32_t sizes[] = {1, 2, 100, 257, 600, 4000};
    for (uint32_t seed = 1; seed <= 6; seed++)
        for (uint32_t i = 0; i < 6; i++) {
            random_operations(false, 40, sizes[i], 40, seed);
            random_operations(false, 40, sizes[i], 9, seed);
            random_operations(false, 13, sizes[i], 20, seed);
            random_operations(true, 20, sizes[i], 14, seed);
        }
}

/* ---- single rules ---- */

struct pair {
    struct kv *kv;
    struct kv_seq a, b;
    uint8_t root[KV_NAME];
    uint32_t ids[CAP];
};

static void setup(struct pair *p, bool hybrid, uint32_t max_snaps)
{
    p->kv = make_kv(16, hybrid ? 2 * max_snaps : 0, hybrid);
    kv_root("t", p->root);
    fill_ids(p->ids, CAP, 3);
    assert_int_equal(kv_seq_init(&p->a, p->kv, NULL, 0, CAP, max_snaps, NULL), 0);
    assert_int_equal(kv_seq_init(&p->b, p->kv, NULL, 0, CAP, max_snaps, NULL), 0);
    kv_seq_clear(&p->a, p->root);
    kv_seq_clear(&p->b, p->root);
}

static void teardown(struct pair *p)
{
    kv_seq_fini(&p->a);
    kv_seq_fini(&p->b);
    kv_free(p->kv);
}

static struct kv_reuse match(struct pair *p, uint32_t n)
{
    const struct kv_seq *others[] = {&p->a, &p->b};
    return kv_seq_match(&p->b, p->root, p->ids, n, others, 2);
}

static void another_sequence_shares_pages_and_copies_the_rest(void **state)
{
    struct pair p;
    setup(&p, false, 0);
    grow(&p.a, p.ids, 700);
    struct kv_reuse r = match(&p, 690);
    assert_int_equal(r.n, 689); /* one token is always evaluated */
    assert_int_equal(r.n_pages, 2);
    kv_seq_reuse(&p.b, p.root, p.ids, &r);
    assert_int_equal(p.b.pages[0], p.a.pages[0]);
    assert_int_equal(p.b.pages[1], p.a.pages[1]);
    assert_int_not_equal(p.b.pages[2], p.a.pages[2]);
    check_seq(&p.b);
    /* both go on without hurting each other */
    uint32_t x = 1, y = 2;
    grow(&p.a, &x, 1);
    grow(&p.b, &y, 1);
    check_seq(&p.a);
    check_seq(&p.b);
    teardown(&p);
}

static void cached_pages_outlive_their_sequence(void **state)
{
    struct pair p;
    setup(&p, false, 0);
    grow(&p.a, p.ids, 700);
    kv_seq_clear(&p.a, p.root);
    struct kv_reuse r = match(&p, 700);
    assert_int_equal(r.n, 512);
    kv_seq_reuse(&p.b, p.root, p.ids, &r);
    check_seq(&p.b);
    teardown(&p);
}

static void going_back_into_a_full_page_copies_it(void **state)
{
    struct pair p;
    setup(&p, false, 0);
    grow(&p.b, p.ids, 600);
    uint32_t old = p.b.pages[1];
    struct kv_reuse r = match(&p, 301);
    assert_int_equal(r.from, KV_OWN);
    assert_int_equal(kv_seq_reuse(&p.b, p.root, p.ids, &r), 300);
    assert_int_not_equal(p.b.pages[1], old);
    assert_true(kv_page_published(p.kv, old)); /* the old branch stays cached */
    uint32_t other = 77;
    grow(&p.b, &other, 1);
    check_seq(&p.b);
    teardown(&p);
}

static void tenants_never_share(void **state)
{
    struct pair p;
    uint8_t other[KV_NAME];
    setup(&p, false, 0);
    kv_root("somebody else", other);
    grow(&p.a, p.ids, 600);
    const struct kv_seq *others[] = {&p.a};
    struct kv_reuse r = kv_seq_match(&p.b, other, p.ids, 600, others, 1);
    assert_int_equal(r.n, 0);
    r = kv_seq_match(&p.a, other, p.ids, 600, others, 1);
    assert_int_equal(r.n, 0);
    teardown(&p);
}

static void hybrids_go_back_to_snapshots_only(void **state)
{
    struct pair p;
    setup(&p, true, 8);
    grow(&p.b, p.ids, 700);
    assert_int_equal(match(&p, 701).n, 700); /* the end of the sequence is a known state */
    assert_int_equal(match(&p, 700).n, 512);
    assert_int_equal(match(&p, 300).n, 256);
    assert_int_equal(match(&p, 256).n, 0);
    struct kv_reuse r = match(&p, 600);
    assert_int_equal(kv_seq_reuse(&p.b, p.root, p.ids, &r), 512);
    check_seq(&p.b);
    /* a page without a snapshot is of no use beyond the last one that has */
    kv_snap_drop(p.kv, p.b.pages[1]);
    grow(&p.b, p.ids + 512, 10);
    assert_int_equal(match(&p, 520).n, 256);
    teardown(&p);
}

/* A run over several pages leaves one snapshot, at the last border that it reaches. */
static void hybrids_leap_to_the_last_border(void **state)
{
    struct pair p;
    setup(&p, true, 8);
    assert_int_equal(kv_seq_cut(&p.b, 100), 100);
    assert_int_equal(kv_seq_cut(&p.b, 256), 256);
    assert_int_equal(kv_seq_cut(&p.b, 700), 512);
    assert_int_equal(kv_seq_cut(&p.b, 4096), KV_SNAP_PAGES * BE_PAGE);
    assert_int_equal(kv_seq_room(&p.b, 512), 512);
    compute(&p.b, p.ids, 512);
    kv_seq_advance(&p.b, p.ids, 512);
    assert_int_equal(kv_snap_of(p.kv, p.b.pages[0]), KV_NONE);
    assert_int_not_equal(kv_snap_of(p.kv, p.b.pages[1]), KV_NONE);
    assert_int_equal(kv_seq_cut(&p.b, 700), 512);
    assert_int_equal(kv_seq_cut(&p.b, 4096), (KV_SNAP_PAGES - 2) * BE_PAGE);
    grow(&p.b, p.ids + 512, 100);
    assert_int_equal(kv_seq_cut(&p.b, 200), 156);
    assert_int_equal(match(&p, 600).n, 512);
    assert_int_equal(match(&p, 500).n, 0);
    check_seq(&p.b);
    teardown(&p);
}

static void hybrids_share_across_sequences(void **state)
{
    struct pair p;
    setup(&p, true, 8);
    grow(&p.a, p.ids, 900);
    struct kv_reuse r = match(&p, 800);
    assert_int_equal(r.from, KV_PAGES);
    assert_int_equal(kv_seq_reuse(&p.b, p.root, p.ids, &r), 768);
    check_seq(&p.b);
    teardown(&p);
}

static void thinning_keeps_the_newest_and_the_prompt(void **state)
{
    struct pair p;
    setup(&p, true, 3);
    p.b.keep = 512;
    grow(&p.b, p.ids, CAP);
    uint32_t have = 0;
    for (uint32_t i = 0; i < p.b.n_pages; i++)
        have += kv_snap_of(p.kv, p.b.pages[i]) != KV_NONE;
    assert_int_equal(have, 3);
    assert_int_not_equal(kv_snap_of(p.kv, p.b.pages[1]), KV_NONE);
    assert_int_not_equal(kv_snap_of(p.kv, p.b.pages[5]), KV_NONE);
    teardown(&p);
}

static void a_held_snapshot_survives_thinning(void **state)
{
    struct pair p;
    setup(&p, true, 1);
    grow(&p.b, p.ids, 256);
    uint32_t snap = kv_snap_of(p.kv, p.b.pages[0]);
    float before[STATE];
    memcpy(before, kv_snap_data(p.kv, snap), sizeof before);
    kv_snap_ref(p.kv, snap);
    grow(&p.b, p.ids + 256, 512);
    assert_int_equal(kv_snap_of(p.kv, p.b.pages[0]), KV_NONE);
    assert_memory_equal(kv_snap_data(p.kv, snap), before, sizeof before);
    kv_snap_unref(p.kv, snap);
    teardown(&p);
}

static void poison_is_not_found_again(void **state)
{
    struct pair p;
    setup(&p, false, 0);
    grow(&p.a, p.ids, 300);
    struct kv_reuse r = match(&p, 300);
    kv_seq_reuse(&p.b, p.root, p.ids, &r);
    grow(&p.b, p.ids + p.b.n, 600 - p.b.n);
    kv_seq_poison(&p.b);
    assert_int_equal(p.b.n, 0);
    assert_int_equal(match(&p, 600).n, 300); /* what the other sequence holds stays */
    kv_seq_clear(&p.a, p.root);
    assert_int_equal(match(&p, 600).n, 256);
    teardown(&p);
}

static void an_import_becomes_a_sequence(void **state)
{
    struct pair p;
    setup(&p, true, 4);
    grow(&p.a, p.ids, 512);
    uint32_t pages[2], snap = kv_snap_alloc(p.kv);
    for (int i = 0; i < 2; i++) {
        pages[i] = kv_page_alloc(p.kv);
        memcpy(kv_page_data(p.kv, pages[i]), kv_page_data(p.kv, p.a.pages[i]), kv_page_bytes(p.kv));
    }
    memcpy(kv_snap_fill(p.kv, snap), p.a.state, STATE * sizeof(float));
    kv_seq_install(&p.b, p.root, p.ids, pages, 2, snap, NULL);
    assert_int_equal(p.b.n, 512);
    assert_int_equal(p.b.pages[0], p.a.pages[0]); /* equal pages are one */
    check_seq(&p.b);
    teardown(&p);
}

static void a_full_pool_says_so(void **state)
{
    struct kv *kv = make_kv(2, 0, false);
    struct kv_seq s;
    uint32_t ids[CAP];
    uint8_t root[KV_NAME];
    kv_root("t", root);
    fill_ids(ids, CAP, 1);
    assert_int_equal(kv_seq_init(&s, kv, NULL, 0, CAP, 0, NULL), 0);
    kv_seq_clear(&s, root);
    assert_int_equal(grow(&s, ids, 600), 512);
    assert_int_equal(kv_seq_room(&s, 1), 0);
    /* no page for a copy: going back stops at the border */
    struct kv_reuse r = kv_seq_match(&s, root, ids, 400, NULL, 0);
    assert_int_equal(r.n, 399);
    assert_int_equal(kv_seq_reuse(&s, root, ids, &r), 256);
    check_seq(&s);
    kv_seq_fini(&s);
    kv_free(kv);
}

static int group_setup(void **state)
{
    return be_pool_new(&pool, 1, NULL) == 0 ? be_new(&be, pool, -1, NULL) : -1;
}

static int group_teardown(void **state)
{
    be_free(be);
    be_pool_free(pool);
    return 0;
}

static void evictions_are_counted(void **state)
{
    struct kv *kv = make_kv(2, 0, false);
    struct kv_stats st;
    uint8_t name[KV_NAME] = {0};
    uint32_t page[2];
    for (uint32_t i = 0; i < 2; i++) {
        page[i] = kv_page_alloc(kv);
        name[0] = (uint8_t)(i + 1);
        assert_int_equal(kv_page_publish(kv, page[i], name), page[i]);
        kv_page_unref(kv, page[i]); /* cached from here on */
    }
    kv_stats(kv, &st);
    assert_int_equal(st.evicted, 0);
    page[0] = kv_page_alloc(kv); /* the older one makes room, the newer one stays */
    kv_stats(kv, &st);
    assert_int_equal(st.evicted, 1);
    assert_int_not_equal(kv_page_find(kv, name), KV_NONE);
    kv_page_unref(kv, page[0]);
    page[0] = kv_page_alloc(kv); /* a free page costs nobody anything */
    kv_stats(kv, &st);
    assert_int_equal(st.evicted, 1);
    kv_page_unref(kv, page[0]);
    kv_free(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_with_room),
        cmocka_unit_test(dense_under_pressure),
        cmocka_unit_test(hybrid_with_room),
        cmocka_unit_test(hybrid_under_pressure),
        cmocka_unit_test(windows),
        cmocka_unit_test(another_sequence_shares_pages_and_copies_the_rest),
        cmocka_unit_test(cached_pages_outlive_their_sequence),
        cmocka_unit_test(going_back_into_a_full_page_copies_it),
        cmocka_unit_test(tenants_never_share),
        cmocka_unit_test(hybrids_go_back_to_snapshots_only),
        cmocka_unit_test(hybrids_leap_to_the_last_border),
        cmocka_unit_test(hybrids_share_across_sequences),
        cmocka_unit_test(thinning_keeps_the_newest_and_the_prompt),
        cmocka_unit_test(a_held_snapshot_survives_thinning),
        cmocka_unit_test(poison_is_not_found_again),
        cmocka_unit_test(an_import_becomes_a_sequence),
        cmocka_unit_test(a_full_pool_says_so),
        cmocka_unit_test(evictions_are_counted),
    };
    return cmocka_run_group_tests_name("kv", tests, group_setup, group_teardown);
}
