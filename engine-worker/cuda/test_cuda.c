/* Every CUDA operation beside the CPU's on fresh random inputs, odd sizes among them. Without a GPU the test says so and counts as
 * skipped (exit code 77). */
#include "test_device.h"

/* ---- weights ---- */

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

/* ---- rows ---- */

static void row_operations(void **state)
{
    for (int round = 0; round < 20; round++) {
        int64_t T = 1 + rng_below(40), n = 1 + rng_below(3000), all = T * n;
        float *x = rng_floats(all, 2), *u = rng_floats(all, 2), *w = rng_floats(n, 1), *g = rng_floats(T, 1);
        float *dw = floats_to_device(w, n), *du = floats_to_device(u, all), *dg = floats_to_device(g, T);
        float *want, *d;
#define CHECK(what, bound, on_cpu, on_gpu)                                                                   \
    want = copy_of(x, all);                                                                                  \
    d = floats_to_device(x, all);                                                                            \
    on_cpu;                                                                                                  \
    on_gpu;                                                                                                  \
    settle(what, d, want, all, bound)
        CHECK("rmsnorm", 1e-6, be_rmsnorm(cpu, want, want, w, T, n, 1e-6f),
              be_rmsnorm(gpu, d, d, dw, T, n, 1e-6f));
        CHECK("add", 0, be_add(cpu, want, u, T, n), be_add(gpu, d, du, T, n));
        CHECK("bias", 0, be_add_bias(cpu, want, w, T, n), be_add_bias(gpu, d, dw, T, n));
        CHECK("scale", 0, be_scale(cpu, want, 1.7f, T, n), be_scale(gpu, d, 1.7f, T, n));
        CHECK("softcap", 1e-6, be_softcap(cpu, want, 3, T, n), be_softcap(gpu, d, 3, T, n));
        CHECK("silu", 1e-6, be_silu_mul(cpu, want, u, T, n), be_silu_mul(gpu, d, du, T, n));
        CHECK("gelu", 1e-6, be_gelu_mul(cpu, want, u, T, n), be_gelu_mul(gpu, d, du, T, n));
        CHECK("row gate", 1e-6, be_row_gate(cpu, want, g, T, n), be_row_gate(gpu, d, dg, T, n));
        CHECK("sigmoid gate", 1e-6, be_sigmoid_gate(cpu, want, u, n, T, n),
              be_sigmoid_gate(gpu, d, du, n, T, n));
        be_release(gpu, dw, 0);
        be_release(gpu, du, 0);
        be_release(gpu, dg, 0);
        free(x);
        free(u);
        free(w);
        free(g);
    }
}

static void rotary(void **state)
{
    for (int round = 0; round < 20; round++) {
        int heads = 1 + (int)rng_below(8), d = 2 * (8 + (int)rng_below(60)),
            rot = 2 * (1 + (int)rng_below(d / 2));
        int64_t T = 1 + rng_below(20), all = T * heads * d;
        float *x = rng_floats(all, 1), freq[128];
        int32_t pos[20];
        for (int i = 0; i < rot / 2; i++)
            freq[i] = powf(1e4f, -2.0f * (float)i / (float)rot);
        for (int64_t t = 0; t < T; t++)
            pos[t] = (int32_t)rng_below(100000);
        struct be_rope r = {.n_rot = rot, .interleaved = round % 2, .freq = freq, .mscale = 1.1f}, dr = r;
        int32_t *dpos = to_device(pos, sizeof pos);
        dr.freq = floats_to_device(freq, rot / 2);
        float *want = copy_of(x, all), *dx = floats_to_device(x, all);
        be_rope(cpu, want, T, heads * d, heads, d, &r, pos);
        be_rope(gpu, dx, T, heads * d, heads, d, &dr, dpos);
        settle("rope", dx, want, all, 1e-6);
        be_release(gpu, dpos, 0);
        be_release(gpu, (void *)dr.freq, 0);
        free(x);
    }
}

static void moving_rows(void **state)
{
    for (int round = 0; round < 10; round++) {
        int64_t T = 1 + rng_below(30), n = 1 + rng_below(300), xs = n + rng_below(20), ys = n + rng_below(20);
        float *x = rng_floats(T * xs, 1), *want = copy_of(x, T * xs), *dx = floats_to_device(x, T * xs);
        float *y = rng_floats(T * ys, 1), *dy = floats_to_device(y, T * ys);
        be_copy_rows(cpu, y, ys, x, xs, T, n);
        be_copy_rows(gpu, dy, ys, dx, xs, T, n);
        settle("copied rows", dy, y, T * ys, 0);
        int32_t rows[30], *drows;
        for (int64_t t = 0; t < T; t++)
            rows[t] = (int32_t)rng_below(T);
        drows = to_device(rows, sizeof rows);
        y = malloc((size_t)(T * xs) * sizeof *y);
        dy = poisoned(T * xs);
        be_pick_rows(cpu, y, x, rows, T, xs);
        be_pick_rows(gpu, dy, dx, drows, T, xs);
        settle("picked rows", dy, y, T * xs, 0);
        settle("rows", dx, want, T * xs, 0);
        be_release(gpu, drows, 0);
        free(x);
    }
}

/* Operations that do several in one go give what those give. */
static void fused(void **state)
{
    struct vt_err err;
    for (int round = 0; round < 16; round++) {
        int64_t T = 1 + rng_below(40), n = round % 2 ? 256 * (1 + rng_below(9)) : 32 * (1 + rng_below(40)),
                inner = 1 + rng_below(200);
        inner = round % 3 ? inner * 16 : inner;
        uint32_t type = round % 2 ? GT_Q4_K : GT_Q8_0, other = round % 4 == 1 ? GT_Q6_K : type;
        uint8_t *wg = random_weight(type, n, inner), *wu = random_weight(other, n, inner),
                *wd = random_weight(GT_F32, inner, 9);
        struct be_weight gate = {type, n, inner, wg}, up = {other, n, inner, wu},
                         down = {GT_F32, inner, 9, wd};
        struct be_weight dgate, dup, ddown;
        must(be_upload(gpu, &dgate, &gate, 1, &err), &err);
        must(be_upload(gpu, &dup, &up, 1, &err), &err);
        must(be_upload(gpu, &ddown, &down, 1, &err), &err);
        float *x = rng_floats(T * n, 2), *add = rng_floats(T * n, 2), *g = rng_floats(n, 1);
        float *dx = floats_to_device(x, T * n), *dadd = floats_to_device(add, T * n),
              *dg = floats_to_device(g, n);
        float *da = poisoned(T * inner), *du = poisoned(T * inner), *dy = poisoned(T * 9),
              *plain = poisoned(T * inner);
        float *sum = copy_of(x, T * n), *normed = malloc((size_t)(T * n) * sizeof *normed);
        be_add_rmsnorm(cpu, normed, sum, add, g, T, n, 1e-6f);
        be_add_rmsnorm(gpu, dadd, dx, dadd, dg, T, n, 1e-6f);
        be_matmul_gated(gpu, da, du, &dgate, &dup, round & 4, dadd, T);
        be_matmul(gpu, dy, &ddown, da, T); /* reads what was left */
        be_matmul(gpu, plain, &dgate, dadd, T);
        be_matmul(gpu, du, &dup, dadd, T);
        if (round & 4)
            be_gelu_mul(gpu, plain, du, T, inner);
        else
            be_silu_mul(gpu, plain, du, T, inner);
        settle("gated", da, from_device(plain, T * inner), T * inner, 1e-6);
        float *again = poisoned(T * 9);
        be_matmul(gpu, again, &ddown, plain, T);
        settle("after gated", dy, from_device(again, T * 9), T * 9, 1e-3);
        settle("sum", dx, sum, T * n, 0);
        settle("norm of the sum", dadd, normed, T * n, 1e-6);
        void *device[] = {dg, du, plain, again, (void *)dgate.data, (void *)dup.data, (void *)ddown.data};
        for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
            be_release(gpu, device[i], 0);
        void *host[] = {wg, wu, wd, x, add, g};
        for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
            free(host[i]);
    }
}

static float *device_floats(int64_t n, double by)
{
    float *x = rng_floats(n, by), *d = floats_to_device(x, n);
    free(x);
    return d;
}

static struct be_weight device_weight(uint32_t type, int64_t n_in, int64_t n_out)
{
    struct vt_err err;
    uint8_t *bytes = random_weight(type, n_in, n_out);
    struct be_weight h = {.type = type, .n_in = n_in, .n_out = n_out, .data = bytes}, d;
    must(be_upload(gpu, &d, &h, 1, &err), &err);
    free(bytes);
    return d;
}

/* A layer's way from heads to the residual stream and, behind its norm, into weights of two types and a gate: what a single row has
 * in few launches and the others one operation after another is the same. */
static void stream_of(uint32_t type, int64_t T, int64_t n, int64_t inner, bool gelu)
{
    enum { OUT = 90 };
    struct be_weight out = device_weight(type, inner, n), a = device_weight(type, n, OUT),
                     b = device_weight(GT_Q6_K, n, 33), gate = device_weight(type, n, 48),
                     up = device_weight(type, n, 48);
    const struct be_weight *w[] = {&a, &b};
    float *x = device_floats(T * n, 2), *same = poisoned(T * n), *in = device_floats(T * inner, 1),
          *room = poisoned(T * n), *gain = device_floats(n, 1), *u = poisoned(T * 48);
    float *y[] = {poisoned(T * OUT), poisoned(T * 33)}, *plain[] = {poisoned(T * OUT), poisoned(T * 33)},
          *g = poisoned(T * 48), *plain_g = poisoned(T * 48);
    be_copy(gpu, same, x, (size_t)(T * n) * sizeof *x);
    for (int round = 0; round < 2; round++) {
        struct be_normed norm = {.x = x, .w = gain, .eps = 1e-6f, .room = room};
        be_matmul_add(gpu, x, &out, in, room, T, &norm.add);
        if (round == 0)
            be_norm_matmul_n(gpu, y, w, 2, &norm, T);
        else
            be_norm_matmul_gated(gpu, g, u, &gate, &up, gelu, &norm, T);
        be_matmul(gpu, room, &out, in, T);
        be_add_rmsnorm(gpu, room, same, room, gain, T, n, 1e-6f);
        if (round == 0)
            be_matmul_n(gpu, plain, w, 2, room, T);
        else
            be_matmul_gated(gpu, plain_g, u, &gate, &up, gelu, room, T);
    }
    settle("stream", x, from_device(same, T * n), T * n, 1e-6);
    settle("behind its norm", y[0], from_device(plain[0], T * OUT), T * OUT, 4e-3);
    settle("behind its norm, too", y[1], from_device(plain[1], T * 33), T * 33, 4e-3);
    settle("gated behind its norm", g, from_device(plain_g, T * 48), T * 48, 1e-2);
    void *device[] = {(void *)out.data,
                      (void *)a.data,
                      (void *)b.data,
                      (void *)gate.data,
                      (void *)up.data,
                      same,
                      in,
                      room,
                      gain,
                      u,
                      plain[0],
                      plain[1],
                      plain_g};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        be_release(gpu, device[i], 0);
}

static void stream(void **state)
{
    static const uint32_t type[] = {GT_Q4_K, GT_Q5_K, GT_Q6_K, GT_Q8_0, GT_Q4_0, GT_Q3_K, GT_F16};
    for (size_t i = 0; i < sizeof type / sizeof type[0]; i++)
        for (int64_t T = 1; T <= 3; T += 2)
            stream_of(type[i], T, 256 * (1 + rng_below(8)), 256 * (1 + rng_below(4)), rng_below(2));
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

/* ---- experts ---- */

static void one_layer_of_experts(int n_expert, int n_used, int64_t T, uint32_t type, bool sigmoid, bool bias)
{
    enum { N = 256, INNER = 96 };
    struct vt_err err;
    int64_t pairs = T * n_used;
    float *probs = rng_floats(n_expert, 0.2f);
    struct be_route r = {.n_expert = n_expert,
                         .n_used = n_used,
                         .sigmoid = sigmoid,
                         .normalize = rng() & 1,
                         .scale = 1.3f,
                         .bias = bias ? probs : NULL},
                    dr = r;
    float *x = rng_floats(T * N, 1), *logits = rng_floats(T * n_expert, 2);
    struct be_weight *w = calloc((size_t)n_expert, sizeof *w), dw;
    for (int e = 0; e < n_expert; e++)
        w[e] = (struct be_weight){
            .type = type, .n_in = N, .n_out = INNER, .data = random_weight(type, N, INNER)};
    must(be_upload(gpu, &dw, w, n_expert, &err), &err);
    int32_t *ids = malloc((size_t)pairs * 4), *at = malloc((size_t)pairs * 4);
    int64_t *first = malloc((BE_EXPERTS_MAX + 1) * sizeof *first);
    float *weight = malloc((size_t)pairs * 4), *rows = malloc((size_t)(pairs * N) * 4);
    float *y = malloc((size_t)(pairs * INNER) * 4), *out = malloc((size_t)(T * INNER) * 4);
    const struct be_weight *list[] = {w}, *dlist[] = {&dw};
    be_moe_route(cpu, ids, weight, logits, &r, T);
    be_moe_sort(cpu, at, first, ids, &r, T);
    be_moe_gather(cpu, rows, x, at, &r, T, N);
    be_moe_matmul(cpu, &y, list, 1, rows, first, &r, T);
    be_moe_combine(cpu, out, y, weight, at, &r, T, INNER);

    if (bias)
        dr.bias = floats_to_device(probs, n_expert);
    float *dx = floats_to_device(x, T * N), *dl = floats_to_device(logits, T * n_expert);
    int32_t *dids = device_bytes((size_t)pairs * 4), *dat = device_bytes((size_t)pairs * 4);
    int64_t *dfirst = device_bytes((BE_EXPERTS_MAX + 1) * sizeof *dfirst);
    float *dweight = poisoned(pairs), *drows = poisoned(pairs * N), *dy = poisoned(pairs * INNER),
          *dout = poisoned(T * INNER);
    be_moe_route(gpu, dids, dweight, dl, &dr, T);
    be_moe_sort(gpu, dat, dfirst, dids, &dr, T);
    be_moe_gather(gpu, drows, dx, dat, &dr, T, N);
    be_moe_matmul(gpu, &dy, dlist, 1, drows, dfirst, &dr, T);
    be_moe_combine(gpu, dout, dy, dweight, dat, &dr, T, INNER);
    int32_t *got = malloc((size_t)pairs * 4);
    must(be_read(gpu, got, dids, (size_t)pairs * 4, &err), &err);
    assert_memory_equal(got, ids, (size_t)pairs * 4);
    char what[96];
    snprintf(what, sizeof what, "%d of %d experts, %s, %lld rows", n_used, n_expert, ggml_type_name(type),
             (long long)T);
    settle("weights of the chosen", dweight, weight, pairs, 1e-5);
    settle(what, dout, out, T * INNER, 2.5e-2); /* both sides round their activations */
    for (int e = 0; e < n_expert; e++)
        free((void *)w[e].data);
    void *device[] = {(void *)dw.data, dx, dl, dids, dat, dfirst, drows, dy, bias ? (void *)dr.bias : NULL};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        be_release(gpu, device[i], 0);
    void *host[] = {probs, x, logits, w, ids, at, first, rows, y, got};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        free(host[i]);
}

static void experts(void **state)
{
    static const uint32_t type[] = {GT_Q4_K, GT_Q6_K, GT_Q8_0, GT_F16, GT_MXFP4, GT_IQ3_S, GT_Q2_K};
    enum { TYPES = sizeof type / sizeof type[0] };
    for (int round = 0; round < 2 * TYPES; round++) {
        int n = 2 + (int)rng_below(round < 6 ? 8 : 200), used = 1 + (int)rng_below(n < 8 ? n : 8);
        one_layer_of_experts(n, used, 1 + rng_below(8), type[round % TYPES], round & 1, round & 2);
        one_layer_of_experts(n, used, 9 + rng_below(100), type[round % TYPES], round & 1, round & 2);
    }
    one_layer_of_experts(BE_EXPERTS_MAX, 8, 100, GT_Q8_0, false, false);
}

/* The whole feed-forward part, in one go where the rows are few. shared: a shared expert, of other types than the rest or of the same. */
struct part_case {
    int n_expert, n_used;
    int64_t n, inner, T;
    uint32_t in, out;
    enum { NO_SHARED, SAME_SHARED, OTHER_SHARED } shared;
};

struct part_weights {
    struct be_weight *gate, *up, *down, router, by, sgate, sup, sdown;
};

static struct be_weight *several(uint32_t type, int64_t n_in, int64_t n_out, int n)
{
    struct be_weight *w = calloc((size_t)n, sizeof *w);
    for (int e = 0; e < n; e++)
        w[e] = (struct be_weight){type, n_in, n_out, random_weight(type, n_in, n_out)};
    return w;
}

static void upload_to(struct be_weight *to, const struct be_weight *from, int n)
{
    struct vt_err err;
    must(be_upload(gpu, to, from, n, &err), &err);
}

/* The processor's activations would be rounded to codes: its weights become floats of the same values. */
static void as_floats(struct be_weight *w, int n)
{
    for (int e = 0; e < n; e++) {
        int64_t values = w[e].n_in * w[e].n_out;
        float *v = malloc((size_t)values * sizeof *v);
        be_dequant(w[e].type, w[e].data, v, values);
        free((void *)w[e].data);
        w[e] = (struct be_weight){GT_F32, w[e].n_in, w[e].n_out, v};
    }
}

static void drop(struct be_weight *w, struct be_weight *on, int n)
{
    for (int e = 0; e < n; e++)
        free((void *)w[e].data);
    be_release(gpu, (void *)on->data, 0);
}

static void one_part(const struct part_case *k)
{
    uint32_t sin = k->shared == OTHER_SHARED ? GT_Q8_0 : k->in;
    int64_t pairs = k->T * k->n_used, T = k->T, n = k->n, inner = k->inner;
    struct part_weights h = {.gate = several(k->in, n, inner, k->n_expert),
                             .up = several(k->in, n, inner, k->n_expert),
                             .down = several(k->out, inner, n, k->n_expert),
                             .router = {GT_F32, n, k->n_expert, random_weight(GT_F32, n, k->n_expert)},
                             .by = {GT_F32, n, 1, random_weight(GT_F32, n, 1)},
                             .sgate = {sin, n, inner, random_weight(sin, n, inner)},
                             .sup = {sin, n, inner, random_weight(sin, n, inner)},
                             .sdown = {k->out, inner, n, random_weight(k->out, inner, n)}},
                        d;
    struct be_weight *host[] = {h.gate, h.up, h.down, &h.router, &h.by, &h.sgate, &h.sup, &h.sdown};
    struct be_weight lists[3],
        *dev[] = {&lists[0], &lists[1], &lists[2], &d.router, &d.by, &d.sgate, &d.sup, &d.sdown};
    for (int i = 0; i < 8; i++) {
        upload_to(dev[i], host[i], i < 3 ? k->n_expert : 1);
        as_floats(host[i], i < 3 ? k->n_expert : 1);
    }
    bool shared = k->shared != NO_SHARED;
    struct be_experts e = {.route = {.n_expert = k->n_expert,
                                     .n_used = k->n_used,
                                     .sigmoid = rng() & 1,
                                     .normalize = rng() & 1,
                                     .scale = 1.1f},
                           .gelu = rng() & 1,
                           .router = &h.router,
                           .gate = h.gate,
                           .up = h.up,
                           .down = h.down,
                           .shared_by = shared ? &h.by : NULL,
                           .shared_gate = &h.sgate,
                           .shared_up = &h.sup,
                           .shared_down = &h.sdown},
                      de = e;
    de.router = &d.router;
    de.gate = &lists[0];
    de.up = &lists[1];
    de.down = &lists[2];
    de.shared_by = shared ? &d.by : NULL;
    de.shared_gate = &d.sgate;
    de.shared_up = &d.sup;
    de.shared_down = &d.sdown;
    size_t room[] = {(size_t)(T * (k->n_expert + 1)),
                     (size_t)(pairs * n),
                     (size_t)(pairs * inner),
                     (size_t)(pairs * inner),
                     (size_t)pairs,
                     (size_t)(T * inner),
                     (size_t)(T * inner),
                     (size_t)(T * n),
                     (size_t)pairs,
                     (size_t)pairs,
                     2 * (BE_EXPERTS_MAX + 1)};
    void *hr[11], *dr[11];
    for (int i = 0; i < 11; i++) {
        hr[i] = calloc(room[i], 4);
        dr[i] = device_bytes(room[i] * 4);
    }
    struct be_experts_room hroom = {hr[0], hr[1], hr[2], hr[3], hr[4], hr[5],
                                    hr[6], hr[7], hr[8], hr[9], hr[10]},
                           droom = {dr[0], dr[1], dr[2], dr[3], dr[4], dr[5],
                                    dr[6], dr[7], dr[8], dr[9], dr[10]};
    float *x = rng_floats(T * n, 0.5f), *dx = floats_to_device(x, T * n), *dout = poisoned(T * n),
          *out = malloc((size_t)(T * n) * 4);
    be_experts(cpu, out, &e, &hroom, x, T);
    be_experts(gpu, dout, &de, &droom, dx, T);
    char what[128];
    snprintf(what, sizeof what, "%d of %d experts%s, %s and %s, %lld x %lld, %lld rows", k->n_used,
             k->n_expert,
             k->shared == SAME_SHARED ? " and one"
             : shared                 ? " and another"
                                      : "",
             ggml_type_name(k->in), ggml_type_name(k->out), (long long)n, (long long)inner, (long long)T);
    settle(what, dout, out, T * n, 2e-3);
    for (int i = 0; i < 8; i++)
        drop(host[i], dev[i], i < 3 ? k->n_expert : 1);
    for (int i = 0; i < 11; i++) {
        free(hr[i]);
        be_release(gpu, dr[i], 0);
    }
    be_release(gpu, dx, 0);
    free(h.gate);
    free(h.up);
    free(h.down);
    free(x);
}

static void parts_of_experts(void **state)
{
    static const struct part_case k[] = {
        {5, 3, 512, 256, 1, GT_Q4_K, GT_Q6_K, NO_SHARED},
        {9, 4, 256, 768, 3, GT_Q4_K, GT_Q4_K, SAME_SHARED},
        {70, 8, 2048, 256, 1, GT_Q5_K, GT_Q6_K, SAME_SHARED},
        {6, 2, 256, 256, 8, GT_Q6_K, GT_Q5_K, OTHER_SHARED},
        {33, 8, 256, 768, 2, GT_Q4_K, GT_Q6_K, SAME_SHARED},
        {7, 7, 2304, 512, 1, GT_Q4_K, GT_Q6_K, NO_SHARED},
        {12, 4, 512, 256, 20, GT_Q4_K, GT_Q6_K, SAME_SHARED},
        {5, 2, 256, 256, 37, GT_Q4_K, GT_Q4_K, SAME_SHARED},
        {4, 2, 256, 128, 5, GT_Q8_0, GT_F16, OTHER_SHARED},
    };
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        one_part(&k[i]);
}

/* ---- the best ---- */

/* The very ids and values of the CPU's. */
static void one_best(int64_t T, int64_t n, int64_t levels, bool odd)
{
    struct vt_err err;
    int64_t kept = n < BE_BEST ? n : BE_BEST;
    float *x = malloc((size_t)(T * n) * sizeof *x), *values = malloc((size_t)T * BE_BEST * sizeof *values);
    uint32_t *ids = malloc((size_t)T * BE_BEST * sizeof *ids),
             *got = malloc((size_t)T * BE_BEST * sizeof *got);
    for (int64_t i = 0; i < T * n; i++)
        x[i] = (float)(rng_below(levels) - levels / 2) * (rng_below(2) ? 1.0f : -1.0f);
    if (odd)
        x[rng_below(n)] = rng_below(2) ? -NAN : -INFINITY;
    float *dx = floats_to_device(x, T * n), *dvalues = poisoned(T * BE_BEST);
    uint32_t *dids = device_bytes((size_t)T * BE_BEST * sizeof *ids);
    void *room = device_bytes((size_t)T * be_best_room(n) * sizeof(float));
    be_best(gpu, dids, dvalues, room, dx, T, n);
    be_best(cpu, ids, values, NULL, x, T, n);
    float *floats = from_device(dvalues, T * BE_BEST);
    must(be_read(gpu, got, dids, (size_t)T * BE_BEST * sizeof *got, &err), &err);
    for (int64_t t = 0; t < T; t++) {
        if (odd && t == 0) {
            assert_false(isfinite(floats[0]));
            continue;
        }
        assert_memory_equal(got + t * BE_BEST, ids + t * BE_BEST, (size_t)kept * sizeof *got);
        assert_memory_equal(floats + t * BE_BEST, values + t * BE_BEST, (size_t)kept * sizeof *floats);
    }
    void *device[] = {dx, dvalues, dids, room}, *host[] = {x, values, ids, got, floats};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        be_release(gpu, device[i], 0);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
}

static void best(void **state)
{
    static const int64_t sizes[] = {1, 5, 63, 64, 65, 1000, 4095, 4096, 4097, 40000, 151936, 262208};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int odd = 0; odd < 2; odd++) {
            one_best(1 + rng_below(3), sizes[i], 1 << 24, odd);
            one_best(1 + rng_below(3), sizes[i], 1 + rng_below(100), odd);
        }
}

/* ---- delta ---- */

#define RUNS_MAX 4

/* gates: how strongly the state is forgotten; alike: keys and queries point the same way, nearly, so that each row takes back most
 * of what the one before it wrote. */
struct delta_case {
    int nk, nv, dk, dv;
    bool grouped;
    int64_t rows[RUNS_MAX];
    float gates;
    bool alike;
};

static void one_delta(const struct delta_case *k)
{
    enum { TAPS = 4 };
    int nk = k->nk, nv = k->nv, dk = k->dk, dv = k->dv, n_runs = 0;
    int64_t cd = 2 * nk * dk + nv * dv, T = 0;
    while (n_runs < RUNS_MAX && k->rows[n_runs] > 0)
        T += k->rows[n_runs++];
    float *w = rng_floats(cd * TAPS, 0.5f), *dt = rng_floats(nv, 1), *a = rng_floats(nv, 1),
          *norm = rng_floats(dv, 1);
    for (int i = 0; i < nv; i++)
        a[i] = k->gates * (-fabsf(a[i]) - 0.01f);
    struct be_delta d = {nk, nv, dk, dv, TAPS, k->grouped, 1e-6f, w, dt, a, norm, 0}, dd = d;
    int64_t n_state = (int64_t)be_delta_state_floats(&d);
    dd.conv_w = floats_to_device(w, cd * TAPS);
    dd.dt_bias = floats_to_device(dt, nv);
    dd.a = floats_to_device(a, nv);
    dd.norm_w = floats_to_device(norm, dv);
    float *u = rng_floats(T * cd, 1), *z = rng_floats(T * nv * dv, 1), *bt = rng_floats(T * nv, 1),
          *at = rng_floats(T * nv, k->gates < 1 ? 1 : 4);
    for (int64_t i = 0; k->alike && i < T * cd; i++)
        u[i] = i % cd < 2 * nk * dk ? 3 + 0.1f * u[i] : u[i];
    for (int64_t i = 0; k->alike && i < T * nv; i++)
        bt[i] += 4; /* betas near 1 */
    float *s[RUNS_MAX], *ds[RUNS_MAX], *want = malloc((size_t)(T * nv * dv) * sizeof *want);
    struct be_delta_run runs[RUNS_MAX], druns[RUNS_MAX];
    int64_t row0 = 0;
    for (int r = 0; r < n_runs; r++) {
        s[r] = rng_floats(n_state, 0.3f);
        ds[r] = floats_to_device(s[r], n_state);
        runs[r] = (struct be_delta_run){row0, k->rows[r], s[r]};
        druns[r] = (struct be_delta_run){row0, k->rows[r], ds[r]};
        row0 += k->rows[r];
    }
    float *du = floats_to_device(u, T * cd), *dz = floats_to_device(z, T * nv * dv),
          *dbt = floats_to_device(bt, T * nv);
    float *dat = floats_to_device(at, T * nv), *dout = poisoned(T * nv * dv);
    struct be_delta_run *dr = to_device(druns, sizeof druns);
    be_delta_net(gpu, dout, &dd, du, dz, dbt, dat, dr, n_runs, T);
    be_delta_net(cpu, want, &d, u, z, bt, at, runs, n_runs, T);
    settle("delta net", dout, want, T * nv * dv, 5e-5);
    for (int r = 0; r < n_runs; r++)
        settle("state of the delta net", ds[r], s[r], n_state, 5e-5);
    be_release(gpu, (void *)dd.conv_w, 0);
    be_release(gpu, (void *)dd.dt_bias, 0);
    be_release(gpu, (void *)dd.a, 0);
    be_release(gpu, (void *)dd.norm_w, 0);
    be_release(gpu, du, 0);
    be_release(gpu, dz, 0);
    be_release(gpu, dbt, 0);
    be_release(gpu, dat, 0);
    be_release(gpu, dr, 0);
    free(w);
    free(dt);
    free(a);
    free(norm);
    free(u);
    free(z);
    free(bt);
    free(at);
}

static void delta(void **state)
{
    static const struct delta_case cases[] = {
        {1, 1, 64, 64, false, {1, 60}, 1, false},
        {2, 4, 128, 128, false, {1, 40}, 1, false},
        {2, 4, 128, 128, true, {16, 1, 16}, 1, false},
        {16, 32, 128, 128, true, {1, 17}, 1, false},
        {2, 2, 40, 24, false, {30, 3}, 1, false},
        {1, 2, 256, 96, false, {1, 50}, 1, false},
        {1, 3, 128, 128, true, {17, 64, 65, 1}, 1, false}, /* lengths beside those of chunks */
        {1, 2, 128, 96, false, {63, 16, 128, 129}, 1, false},
        {2, 2, 128, 32, false, {200}, 0.01f, false}, /* little is forgotten */
        {1, 2, 128, 64, true, {130, 70}, 50, false}, /* almost all of it at once */
        {1, 2, 128, 64, true, {150}, 0.001f, true},
        {1, 2, 128, 64, true, {150}, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        one_delta(&cases[i]);
    for (int i = 0; i < 6; i++) {
        struct delta_case any = {
            1, 2, 128, 32, rng_below(2), {1 + rng_below(150), 1 + rng_below(40)}, 1, rng_below(2)};
        any.gates = expf(6 * rng_uniform());
        one_delta(&any);
    }
}

/* A run that is cut between chunks gives the same bits, in the output and in the state. */
static void delta_cut(void **state)
{
    enum { NV = 2, D = 128, TAPS = 4, T = 150, CUT = 64, CD = 2 * D + NV * D };
    float *w = rng_floats(CD * TAPS, 0.5f), *dt = rng_floats(NV, 1), *a = rng_floats(NV, 1),
          *norm = rng_floats(D, 1);
    for (int i = 0; i < NV; i++)
        a[i] = -fabsf(a[i]);
    struct be_delta d = {1,
                         NV,
                         D,
                         D,
                         TAPS,
                         true,
                         1e-6f,
                         floats_to_device(w, CD * TAPS),
                         floats_to_device(dt, NV),
                         floats_to_device(a, NV),
                         floats_to_device(norm, D),
                         0};
    int64_t n_state = (int64_t)be_delta_state_floats(&d), n_out = (int64_t)T * NV * D;
    float *u = rng_floats(T * CD, 1), *z = rng_floats(n_out, 1), *bt = rng_floats(T * NV, 1),
          *at = rng_floats(T * NV, 1), *s = rng_floats(n_state, 0.3f), *out[2], *end[2];
    for (int cut = 0; cut < 2; cut++) {
        float *du = floats_to_device(u, T * CD), *dz = floats_to_device(z, n_out),
              *dbt = floats_to_device(bt, T * NV), *dat = floats_to_device(at, T * NV),
              *dout = poisoned(n_out), *ds = floats_to_device(s, n_state);
        for (int64_t from = 0, n; from < T; from += n) {
            n = cut && from == 0 ? CUT : T - from;
            struct be_delta_run run = {0, n, ds}, *dr = to_device(&run, sizeof run);
            be_delta_net(gpu, dout + from * NV * D, &d, du + from * CD, dz + from * NV * D, dbt + from * NV,
                         dat + from * NV, dr, 1, n);
            be_release(gpu, dr, 0);
        }
        out[cut] = from_device(dout, n_out);
        end[cut] = from_device(ds, n_state);
        float *device[] = {du, dz, dbt, dat, dout, ds};
        for (size_t i = 0; i < sizeof device / sizeof *device; i++)
            be_release(gpu, device[i], 0);
    }
    assert_memory_equal(out[0], out[1], (size_t)n_out * sizeof *u);
    assert_memory_equal(end[0], end[1], (size_t)n_state * sizeof *u);
    float *host[] = {w, dt, a, norm, u, z, bt, at, s, out[0], out[1], end[0], end[1]};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
    be_release(gpu, (void *)d.conv_w, 0);
    be_release(gpu, (void *)d.dt_bias, 0);
    be_release(gpu, (void *)d.a, 0);
    be_release(gpu, (void *)d.norm_w, 0);
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
        cmocka_unit_test(matmuls),
        cmocka_unit_test(matmuls_of_many_rows),
        cmocka_unit_test(plain_matmuls),
        cmocka_unit_test(fused),
        cmocka_unit_test(stream),
        cmocka_unit_test(neighbours_change_nothing),
        cmocka_unit_test(large_activations),
        cmocka_unit_test(halves_left_behind),
        cmocka_unit_test(row_operations),
        cmocka_unit_test(rotary),
        cmocka_unit_test(moving_rows),
        cmocka_unit_test(matmuls_together),
        cmocka_unit_test(experts),
        cmocka_unit_test(best),
        cmocka_unit_test(delta),
        cmocka_unit_test(delta_cut),
        cmocka_unit_test(weights_stay_small),
        cmocka_unit_test(parts_of_experts),
        cmocka_unit_test(memory_is_refused),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return device_tests("cuda", tests, sizeof tests / sizeof tests[0]);
}
