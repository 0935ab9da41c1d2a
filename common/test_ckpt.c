/* The names are a format: blocks written by one build are found by the next. Expected values were computed
 * with an independent program (Python's hashlib) from the formulas in ckpt.h. */
#include "ckpt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void hex_is(const uint8_t name[32], const char *want)
{
    char got[65];
    vt_hex(name, 32, got);
    assert_string_equal(got, want);
}

static void fill(uint8_t fp[32], uint8_t salt[32], uint32_t *items, uint32_t n)
{
    for (int i = 0; i < 32; i++) {
        fp[i] = (uint8_t)i;
        salt[i] = (uint8_t)(255 - i);
    }
    for (uint32_t i = 0; i < n; i++)
        items[i] = i * 2654435761u;
}

static void golden(void **state)
{
    uint8_t fp[32], salt[32], h[32], r[32], seal[32];
    uint32_t items[600];
    fill(fp, salt, items, 600);
    ckpt_h0(fp, salt, h);
    hex_is(h, "246da6489c845ecb7da8c3f831104fce29c1d16e68d433eef9b9da52d3ffe2d5");
    ckpt_next(h, items, 256, h);
    hex_is(h, "aea3c0cfda1b486687bca96472c8e9881d10f5e001a7613d6b17a04abe9c425c");
    ckpt_next(h, items + 256, 256, h);
    hex_is(h, "0602190d06ec9d49b43ad589d1b1624f443db99b2537d30b99afe4dd34f1e51a");
    ckpt_rec(h, 512, r);
    hex_is(r, "931128766d02b04bb56a2378978f0c0f73d8eb155f0171bf1e4906dc069b5592");
    struct ckpt_seal s = {.layout_fp = fp,
                          .tenant = "alpha",
                          .slot = 3,
                          .private_salt = NULL,
                          .sampler = "xyz",
                          .sampler_len = 3,
                          .items = items,
                          .n_items = 600};
    ckpt_seal(&s, seal);
    hex_is(seal, "7d286d9edb9eedf03d1a0823561d2c97aaf4bd66352d4877868cd68af66b6f68");
    s.private_salt = salt;
    s.sampler = NULL;
    s.sampler_len = 0;
    ckpt_seal(&s, seal);
    hex_is(seal, "5e8e4822eeb61ccc0e4a1c1c950ebb2981df0f2a4e7a993ad246cea42cb455d3");
}

/* One bit anywhere gives another name, in this block and in every later one. */
static void every_input_counts(void **state)
{
    uint8_t fp[32], salt[32], a[32], b[32];
    uint32_t items[64];
    fill(fp, salt, items, 64);
    ckpt_h0(fp, salt, a);
    for (int bit = 0; bit < 256; bit++) {
        fp[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ckpt_h0(fp, salt, b);
        assert_memory_not_equal(a, b, 32);
        fp[bit / 8] ^= (uint8_t)(1 << bit % 8);
        salt[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ckpt_h0(fp, salt, b);
        assert_memory_not_equal(a, b, 32);
        salt[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    uint8_t h[32], x[32];
    ckpt_next(a, items, 64, h);
    for (int i = 0; i < 64; i++) {
        items[i] ^= 1u << (i % 32);
        ckpt_next(a, items, 64, x);
        assert_memory_not_equal(h, x, 32);
        items[i] ^= 1u << (i % 32);
    }
    ckpt_next(a, items, 63, x);
    assert_memory_not_equal(h, x, 32);
}

static void pieces(void **state)
{
    assert_int_equal(ckpt_pieces(1), 1);
    assert_int_equal(ckpt_pieces(CKPT_PIECE), 1);
    assert_int_equal(ckpt_pieces(CKPT_PIECE + 1), 2);
    assert_int_equal(ckpt_piece_len(CKPT_PIECE + 1, 0), CKPT_PIECE);
    assert_int_equal(ckpt_piece_len(CKPT_PIECE + 1, 1), 1);
    assert_int_equal(ckpt_piece_len(2 * CKPT_PIECE, 1), CKPT_PIECE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(every_input_counts),
        cmocka_unit_test(pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
