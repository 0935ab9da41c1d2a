#include "test_util.h"

/* Blocks of byte i = 37 i + 11 with scale 0.5 and minimum 0.25; expected values are the format's published examples. */
struct vector {
    uint32_t type;
    int d_at, m_at; /* -1: none */
    double sum;
    int n;
    struct {
        int at;
        float y;
    } v[9];
};

static const struct vector vectors[] = {
    {GT_Q4_0, 0, -1, -10.5, 5, {{0, -1.5f}, {1, 1}, {16, -1.5f}, {17, -0.5f}, {31, 0}}},
    {GT_Q4_1, 0, 2, 130.5, 5, {{0, 7.75f}, {1, 2.25f}, {16, 4.75f}, {17, 6.25f}, {31, 6.25f}}},
    {GT_Q5_0, 0, -1, 7.5, 5, {{0, 4.5f}, {1, -1}, {16, 7}, {17, 0}, {31, 0.5f}}},
    {GT_Q5_1, 0, 2, 260.5, 5, {{0, 9.75f}, {1, 12.25f}, {16, 9.75f}, {17, 2.75f}, {31, 2.75f}}},
    {GT_Q8_0, 0, -1, -88, 5, {{0, 42.5f}, {1, 61}, {16, -45.5f}, {17, -27}, {31, -24}}},
    {GT_IQ4_NL, 0, -1, -128.5, 5, {{0, -17.5f}, {1, 12.5f}, {16, -17.5f}, {17, -5}, {31, 0.5f}}},
    {GT_MXFP4, -1, -1, 12.5, 5, {{0, 0}, {1, 3}, {16, 1.5f}, {17, 3}, {31, 3}}},
    {GT_Q2_K,
     80,
     82,
     1029.5,
     9,
     {{0, 16.5f},
      {1, 0},
      {31, -0.75f},
      {32, 3.75f},
      {100, 10},
      {127, 21},
      {128, 3.75f},
      {200, 4},
      {255, 2.25f}}},
    {GT_Q3_K,
     108,
     -1,
     479,
     9,
     {{0, 40.5f}, {1, -54}, {31, 32}, {32, -11}, {100, 0}, {127, 36}, {128, 1}, {200, 12.5f}, {255, 21}}},
    {GT_Q4_K,
     0,
     2,
     27220,
     9,
     {{0, 157.75f},
      {1, -12.75f},
      {31, 80.25f},
      {32, 4},
      {100, 47.5f},
      {127, 40.5f},
      {128, 211.5f},
      {200, 69.25f},
      {255, 24.25f}}},
    {GT_Q5_K,
     0,
     2,
     58108,
     9,
     {{0, 405.75f},
      {1, -12.75f},
      {31, 80.25f},
      {32, 56},
      {100, 117.5f},
      {127, -1.5f},
      {128, 523.5f},
      {200, 69.25f},
      {255, 54.25f}}},
    {GT_Q6_K,
     208,
     -1,
     2306,
     9,
     {{0, -715.5f},
      {1, 848},
      {31, -48},
      {32, 115.5f},
      {100, 1261.5f},
      {127, 750},
      {128, -175.5f},
      {200, 544.5f},
      {255, -30}}},
    {GT_IQ4_XS,
     0,
     -1,
     -5502.5,
     9,
     {{0, 32.5f},
      {1, -0.5f},
      {31, 17.5f},
      {32, 227.5f},
      {100, 20},
      {127, 98},
      {128, -292.5f},
      {200, 570},
      {255, -8}}},
};

static void published_blocks(void **state)
{
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0]; k++) {
        const struct vector *v = &vectors[k];
        int64_t n, bytes;
        uint8_t b[256];
        float y[256];
        double sum = 0;
        assert_true(ggml_block(v->type, &n, &bytes));
        for (int i = 0; i < bytes; i++)
            b[i] = (uint8_t)(37 * i + 11);
        if (v->d_at >= 0)
            put_f16(b + v->d_at, 0.5f);
        if (v->m_at >= 0)
            put_f16(b + v->m_at, 0.25f);
        if (v->type == GT_MXFP4)
            b[0] = 127;
        be_dequant(v->type, b, y, n);
        for (int i = 0; i < v->n; i++)
            if (y[v->v[i].at] != v->v[i].y)
                fail_msg("%s: y[%d] is %g instead of %g", ggml_type_name(v->type), v->v[i].at,
                         (double)y[v->v[i].at], (double)v->v[i].y);
        for (int i = 0; i < n; i++)
            sum += y[i];
        if (sum != v->sum)
            fail_msg("%s: the sum is %g instead of %g", ggml_type_name(v->type), sum, v->sum);
    }
}

static void mxfp4_scales(void **state)
{
    uint8_t b[17] = {0};
    float y[32];
    b[1] = 0x02; /* 1.0 and 0 */
    for (int e = 0; e < 255; e++) {
        b[0] = (uint8_t)e;
        be_dequant(GT_MXFP4, b, y, 32);
        assert_true((double)y[0] == ldexp(1.0, e - 127));
    }
    b[0] = 255;
    be_dequant(GT_MXFP4, b, y, 32);
    assert_true(isnan(y[0]));
}

/* Every half is its own nearest half; between two neighbours the nearer wins and a tie goes to the even code. */
static void halves(void **state)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = be_f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f) && isnan(be_f16_to_f32(be_f32_to_f16(f))));
            continue;
        }
        assert_int_equal(be_f32_to_f16(f), h);
        if ((h & 0x7fff) >= 0x7bff)
            continue;
        float g = be_f16_to_f32((uint16_t)(h + 1)), mid = (f + g) / 2;
        assert_int_equal(be_f32_to_f16(mid), h & 1 ? h + 1 : h);
        assert_int_equal(be_f32_to_f16(nextafterf(mid, f)), h);
        assert_int_equal(be_f32_to_f16(nextafterf(mid, g)), h + 1);
    }
    assert_int_equal(be_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(be_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(be_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(be_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(be_f32_to_f16(1e-30f), 0);
    assert_true(be_f16_to_f32(0x3c00) == 1.0f && be_f16_to_f32(0x0001) == 0x1p-24f);
}

static void unknown_types(void **state)
{
    assert_false(be_type_ok(4));
    assert_false(be_type_ok(24));
    assert_false(be_type_ok(9999));
    assert_true(be_type_ok(GT_BF16));
    assert_int_equal(ggml_row_bytes(GT_Q4_K, 255), 0);
    assert_int_equal(ggml_row_bytes(GT_Q4_K, 512), 288);
    assert_int_equal(ggml_row_bytes(9999, 256), 0);
    assert_string_equal(ggml_type_name(5), "unknown type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_blocks),
        cmocka_unit_test(mxfp4_scales),
        cmocka_unit_test(halves),
        cmocka_unit_test(unknown_types),
    };
    rng_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
