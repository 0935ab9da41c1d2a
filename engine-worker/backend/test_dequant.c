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
    {GT_IQ2_XXS,
     0,
     -1,
     381.875,
     9,
     {{0, -29.5625f},
      {1, 29.5625f},
      {31, 17.1875f},
      {32, -26.5625f},
      {100, 13.5f},
      {127, 13.5f},
      {128, -48.4375f},
      {200, -4.5f},
      {255, -40.3125f}}},
    {GT_IQ2_XS,
     0,
     -1,
     745.25,
     9,
     {{0, -5.5f},
      {1, 17.1875f},
      {31, -9.5f},
      {32, -10.5f},
      {100, -4.5f},
      {127, -0.5f},
      {128, -9.5f},
      {200, 3.5f},
      {255, -9.5f}}},
    {GT_IQ2_S,
     0,
     -1,
     -400.3125,
     9,
     {{0, -72.5625f},
      {1, 42.1875f},
      {31, 35.9375f},
      {32, -2.5f},
      {100, -12.5f},
      {127, 2.5f},
      {128, -4.6875f},
      {200, 35.9375f},
      {255, 39.0625f}}},
    {GT_IQ3_XXS,
     0,
     -1,
     -342.0,
     9,
     {{0, -6.5f},
      {1, 4.5f},
      {31, -1.5f},
      {32, -28.5f},
      {100, -12.5f},
      {127, -137.5f},
      {128, -27.5f},
      {200, 22.5f},
      {255, -7.5f}}},
    {GT_IQ3_S,
     0,
     -1,
     728.0,
     9,
     {{0, -40.5f},
      {1, 121.5f},
      {31, 94.5f},
      {32, -16.5f},
      {100, -8.5f},
      {127, -42.5f},
      {128, -52.5f},
      {200, 137.5f},
      {255, 112.5f}}},
    {GT_IQ1_S,
     0,
     -1,
     10.0,
     9,
     {{0, -1.3125f},
      {1, 0.1875f},
      {31, 1.6875f},
      {32, 0.8125f},
      {100, 6.5625f},
      {127, -0.9375f},
      {128, -3.9375f},
      {200, -0.6875f},
      {255, -2.1875f}}},
    {GT_IQ1_M,
     -1,
     -1,
     -2479680.0,
     9,
     {{0, 52920},
      {1, -370440.0f},
      {31, 113400.0f},
      {32, 370440.0f},
      {100, 204120.0f},
      {127, 748440.0f},
      {128, -113400.0f},
      {200, -22680},
      {255, 113400.0f}}},
    {GT_TQ1_0,
     52,
     -1,
     -1.0,
     9,
     {{0, -0.5f},
      {1, -0.5f},
      {31, 0},
      {32, -0.5f},
      {100, 0.5f},
      {127, -0.5f},
      {128, 0},
      {200, 0},
      {255, -0.5f}}},
    {GT_TQ2_0,
     64,
     -1,
     64.5,
     9,
     {{0, 1},
      {1, -0.5f},
      {31, 0.5f},
      {32, 0.5f},
      {100, 0.5f},
      {127, 0.5f},
      {128, 1},
      {200, 0},
      {255, -0.5f}}},
    {GT_NVFP4,
     -1,
     -1,
     1541.37109375,
     5,
     {{0, -0.12890625f}, {1, 0.04296875f}, {31, -1}, {32, -78}, {63, 160}}},
    {GT_Q1_0, 0, -1, 0.0, 5, {{0, 0.5f}, {1, -0.5f}, {31, 0.5f}, {32, 0.5f}, {127, 0.5f}}},
    {GT_Q2_0, 0, -1, 15.0, 5, {{0, 0}, {1, 0}, {31, 0}, {32, 0}, {63, 0.5f}}},
};

static void published_blocks(void **state)
{
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0]; k++) {
        const struct vector *v = &vectors[k];
        int64_t n, bytes;
        uint8_t b[292];
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

/* FNV-1a of the values of 64 blocks made of a known sequence, as another reader of the format (the Python package gguf, and plain
 * numpy for the types it lacks) gives them bit by bit; a zero counts as positive. */
struct golden {
    uint32_t type;
    uint64_t hash;
};

static const struct golden golden[] = {
    {GT_Q4_0, 0x068d2811f029975au},    {GT_Q4_1, 0x62a9464ada502c1cu},   {GT_Q5_0, 0x0364e24176788f0au},
    {GT_Q5_1, 0x3e8cba38a0427de5u},    {GT_Q8_0, 0x7211d21c71fb1d86u},   {GT_Q8_1, 0x0b4eba7ccb93afcdu},
    {GT_Q2_K, 0x00cbce57b64b69adu},    {GT_Q3_K, 0x9909cc22313825a7u},   {GT_Q4_K, 0x1f6de102596c4523u},
    {GT_Q5_K, 0xd63639bc97640bdbu},    {GT_Q6_K, 0x7531c3e2b48a0c88u},   {GT_Q8_K, 0x95486a0bafb8f96bu},
    {GT_IQ2_XXS, 0xa9dcccb80071496fu}, {GT_IQ2_XS, 0xcc79a83a648d7c27u}, {GT_IQ3_XXS, 0x62ebe8c5aaf92dbau},
    {GT_IQ1_S, 0x0df0d64923c82f52u},   {GT_IQ4_NL, 0x0e4ba47c496ea01eu}, {GT_IQ3_S, 0xc40ea14d1b923bbcu},
    {GT_IQ2_S, 0xdd3748ca264a1d22u},   {GT_IQ4_XS, 0x4cc33813438dd8c7u}, {GT_IQ1_M, 0x3dd39f840738b531u},
    {GT_TQ1_0, 0x355daf669d3b1bc9u},   {GT_TQ2_0, 0xef2fccc70d366fa9u},  {GT_MXFP4, 0xf29b8a1a9377bb2fu},
    {GT_NVFP4, 0xc4e515e18483f2e3u},   {GT_Q1_0, 0xef7658a694b11d25u},   {GT_Q2_0, 0x5d02f2350462b6bcu},
};

static uint8_t next_byte(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(*s >> 56);
}

static void golden_half(uint8_t *b, uint64_t *s)
{
    unsigned lo = next_byte(s), r = lo | (unsigned)next_byte(s) << 8, h = 0x2c00 | (r & 0x83ff);
    b[0] = (uint8_t)h;
    b[1] = (uint8_t)(h >> 8);
}

static void golden_block(uint32_t type, uint8_t *b, int64_t bytes, uint64_t *s)
{
    int d_at, m_at;
    for (int64_t i = 0; i < bytes; i++)
        b[i] = next_byte(s);
    scales_at(type, &d_at, &m_at);
    if (d_at >= 0)
        golden_half(b + d_at, s);
    if (m_at >= 0)
        golden_half(b + m_at, s);
    if (type == GT_Q8_K)
        b[3] = 0x3c;
    if (type == GT_IQ1_M)
        b[55] = (uint8_t)((b[55] & 15) | 0x20);
    if (type == GT_MXFP4)
        b[0] = (uint8_t)(b[0] % 255);
}

static void blocks_of_another_reader(void **state)
{
    for (size_t k = 0; k < sizeof golden / sizeof golden[0]; k++) {
        uint32_t type = golden[k].type;
        uint64_t s = type, h = 0xcbf29ce484222325u;
        int64_t n, bytes;
        assert_true(ggml_block(type, &n, &bytes));
        for (int i = 0; i < 64; i++) {
            uint8_t b[292];
            float y[256];
            golden_block(type, b, bytes, &s);
            be_dequant(type, b, y, n);
            for (int64_t j = 0; j < n; j++) {
                uint32_t u;
                float v = y[j] + 0.0f;
                memcpy(&u, &v, 4);
                for (int c = 0; c < 4; c++)
                    h = (h ^ (u >> (8 * c) & 255)) * 0x100000001b3u;
            }
        }
        if (h != golden[k].hash)
            fail_msg("%s: the values of 64 blocks differ", ggml_type_name(type));
    }
}

/* Every number of the format: computable as weights, known but of no use as weights, or not in use. */
static void every_type_of_the_format(void **state)
{
    int computable = 0;
    for (uint32_t type = 0; type < 100; type++) {
        int64_t n, bytes;
        bool known = ggml_block(type, &n, &bytes);
        bool number = type >= GT_I8 && type <= GT_F64;
        assert_int_equal(be_type_ok(type), known && !number);
        computable += be_type_ok(type);
    }
    assert_int_equal(computable, 30);
    for (size_t k = 0; k < sizeof golden / sizeof golden[0]; k++)
        assert_true(be_type_ok(golden[k].type));
    assert_int_equal(sizeof golden / sizeof golden[0], computable - 3); /* F32, F16 and BF16 have no blocks */
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
        cmocka_unit_test(blocks_of_another_reader),
        cmocka_unit_test(every_type_of_the_format),
        cmocka_unit_test(mxfp4_scales),
        cmocka_unit_test(halves),
        cmocka_unit_test(unknown_types),
    };
    rng_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
