#include "internal.h"
#include "test_util.h"

#include <cpuid.h>

static const uint32_t all_types[] = {
    GT_F32,   GT_F16,   GT_BF16,   GT_Q4_0,   GT_Q4_1,  GT_Q5_0,    GT_Q5_1,   GT_Q8_0,  GT_Q8_1,    GT_Q2_K,
    GT_Q3_K,  GT_Q4_K,  GT_Q5_K,   GT_Q6_K,   GT_Q8_K,  GT_IQ2_XXS, GT_IQ2_XS, GT_IQ2_S, GT_IQ3_XXS, GT_IQ3_S,
    GT_IQ1_S, GT_IQ1_M, GT_IQ4_NL, GT_IQ4_XS, GT_TQ1_0, GT_TQ2_0,   GT_MXFP4,  GT_NVFP4, GT_Q1_0,    GT_Q2_0};

/* Types whose activations are rounded to 8 bits, and over how many values. */
static int64_t act_block(uint32_t type)
{
    int64_t block, bytes;
    ggml_block(type, &block, &bytes);
    return block == 1 ? 0 : block == 256 ? 256 : 32;
}

static int64_t block_of(uint32_t type)
{
    int64_t n, bytes;
    assert_true(ggml_block(type, &n, &bytes));
    return n;
}

/* y must equal the double product of the exact weights up to: half a step of the 8-bit activations times the sum of the
 * weights' magnitudes in each block, and 4e-6 of the sum of magnitudes for float rounding. */
static void check_row(uint32_t type, const float *w, const float *x, int64_t n, float y, const char *what)
{
    double sum = 0, mag = 0, bound = 0;
    int64_t block = act_block(type);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)w[i] * x[i];
        mag += fabs((double)w[i] * x[i]);
    }
    for (int64_t i = 0; block > 0 && i < n; i += block) {
        double amax = 0, weights = 0;
        for (int64_t j = i; j < i + block; j++) {
            amax = fmax(amax, fabs(x[j]));
            weights += fabs(w[j]);
        }
        bound += 0.5001 * amax / 127 * weights;
    }
    /* Types with a minimum subtract two sums that may each be larger than the result. */
    int d_at, m_at;
    scales_at(type, &d_at, &m_at);
    bound += (m_at >= 0 ? 4e-5 : 4e-6) * mag + 1e-20;
    if (!(fabs(y - sum) <= bound))
        fail_msg("%s %s: %g instead of %g, bound %g", ggml_type_name(type), what, (double)y, sum, bound);
}

static void check_against_double(int simd, uint32_t type, int64_t n_in, int64_t n_out, int64_t T)
{
    struct be_weight w;
    struct rig r = rig_new(simd, 1);
    uint8_t *data = rng_weight(&w, type, n_in, n_out);
    float *x = rng_floats(T * n_in, 2.0f), *row = malloc((size_t)n_in * sizeof *row);
    struct guard gx = guard_new(x, (size_t)(T * n_in) * sizeof *x),
                 gy = guard_new(NULL, (size_t)(T * n_out) * sizeof *x),
                 gw = guard_new(data, (size_t)n_out * ggml_row_bytes(type, (uint64_t)n_in));
    const float *y = gy.p;
    w.data = gw.p;
    be_matmul(r.b, gy.p, &w, gx.p, T);
    for (int64_t o = 0; o < n_out; o++) {
        be_get_row(r.b, row, &w, o);
        for (int64_t t = 0; t < T; t++)
            check_row(type, row, x + t * n_in, n_in, y[t * n_out + o], be_simd_name((enum be_simd)simd));
    }
    free(data);
    free(x);
    free(row);
    guard_free(&gx);
    guard_free(&gy);
    guard_free(&gw);
    rig_free(&r);
}

static void every_type_against_double(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        for (size_t k = 0; k < sizeof all_types / sizeof all_types[0]; k++) {
            int64_t block = block_of(all_types[k]), step = block < 32 ? 1 : block;
            for (int i = 0; i < 6; i++) {
                int64_t n_in = step * (1 + rng_below(block < 32 ? 700 : block < 256 ? 40 : 6));
                check_against_double(simd, all_types[k], n_in, 1 + rng_below(40), 1 + rng_below(12));
            }
        }
    }
}

/* The law: a row alone, in any batch and on any number of threads gives the same bits. */
static void check_invariance(int simd, uint32_t type, int64_t n_in, int64_t n_out, int64_t T)
{
    struct be_weight w;
    struct rig one = rig_new(simd, 1), two = rig_new(simd, 3);
    uint8_t *data = rng_weight(&w, type, n_in, n_out);
    float *x = rng_floats(T * n_in, 1.0f);
    size_t size = (size_t)(T * n_out) * sizeof(float);
    float *y = malloc(size), *z = malloc(size);
    be_matmul(one.b, y, &w, x, T);
    be_matmul(two.b, z, &w, x, T);
    if (memcmp(y, z, size) != 0)
        fail_msg("%s %s: threads change the result", be_simd_name((enum be_simd)simd), ggml_type_name(type));
    for (int64_t t = 0; t < T;) {
        int64_t n = t % 3 == 0 ? 1 : 1 + rng_below(T - t);
        be_matmul(one.b, z + t * n_out, &w, x + t * n_in, n);
        t += n;
    }
    for (int64_t i = 0; i < T * n_out; i++)
        if (memcmp(&y[i], &z[i], 4) != 0)
            fail_msg(
                "%s %s: n_in %lld n_out %lld T %lld: token %lld row %lld is %.9g alone and %.9g in the batch",
                be_simd_name((enum be_simd)simd), ggml_type_name(type), (long long)n_in, (long long)n_out,
                (long long)T, (long long)(i / n_out), (long long)(i % n_out), (double)z[i], (double)y[i]);
    free(data);
    free(x);
    free(y);
    free(z);
    rig_free(&one);
    rig_free(&two);
}

static void batches_and_threads_change_no_bit(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        for (size_t k = 0; k < sizeof all_types / sizeof all_types[0]; k++) {
            int64_t block = block_of(all_types[k]), step = block < 32 ? 1 : block;
            for (int i = 0; i < 3; i++) {
                int64_t n_in = step * (1 + rng_below(block < 32 ? 1500 : block < 256 ? 70 : 10));
                check_invariance(simd, all_types[k], n_in, 1 + rng_below(90), 1 + rng_below(70));
            }
        }
    }
}

static void check_agreement(int simd, uint32_t type, int64_t n_in, int64_t n_out, int64_t T)
{
    struct be_weight w;
    struct rig ref = rig_new(BE_REF, 1), vec = rig_new(simd, 1);
    uint8_t *data = rng_weight(&w, type, n_in, n_out);
    float *x = rng_floats(T * n_in, 1.0f);
    float *y = malloc((size_t)(T * n_out) * 4), *z = malloc((size_t)(T * n_out) * 4);
    be_matmul(ref.b, y, &w, x, T);
    be_matmul(vec.b, z, &w, x, T);
    for (int64_t i = 0; i < T * n_out; i++)
        if (memcmp(&y[i], &z[i], 4) != 0)
            fail_msg("%s %s: n_in %lld n_out %lld T %lld: %.9g instead of %.9g",
                     be_simd_name((enum be_simd)simd), ggml_type_name(type), (long long)n_in,
                     (long long)n_out, (long long)T, (double)z[i], (double)y[i]);
    free(data);
    free(x);
    free(y);
    free(z);
    rig_free(&ref);
    rig_free(&vec);
}

/* Quantized types: every instruction set gives the very bits of the plain C. */
static void instruction_sets_agree(void **state)
{
    static const int64_t rows[] = {1, 7, 8, 9, 17};
    for (int simd = 1; simd <= (int)be_simd_best(); simd++) {
        for (size_t k = 0; k < sizeof all_types / sizeof all_types[0]; k++) {
            uint32_t type = all_types[k];
            int64_t block = block_of(type);
            if (act_block(type) == 0)
                continue;
            check_agreement(simd, type, block * (1 + rng_below(block == 32 ? 20 : 8)), 1 + rng_below(50),
                            1 + rng_below(20));
            for (int64_t T = 1; T <= 5; T++) /* a few tokens have kernels of their own */
                check_agreement(simd, type, block * T, rows[T - 1], T);
        }
    }
}

/* Codes at the ends of their ranges: what would overflow a 16-bit sum does so here. */
static void extreme_codes(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        for (size_t k = 0; k < sizeof all_types / sizeof all_types[0]; k++) {
            uint32_t type = all_types[k];
            int64_t block, bytes, n_in = 512, n_out = 17, T = 9;
            if (act_block(type) == 0)
                continue;
            struct be_weight w;
            struct rig ref = rig_new(BE_REF, 1), vec = rig_new(simd, 1);
            uint8_t *data = rng_weight(&w, type, n_in, n_out);
            ggml_block(type, &block, &bytes);
            for (int64_t i = 0; i < n_in / block * n_out; i++) {
                memset(data + i * bytes, i % 3 == 0 ? 0xff : i % 3 == 1 ? 0x80 : 0x7f, (size_t)bytes);
                put_scales(type, data + i * bytes, 0.5f, 0.25f);
            }
            float *x = malloc((size_t)(T * n_in) * 4), y[17 * 9], z[17 * 9];
            for (int64_t i = 0; i < T * n_in; i++)
                x[i] = i / n_in % 3 == 0 ? 1.0f : i / n_in % 3 == 1 ? -1.0f : rng() & 1 ? 1.0f : -1.0f;
            be_matmul(ref.b, y, &w, x, T);
            be_matmul(vec.b, z, &w, x, T);
            assert_memory_equal(y, z, sizeof y);
            for (int64_t few = 1; few <= 5; few++) {
                be_matmul(vec.b, z, &w, x, few);
                assert_memory_equal(y, z, (size_t)(few * n_out) * 4);
            }
            float row[512];
            for (int64_t o = 0; o < n_out; o++) {
                be_get_row(ref.b, row, &w, o);
                for (int64_t t = 0; t < T; t++)
                    check_row(type, row, x + t * n_in, n_in, y[t * n_out + o], "extreme");
            }
            free(data);
            free(x);
            rig_free(&ref);
            rig_free(&vec);
        }
    }
}

static void several_weights_at_once(void **state)
{
    static const uint32_t types[] = {GT_Q4_K, GT_F16,  GT_Q8_0, GT_Q6_K, GT_F32,
                                     GT_Q5_0, GT_Q4_0, GT_BF16, GT_Q5_K, GT_Q4_K};
    enum { N = sizeof types / sizeof types[0] };
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        struct rig r = rig_new(simd, 2);
        struct be_weight w[N];
        const struct be_weight *wp[N];
        uint8_t *data[N];
        float *y[N], *z[N], *x = rng_floats(512 * 5, 1.0f);
        for (int i = 0; i < N; i++) {
            data[i] = rng_weight(&w[i], types[i], 512, 3 + 7 * i);
            wp[i] = &w[i];
            y[i] = malloc((size_t)w[i].n_out * 5 * 4);
            z[i] = malloc((size_t)w[i].n_out * 5 * 4);
        }
        be_matmul_n(r.b, y, wp, N, x, 5);
        for (int i = 0; i < N; i++) {
            be_matmul(r.b, z[i], &w[i], x, 5);
            assert_memory_equal(y[i], z[i], (size_t)w[i].n_out * 5 * 4);
            free(data[i]);
            free(y[i]);
            free(z[i]);
        }
        free(x);
        rig_free(&r);
    }
}

/* What is not finite must be seen in the result and not be rounded away; zeros give zeros. */
static void odd_values(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        struct rig r = rig_new(simd, 1);
        for (size_t k = 0; k < sizeof all_types / sizeof all_types[0]; k++) {
            struct be_weight w;
            uint8_t *data = rng_weight(&w, all_types[k], 512, 9);
            float x[512] = {0}, y[9];
            be_matmul(r.b, y, &w, x, 1);
            for (int i = 0; i < 9; i++)
                assert_true(y[i] == 0.0f);
            x[77] = NAN;
            be_matmul(r.b, y, &w, x, 1);
            for (int i = 0; i < 9; i++)
                assert_true(isnan(y[i]));
            x[77] = 1e-35f; /* its scale has no inverse */
            x[300] = 1.0f;
            be_matmul(r.b, y, &w, x, 1);
            for (int i = 0; i < 9; i++)
                assert_true(isfinite(y[i]));
            free(data);
        }
        rig_free(&r);
    }
}

/* Each bit that a level needs, taken away, leaves the level below it. */
static void level_of_a_processor(void **state)
{
    const uint32_t c1 = bit_AVX | bit_FMA | bit_F16C,
                   b7 = bit_AVX2 | bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ, os = 0xe7;
    assert_int_equal(be_simd_of_cpu(c1, b7, os), BE_AVX512);
    assert_int_equal(be_simd_of_cpu(c1, b7 & ~(uint32_t)bit_AVX512F, os), BE_AVX2);
    assert_int_equal(be_simd_of_cpu(c1, b7 & ~(uint32_t)bit_AVX512BW, os), BE_AVX2);
    assert_int_equal(be_simd_of_cpu(c1, b7 & ~(uint32_t)bit_AVX512VL, os), BE_AVX2);
    assert_int_equal(be_simd_of_cpu(c1, b7 & ~(uint32_t)bit_AVX512DQ, os), BE_AVX2);
    assert_int_equal(be_simd_of_cpu(c1, b7, 0x07), BE_AVX2); /* a system that does not save 512 bits */
    assert_int_equal(be_simd_of_cpu(c1, b7, 0x67), BE_AVX2);
    assert_int_equal(be_simd_of_cpu(c1, b7 & ~(uint32_t)bit_AVX2, os), BE_AVX);
    assert_int_equal(be_simd_of_cpu(c1 & ~(uint32_t)bit_FMA, b7, os), BE_AVX);
    assert_int_equal(be_simd_of_cpu(c1 & ~(uint32_t)bit_F16C, b7, os), BE_AVX);
    assert_int_equal(be_simd_of_cpu(c1, b7, 0x03), BE_SSE2);
    assert_int_equal(be_simd_of_cpu(c1, b7, 0), BE_SSE2);
    assert_int_equal(be_simd_of_cpu(c1 & ~(uint32_t)bit_AVX, b7, os), BE_SSE2);
}

/* VITRIOL_TEST_LEVEL: what the emulated processor of this run has. */
static void levels(void **state)
{
    const char *want = getenv("VITRIOL_TEST_LEVEL");
    if (want != NULL)
        assert_string_equal(be_simd_name(be_simd_best()), want);
    struct be_pool *pool;
    struct be *b;
    struct vt_err err;
    assert_int_equal(be_pool_new(&pool, 1, &err), 0);
    assert_int_equal(be_new(&b, pool, -1, &err), 0);
    assert_int_equal(be_simd_of(b), be_simd_best());
    be_free(b);
    assert_int_equal(be_new(&b, pool, 17, &err), -1);
    assert_int_equal(err.code, VT_E_CONFIG);
    if (be_simd_best() < BE_AVX512) {
        assert_int_equal(be_new(&b, pool, BE_AVX512, &err), -1);
        assert_non_null(strstr(err.text, "avx512"));
    }
    be_pool_free(pool);
    printf("best instruction set here: %s\n", be_simd_name(be_simd_best()));
}

/* test_matmul [PATTERN]: the tests whose name matches; an emulated processor takes the short ones. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(level_of_a_processor),      cmocka_unit_test(levels),
        cmocka_unit_test(every_type_against_double), cmocka_unit_test(batches_and_threads_change_no_bit),
        cmocka_unit_test(instruction_sets_agree),    cmocka_unit_test(extreme_codes),
        cmocka_unit_test(several_weights_at_once),   cmocka_unit_test(odd_values),
    };
    rng_init();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
