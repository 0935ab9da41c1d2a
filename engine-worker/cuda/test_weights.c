/* Weights on a GPU: their size, their rows, and matmuls beside float64 on fresh random inputs, odd sizes among them. Without a GPU the test says so and counts as
 * skipped (exit code 77). */
#include "test_device.h"

static bool is_float(uint32_t type)
{
    return type == GT_F32 || type == GT_F16 || type == GT_BF16;
}

static void one_matmul(uint32_t type, int64_t n_in, int64_t n_out, int64_t T, double few, double many)
{
    struct vt_err err;
    struct be_weight dw;
    uint8_t *bytes = random_weight(type, n_in, n_out);
    struct be_weight w = {.type = type, .n_in = n_in, .n_out = n_out, .data = bytes};
    float *x = rng_floats(T * n_in, 1), *want = malloc((size_t)(T * n_out) * sizeof *want);
    float *row = malloc((size_t)n_in * sizeof *row);
    double sums = 0, products = 0; /* squares: where a few results cancel, their errors do not */
    for (int64_t r = 0; r < n_out; r++) {
        be_get_row(cpu, row, &w, r);
        for (int64_t t = 0; t < T; t++) {
            double s = 0;
            for (int64_t i = 0; i < n_in; i++) {
                double product = (double)row[i] * (double)x[t * n_in + i];
                s += product;
                products += product * product;
            }
            want[t * n_out + r] = (float)s;
            sums += s * s;
        }
    }
    double slack = sqrt(fmax(1, products / fmax(sums, 1e-300)));
    must(be_upload(gpu, &dw, &w, 1, &err), &err);
    float *dx = floats_to_device(x, T * n_in), *dy = poisoned(T * n_out);
    be_matmul(gpu, dy, &dw, dx, T);
    char what[128];
    snprintf(what, sizeof what, "%s [%lld x %lld] times %lld rows", ggml_type_name(type), (long long)n_in,
             (long long)n_out, (long long)T);
    settle(what, dy, want, T * n_out, slack * (is_float(type) && T <= CU_VEC_ROWS ? few : many));

    /* the rows themselves: exact */
    uint32_t ids[3] = {0, (uint32_t)(n_out - 1), (uint32_t)(n_out / 2)};
    uint32_t *dids = to_device(ids, sizeof ids);
    float *rows = poisoned(3 * n_in), *exact = malloc((size_t)(3 * n_in) * sizeof *exact);
    be_get_rows(gpu, rows, &dw, dids, 3);
    for (int i = 0; i < 3; i++)
        be_get_row(cpu, exact + i * n_in, &w, ids[i]);
    settle(what, rows, exact, 3 * n_in, 0);
    be_release(gpu, dids, 0);
    be_release(gpu, dx, 0);
    be_release(gpu, (void *)dw.data, 0);
    free(row);
    free(x);
    free(bytes);
}

/* Values of a block, and 32 where the file has less of them. */
static int64_t step_of(uint32_t type)
{
    int64_t block, bytes;
    assert_true(ggml_block(type, &block, &bytes));
    return block < 32 ? 32 : block;
}

static const uint32_t own[] = {GT_Q8_0, GT_Q4_0, GT_Q4_K, GT_Q5_K, GT_Q6_K, GT_F32, GT_F16, GT_BF16};
static const uint32_t coded[] = {GT_Q4_1,   GT_Q5_0,  GT_Q5_1,    GT_Q8_1,    GT_Q1_0,   GT_Q2_0,
                                 GT_IQ4_NL, GT_MXFP4, GT_NVFP4,   GT_Q2_K,    GT_Q3_K,   GT_Q8_K,
                                 GT_IQ4_XS, GT_IQ3_S, GT_IQ3_XXS, GT_IQ2_XXS, GT_IQ2_XS, GT_IQ2_S,
                                 GT_IQ1_S,  GT_IQ1_M, GT_TQ1_0,   GT_TQ2_0};

/* Rows of T[0 .. n - 1] times weights of odd sizes. */
static void every_size(uint32_t type, const int64_t *T, size_t n, bool plain)
{
    /* f16 is within 2^-11, and K types amplify it by what their minima cancel; plain: int8 activations are within half a
     * step of 127 */
    bool floats = is_float(type);
    double few = 1e-5, many = plain && !floats ? 2.5e-2 : plain ? 1e-5 : 3e-3;
    int64_t step = step_of(type);
    for (size_t i = 0; i < n; i++) {
        one_matmul(type, 256 * (1 + rng_below(5)), 1 + rng_below(200), T[i], few, many);
        if (step < 256)
            one_matmul(type, step * (1 + rng_below(1280 / step)), 1 + rng_below(200), T[i], few, many);
    }
}

static void few_rows(bool plain)
{
    static const int64_t all[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32}, some[] = {1, 7, 20};
    for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
        every_size(own[k], all, sizeof all / sizeof all[0], plain);
    for (size_t k = 0; k < sizeof coded / sizeof coded[0]; k++)
        every_size(coded[k], some, sizeof some / sizeof some[0], plain);
}

static void many_rows(bool plain)
{
    static const int64_t all[] = {33, 64, 290}, some[] = {40};
    for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
        every_size(own[k], all, sizeof all / sizeof all[0], plain);
    for (size_t k = 0; k < sizeof coded / sizeof coded[0]; k++)
        every_size(coded[k], some, sizeof some / sizeof some[0], plain);
}

static void matmuls(void **state)
{
    few_rows(false);
}

static void matmuls_of_many_rows(void **state)
{
    many_rows(false);
}

/* As on a GPU without tensor cores. */
static void plain_matmuls(void **state)
{
    struct vt_err err;
    struct be *with = gpu;
    must(vitriol_gpu.backend(&gpu, 0, &err), &err);
    must(be_reserve(gpu, 600, 2048, &err), &err);
    must(cu_plain_only(gpu, &err), &err);
    few_rows(true);
    many_rows(true);
    be_free(gpu);
    gpu = with;
}

/* A row's result does not depend on its neighbours, as long as they are some or many (cu.h); a single row may be near it only. */
static void neighbours_of(uint32_t type)
{
    enum { N = 1024, OUT = 130 };
    struct vt_err err;
    struct be_weight dw;
    uint8_t *bytes = random_weight(type, N, OUT);
    struct be_weight w = {.type = type, .n_in = N, .n_out = OUT, .data = bytes};
    float *x = rng_floats(100 * N, 1), *dx = floats_to_device(x, 100 * N), *dy = poisoned(100 * OUT);
    must(be_upload(gpu, &dw, &w, 1, &err), &err);
    be_matmul(gpu, dy, &dw, dx, 8);
    float *eight = from_device(dy, 8 * OUT);
    be_matmul(gpu, dy, &dw, dx + 2 * N, 1);
    float *one = from_device(dy, OUT);
    if (type == GT_Q4_K || type == GT_Q5_K || type == GT_Q6_K)
        near("a row alone", one, eight + 2 * OUT, OUT, 1e-3);
    else
        assert_memory_equal(one, eight + 2 * OUT, OUT * sizeof *one);
    be_matmul(gpu, dy, &dw, dx + 3 * N, 29);
    float *some = from_device(dy, 29 * OUT);
    be_matmul(gpu, dy, &dw, dx + 5 * N, 20);
    float *fewer = from_device(dy, 20 * OUT);
    assert_memory_equal(some + 2 * OUT, fewer, 20 * OUT * sizeof *some);
    free(fewer);
    be_matmul(gpu, dy, &dw, dx, 100);
    float *hundred = from_device(dy, 100 * OUT);
    be_matmul(gpu, dy, &dw, dx + 40 * N, 50);
    float *fifty = from_device(dy, 50 * OUT);
    assert_memory_equal(fifty, hundred + 40 * OUT, 50 * OUT * sizeof *fifty);
    be_release(gpu, (void *)dw.data, 0);
    be_release(gpu, dx, 0);
    be_release(gpu, dy, 0);
    free(eight);
    free(one);
    free(some);
    free(hundred);
    free(fifty);
    free(bytes);
    free(x);
}

static void neighbours_change_nothing(void **state)
{
    neighbours_of(GT_Q4_K);
    neighbours_of(GT_Q5_1);
}

/* Activations far beyond what f16 holds. */
static void large_activations(void **state)
{
    enum { N = 512, OUT = 64, T = 20 };
    struct vt_err err;
    struct be_weight dw;
    uint8_t *bytes = random_weight(GT_Q8_0, N, OUT);
    struct be_weight w = {.type = GT_Q8_0, .n_in = N, .n_out = OUT, .data = bytes};
    float *x = rng_floats(T * N, 2e5f), *want = malloc(T * OUT * sizeof *want);
    be_matmul(cpu, want, &w, x, T);
    must(be_upload(gpu, &dw, &w, 1, &err), &err);
    float *dx = floats_to_device(x, T * N), *dy = poisoned(T * OUT);
    be_matmul(gpu, dy, &dw, dx, T);
    settle("large activations", dy, want, T * OUT, 1.5e-2); /* the CPU's are int8 */
    be_release(gpu, (void *)dw.data, 0);
    be_release(gpu, dx, 0);
    free(bytes);
    free(x);
}

/* Halves that a norm or an activation leaves behind are those that the matmul would make; and they are not taken for those of what
 * has been written there since. */
static void halves_left_behind(void **state)
{
    enum { N = 640, OUT = 70 };
    struct vt_err err;
    struct be_weight dw;
    uint8_t *bytes = random_weight(GT_Q8_0, N, OUT);
    struct be_weight w = {.type = GT_Q8_0, .n_in = N, .n_out = OUT, .data = bytes};
    float *g = rng_floats(N, 1), *dg = floats_to_device(g, N);
    must(be_upload(gpu, &dw, &w, 1, &err), &err);
    for (int64_t T = 1; T <= 33; T += 16) {
        float *x = rng_floats(T * N, 1), *dx = floats_to_device(x, T * N), *dn = poisoned(T * N);
        for (int round = 0; round < 3; round++) {
            float *dy = poisoned(T * OUT), *again = poisoned(T * OUT);
            be_rmsnorm(gpu, dn, dx, dg, T, N, 1e-6f);
            if (round == 1)
                be_silu_mul(gpu, dn, dx, T, N);
            if (round == 2)
                be_add(gpu, dn, dx, T, N);
            be_matmul(gpu, dy, &dw, dn, T);
            be_scale(gpu, dn, 1, T, N); /* forgets them */
            be_matmul(gpu, again, &dw, dn, T);
            settle("halves", dy, from_device(again, T * OUT), T * OUT, 0);
            be_release(gpu, again, 0);
        }
        be_release(gpu, dx, 0);
        be_release(gpu, dn, 0);
        free(x);
    }
    /* what is not finite is seen */
    float bad[2 * N] = {0}, *dbad, *dy = poisoned(2 * OUT);
    bad[N + 5] = NAN;
    dbad = floats_to_device(bad, 2 * N);
    for (int64_t T = 1; T <= 2; T++) {
        be_matmul(gpu, dy, &dw, dbad + (2 - T) * N, T);
        float *y = from_device(dy, T * OUT);
        assert_true(isnan(y[(T - 1) * OUT]));
        free(y);
    }
    be_release(gpu, dbad, 0);
    be_release(gpu, dy, 0);
    be_release(gpu, dg, 0);
    be_release(gpu, (void *)dw.data, 0);
    free(g);
    free(bytes);
}

/* Weights of one call, of several types and heights, give what they give alone. */
static void matmuls_together(void **state)
{
    static const uint32_t type[] = {GT_Q4_K, GT_Q4_K, GT_Q6_K, GT_F32,  GT_Q4_K,
                                    GT_Q4_K, GT_Q4_K, GT_Q3_K, GT_Q3_K, GT_IQ4_XS};
    enum { N = 512, W = 10 };
    struct vt_err err;
    for (int64_t T = 1; T <= 12; T += 5) {
        struct be_weight dw[W];
        const struct be_weight *list[W];
        float *together[W], *alone[W], *x = rng_floats(T * N, 1), *dx = floats_to_device(x, T * N);
        int64_t n_out[W];
        for (int i = 0; i < W; i++) {
            uint8_t *bytes = random_weight(type[i], N, n_out[i] = 1 + rng_below(90));
            struct be_weight w = {.type = type[i], .n_in = N, .n_out = n_out[i], .data = bytes};
            must(be_upload(gpu, &dw[i], &w, 1, &err), &err);
            list[i] = &dw[i];
            together[i] = poisoned(T * n_out[i]);
            alone[i] = poisoned(T * n_out[i]);
            be_matmul(gpu, alone[i], &dw[i], dx, T);
            free(bytes);
        }
        be_matmul_n(gpu, together, list, W, dx, T);
        for (int i = 0; i < W; i++) {
            settle("together", together[i], from_device(alone[i], T * n_out[i]), T * n_out[i], 0);
            be_release(gpu, alone[i], 0);
            be_release(gpu, (void *)dw[i].data, 0);
        }
        be_release(gpu, dx, 0);
        free(x);
    }
}

/* Weights take about what the file has, whatever their type, and what cannot be read is said so. */
static void weights_stay_small(void **state)
{
    enum { N = 4096, POINTS = 1 << 14 };
    struct vt_err err;
    for (uint32_t type = 0; type < 64; type++) {
        struct be_weight w = {.type = type, .n_in = N, .n_out = N},
                         odd = {.type = type, .n_in = 264, .n_out = N};
        int64_t block, bytes;
        if (!be_type_ok(type)) {
            assert_int_equal(be_readable(gpu, &w, &err), -1);
            assert_int_equal(err.code, VT_E_CAPABILITY);
            continue;
        }
        assert_true(ggml_block(type, &block, &bytes));
        double raw = (double)N * N / (double)block * (double)bytes, got = (double)be_weight_bytes(gpu, &w, 1);
        if (!(got > 0 && got <= 1.041 * raw + POINTS))
            fail_msg("%s: %.0f bytes of the file become %.0f", ggml_type_name(type), raw, got);
        assert_int_equal(be_readable(gpu, &odd, &err), 264 % block ? -1 : 0);
    }
}

/* Too much memory is refused with figures, and the device still works. */
static void memory_is_refused(void **state)
{
    struct vt_err err;
    void *p;
    assert_int_equal(be_alloc(gpu, &p, (size_t)1 << 50, &err), -1);
    assert_int_equal(err.code, VT_E_DEVICE_MEM);
    assert_non_null(strstr(err.text, "MiB"));
    one_matmul(GT_Q8_0, 64, 10, 2, 1.5e-2, 3e-3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmuls),           cmocka_unit_test(matmuls_of_many_rows),
        cmocka_unit_test(plain_matmuls),     cmocka_unit_test(neighbours_change_nothing),
        cmocka_unit_test(large_activations), cmocka_unit_test(halves_left_behind),
        cmocka_unit_test(matmuls_together),  cmocka_unit_test(weights_stay_small),
        cmocka_unit_test(memory_is_refused),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return device_tests("weights", tests, sizeof tests / sizeof tests[0]);
}
