/* One bit flipped, anywhere in the file: it is detected, or it does no harm. Never does a restore give other bytes or other
 * items than were saved, and the store goes on, if need be with a fresh file. */
#include "fixture.h"
#include "schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANDOM_FLIPS   400
#define METADATA_SEEDS 3
#define ATTEMPTS       3 /* as promised in store.h */

struct tally {
    unsigned whole, shorter, gone,
        moved;         /* restored in full, cut, not found or refused, database moved aside */
    unsigned attempts; /* most that a save needed */
};

struct disk { /* the intact database that every flip starts from */
    struct fix f;
    struct talk t[2]; /* twenty blocks, plain; five blocks, hybrid */
    uint8_t *db;
    size_t len;
};

static void make(struct disk *d, bool clean, uint64_t seed)
{
    struct vt_err err;
    fix_init(&d->f, true);
    d->f.seed = seed;
    if (fix_open(&d->f, &err) < 0)
        fail_msg("%s", err.text);
    d->t[0] = talk_of(1, 64 * 20 + 9);
    d->t[1] = talk_of(2, 64 * 5);
    d->t[1].slot = 1;
    d->t[1].tenant = "other";
    d->t[1].rec_bytes = 30000;
    d->t[1].rec_every = 2;
    d->t[1].fp[0] = 9;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fix_save(&d->f, &d->t[i], NULL, NULL, NULL), 0);
    struct talk named = d->t[0];
    named.name = "file";
    assert_int_equal(fix_save(&d->f, &named, NULL, NULL, NULL), 0);
    fix_close(&d->f, clean);
    d->db = sim_file(d->f.sim, "store.db", &d->len);
}

/* Opens, anew if SQLite found damage. */
static void reopen(struct fix *f)
{
    struct vt_err err;
    bool damaged = f->s != NULL && store_damaged(f->s);
    fix_close(f, false);
    f->o.condemned = damaged;
    if (fix_open(f, &err) < 0)
        fail_msg("open: %s", err.text);
    f->o.condemned = false;
}

static void restore_one(struct fix *f, const struct talk *t, size_t byte, int bit, struct tally *n)
{
    uint32_t kv;
    bool poisoned;
    struct vt_err err = {0};
    int64_t got = fix_restore(f, t, &kv, &poisoned, &err);
    if (poisoned)
        fail_msg("byte %zu bit %d: a restore was poisoned", byte, bit);
    if (got >= 0 && got != t->n_items)
        fail_msg("byte %zu bit %d: %lld items restored", byte, bit, (long long)got);
    if (got < 0)
        n->gone++;
    else if (kv < t->n_items / 64 * 64)
        n->shorter++;
    else
        n->whole++;
}

static void flip(const struct disk *d, size_t byte, int bit, struct tally *n)
{
    struct fix f = d->f;
    size_t len;
    struct vt_err err;
    f.s = NULL;
    f.sim = sim_clone(d->f.sim, "flipped");
    f.o.base = sim_vfs(f.sim);
    f.o.die_arg = f.o.event_arg = f.o.avail_arg = f.o.random_arg = &f;
    memset(f.events, 0, sizeof f.events);
    sim_file(f.sim, "store.db", &len)[byte] ^= (uint8_t)(1 << bit);
    reopen(&f);
    for (int i = 0; i < 2; i++)
        restore_one(&f, &d->t[i], byte, bit, n);
    if (store_damaged(f.s))
        reopen(&f);
    while (store_quarantine(f.s, &err) == 1)
        ;
    /* Whatever it was, saving goes on, at the latest with a fresh file. */
    struct talk more = d->t[0];
    more.n_items = 64 * 22;
    more.reason = CKPT_RESET;
    int saved = -1;
    for (unsigned attempt = 0; saved < 0 && attempt < ATTEMPTS; attempt++) {
        saved = fix_save(&f, &more, NULL, NULL, &err);
        if (attempt + 1u > n->attempts)
            n->attempts = attempt + 1u;
        if (saved < 0 && store_damaged(f.s))
            reopen(&f);
        while (saved < 0 && store_quarantine(f.s, &err) == 1)
            ;
    }
    if (saved < 0)
        fail_msg("byte %zu bit %d: no save works any more: %s", byte, bit, err.text);
    restore_one(&f, &more, byte, bit, n);
    n->moved += f.events[STORE_EV_REBUILT] > 0;
    fix_close(&f, true);
    sim_free(f.sim);
}

static void report(const char *what, const struct tally *n, unsigned flips)
{
    print_message(
        "%s: %u flips; of the restores %u whole, %u cut short, %u refused; %u databases moved aside, "
        "at most %u attempts to save\n",
        what, flips, n->whole, n->shorter, n->gone, n->moved, n->attempts);
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void anywhere(bool clean, const char *what)
{
    struct disk d;
    struct tally n = {0};
    uint64_t x = 88172645463325252u;
    make(&d, clean, 1);
    for (int i = 0; i < RANDOM_FLIPS; i++) {
        size_t byte = next(&x) % d.len;
        flip(&d, byte, (int)(next(&x) % 8), &n);
    }
    report(what, &n, RANDOM_FLIPS);
    fix_fini(&d.f);
}

static void random_bits(void **state)
{
    anywhere(true, "random bits after a clean stop");
}

static void random_bits_unclean(void **state)
{
    anywhere(false, "random bits after an unclean stop");
}

/* Metadata pages are few among payload pages, so they get their own share. */
static void metadata_of(uint64_t seed, struct tally *all)
{
    struct disk d;
    struct tally n = {0};
    uint64_t x = 424242 + seed;
    unsigned flips = 0;
    make(&d, true, seed);
    for (size_t page = 0; page < 26 && page * STORE_PAGE_SIZE < d.len; page++)
        for (int i = 0; i < 24; i++, flips++) {
            /* Half in the header and the cell pointers, half in the cells at the end of the page. */
            size_t off = i % 2 == 0 ? next(&x) % 200 : STORE_PAGE_SIZE - 1 - next(&x) % 2000;
            flip(&d, page * STORE_PAGE_SIZE + off, (int)(next(&x) % 8), &n);
        }
    report("metadata pages", &n, flips);
    if (n.attempts > all->attempts)
        all->attempts = n.attempts;
    fix_fini(&d.f);
}

/* Other salts give other names, and so other trees and other places to hit. VITRIOL_SEED begins elsewhere. */
static void metadata_bits(void **state)
{
    const char *from = getenv("VITRIOL_SEED");
    uint64_t seed = from != NULL ? strtoull(from, NULL, 10) : 1;
    struct tally all = {0};
    for (int i = 0; i < METADATA_SEEDS; i++)
        metadata_of(seed + (uint64_t)i, &all);
    assert_true(all.attempts > 1); /* else the flips met nothing that a save looks at */
}

static void database_header(void **state)
{
    struct disk d;
    struct tally n = {0};
    make(&d, true, 1);
    for (size_t byte = 0; byte < 100; byte++)
        flip(&d, byte, (int)(byte * 5 % 8), &n);
    report("database header", &n, 100);
    fix_fini(&d.f);
}

/* Every block of the twenty, in its bytes and in its row of the checksum table: the restore ends before it, exactly. */
static void every_block(void **state)
{
    struct disk d;
    struct tally n = {0};
    unsigned flips = 0;
    make(&d, true, 1);
    uint8_t names[32 * 20];
    struct vt_err err;
    assert_int_equal(fix_open(&d.f, &err), 0);
    talk_names(&d.f, &d.t[0], names);
    fix_close(&d.f, true);
    d.db = sim_file(d.f.sim, "store.db", &d.len);
    for (uint32_t i = 0; i < 20; i++) {
        uint8_t bytes[65536], sum[16];
        talk_fill(names + 32 * i, 0, bytes, sizeof bytes);
        vt_xxh128(bytes, sizeof bytes, sum);
        const uint8_t *at[] = {memmem(d.db, d.len, bytes + 20000, 64), memmem(d.db, d.len, sum, 16),
                               memmem(d.db, d.len, names + 32 * i, 32)};
        for (size_t k = 0; k < 3; k++, flips++) {
            assert_non_null(at[k]);
            struct tally one = {0};
            flip(&d, (size_t)(at[k] - d.db) + 5, 3, &one);
            n.whole += one.whole;
            n.shorter += one.shorter;
            n.gone += one.gone;
            n.moved += one.moved;
            if (k < 2)
                assert_int_equal(one.shorter, 1);
        }
    }
    report("every block: bytes, checksum, name", &n, flips);
    fix_fini(&d.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block),         cmocka_unit_test(random_bits),
        cmocka_unit_test(random_bits_unclean), cmocka_unit_test(metadata_bits),
        cmocka_unit_test(database_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
