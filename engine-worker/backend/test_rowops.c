#include "test_util.h"

static void close_to(const char *what, int simd, const float *y, const double *want, int64_t n, double rel,
                     double abs_)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(y[i] - want[i]) <= rel * fabs(want[i]) + abs_))
            fail_msg("%s (%s): value %lld of %lld is %.9g instead of %.9g", what,
                     be_simd_name((enum be_simd)simd), (long long)i, (long long)n, (double)y[i], want[i]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Each operation on T rows of n, against doubles, in buffers that end exactly where the rows do. */
struct sample {
    int64_t T, n;
    float *x, *w;
    double *want;
    struct guard gx, gw;
};

static struct sample sample_new(float scale)
{
    struct sample s = {.T = 1 + rng_below(9), .n = 1 + rng_below(600)};
    float *x = rng_floats(s.T * s.n, scale), *w = rng_floats(s.n, 1.0f);
    s.gx = guard_new(x, (size_t)(s.T * s.n) * sizeof *x);
    s.gw = guard_new(w, (size_t)s.n * sizeof *w);
    s.x = s.gx.p;
    s.w = s.gw.p;
    s.want = malloc((size_t)(s.T * s.n) * sizeof *s.want);
    free(x);
    free(w);
    return s;
}

static void sample_free(struct sample *s)
{
    guard_free(&s->gx);
    guard_free(&s->gw);
    free(s->want);
}

static void rmsnorm(int simd, struct be *b)
{
    struct sample s = sample_new(3.0f);
    for (int64_t t = 0; t < s.T; t++) {
        double sum = 0;
        for (int64_t i = 0; i < s.n; i++)
            sum += (double)s.x[t * s.n + i] * s.x[t * s.n + i];
        double scale = 1 / sqrt(sum / (double)s.n + 1e-6);
        for (int64_t i = 0; i < s.n; i++)
            s.want[t * s.n + i] = s.x[t * s.n + i] * scale * s.w[i];
    }
    float *y = malloc((size_t)(s.T * s.n) * sizeof *y);
    be_rmsnorm(b, y, s.x, s.w, s.T, s.n, 1e-6f);
    close_to("rmsnorm", simd, y, s.want, s.T * s.n, 1e-6, 1e-30);
    float *one = malloc((size_t)s.n * sizeof *one); /* a row alone, and in place */
    int64_t t = rng_below(s.T);
    memcpy(one, s.x + t * s.n, (size_t)s.n * sizeof *one);
    be_rmsnorm(b, one, one, s.w, 1, s.n, 1e-6f);
    assert_memory_equal(one, y + t * s.n, (size_t)s.n * sizeof *one);
    free(one);
    free(y);
    sample_free(&s);
}

static void elementwise(int simd, struct be *b)
{
    struct sample s = sample_new(4.0f);
    int64_t n = s.T * s.n;
    float *u = rng_floats(n, 2.0f), *y = malloc((size_t)n * sizeof *y);
    memcpy(y, s.x, (size_t)n * sizeof *y);
    be_add(b, y, u, s.T, s.n);
    for (int64_t i = 0; i < n; i++)
        assert_true(y[i] == s.x[i] + u[i]);
    s.x[0] = -100; /* exp overflows a float here */
    s.x[n - 1] = 90;
    memcpy(y, s.x, (size_t)n * sizeof *y);
    be_silu_mul(b, y, u, s.T, s.n);
    for (int64_t i = 0; i < n; i++)
        s.want[i] = s.x[i] * sigmoid(s.x[i]) * u[i];
    close_to("silu_mul", simd, y, s.want, n, 1e-6, 1e-30);
    memcpy(y, u, (size_t)n * sizeof *y);
    be_sigmoid_gate(b, y, s.x, s.n, s.T, s.n);
    for (int64_t i = 0; i < n; i++)
        s.want[i] = u[i] * sigmoid(s.x[i]);
    close_to("sigmoid_gate", simd, y, s.want, n, 1e-6, 1e-30);
    memcpy(y, s.x, (size_t)n * sizeof *y);
    be_gelu_mul(b, y, u, s.T, s.n);
    for (int64_t i = 0; i < n; i++) {
        double x = s.x[i];
        s.want[i] = 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) * u[i];
    }
    close_to("gelu_mul", simd, y, s.want, n, 3e-6, 1e-6); /* far below 0 the exponent's error grows with x³ */
    memcpy(y, s.x, (size_t)n * sizeof *y);
    be_softcap(b, y, 30.0f, s.T, s.n);
    for (int64_t i = 0; i < n; i++)
        s.want[i] = 30 * tanh((double)s.x[i] / 30);
    close_to("softcap", simd, y, s.want, n, 1e-6, 5e-5);
    memcpy(y, s.x, (size_t)n * sizeof *y);
    be_add_bias(b, y, s.w, s.T, s.n);
    be_scale(b, y, 3.25f, s.T, s.n);
    for (int64_t i = 0; i < n; i++)
        assert_true(y[i] == (s.x[i] + s.w[i % s.n]) * 3.25f);
    memcpy(y, s.x, (size_t)n * sizeof *y);
    be_row_gate(b, y, u, s.T, s.n);
    for (int64_t i = 0; i < n; i++)
        s.want[i] = s.x[i] * sigmoid(u[i / s.n]);
    close_to("row_gate", simd, y, s.want, n, 1e-6, 1e-30);
    free(u);
    free(y);
    sample_free(&s);
}

/* A gate that lies between other values, as in the output of attn_q of gated attention. */
static void strided_gate(int simd, struct be *b)
{
    int64_t T = 3, n = 37, stride = 101;
    float *x = rng_floats(T * n, 1.0f), *g = rng_floats(T * stride, 1.0f), y[3 * 37];
    double want[3 * 37];
    memcpy(y, x, sizeof y);
    be_sigmoid_gate(b, y, g, stride, T, n);
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < n; i++)
            want[t * n + i] = x[t * n + i] * sigmoid(g[t * stride + i]);
    close_to("sigmoid_gate with stride", simd, y, want, T * n, 1e-6, 1e-30);
    free(x);
    free(g);
}

/* An element's result may not depend on where in its row it stands. */
static void place_changes_no_bit(int simd, struct be *b)
{
    float *x = rng_floats(40, 3.0f), *u = rng_floats(40, 1.0f), y[40];
    memcpy(y, x, sizeof y);
    be_silu_mul(b, y, u, 1, 40);
    for (int64_t i = 0; i < 40; i++) {
        float g = x[i];
        be_silu_mul(b, &g, u + i, 1, 1);
        assert_memory_equal(&g, &y[i], sizeof g);
    }
    free(x);
    free(u);
}

static void not_finite_goes_through(int simd, struct be *b)
{
    float x[33], w[33], y[33];
    for (int i = 0; i < 33; i++)
        x[i] = w[i] = 1;
    x[32] = NAN;
    be_rmsnorm(b, y, x, w, 1, 33, 1e-6f);
    assert_true(isnan(y[0]) && isnan(y[32]));
    be_silu_mul(b, x, w, 1, 33);
    assert_true(isnan(x[32]) && isfinite(x[0]));
    x[32] = NAN;
    be_sigmoid_gate(b, w, x, 33, 1, 33);
    assert_true(isnan(w[32]) && isfinite(w[0]));
    be_softcap(b, x, 5.0f, 1, 33);
    be_gelu_mul(b, x, y, 1, 33);
    assert_true(isnan(x[32]));
}

static void rope(int simd, struct be *b)
{
    static const int dims[] = {64, 128, 32, 6};
    for (int k = 0; k < 8; k++) {
        int d = dims[k % 4], n_rot = k & 1 ? d : d / 2 / 2 * 2, heads = 1 + (int)rng_below(5);
        bool inter = k >= 4;
        int64_t T = 1 + rng_below(6), stride = heads * d + 3;
        float *x = rng_floats(T * stride, 1.0f), *y = malloc((size_t)(T * stride) * sizeof *y), freq[64];
        int32_t pos[6];
        struct be_rope r = {
            .n_rot = n_rot, .interleaved = inter, .freq = freq, .mscale = k & 2 ? 1.1f : 1.0f};
        double *want = malloc((size_t)(T * stride) * sizeof *want);
        memcpy(y, x, (size_t)(T * stride) * sizeof *y);
        for (int i = 0; i < n_rot / 2; i++)
            freq[i] = powf(1e6f, -2.0f * (float)i / (float)n_rot);
        for (int64_t i = 0; i < T * stride; i++)
            want[i] = x[i];
        for (int64_t t = 0; t < T; t++) {
            pos[t] = (int32_t)rng_below(k & 1 ? 3000000 : 100);
            for (int h = 0; h < heads; h++)
                for (int i = 0; i < n_rot / 2; i++) {
                    int64_t a = t * stride + h * d + (inter ? 2 * i : i), c = inter ? a + 1 : a + n_rot / 2;
                    double th = (double)pos[t] * freq[i], m = r.mscale;
                    want[a] = m * (x[a] * cos(th) - x[c] * sin(th));
                    want[c] = m * (x[a] * sin(th) + x[c] * cos(th));
                }
        }
        be_rope(b, y, T, stride, heads, d, &r, pos);
        close_to("rope", simd, y, want, T * stride, 1e-6, 1e-6);
        free(x);
        free(y);
        free(want);
    }
}

static void every_level(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        struct rig r = rig_new(simd, 2);
        for (int i = 0; i < 20; i++) {
            rmsnorm(simd, r.b);
            elementwise(simd, r.b);
        }
        strided_gate(simd, r.b);
        place_changes_no_bit(simd, r.b);
        not_finite_goes_through(simd, r.b);
        rope(simd, r.b);
        rig_free(&r);
    }
}

static void argmax(void **state)
{
    float x[100];
    for (int k = 0; k < 200; k++) {
        int64_t n = 1 + rng_below(100), best = 0;
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)rng_below(20);
        for (int64_t i = 1; i < n; i++)
            best = x[i] > x[best] ? i : best;
        assert_int_equal(be_argmax(x, n), best);
    }
    for (int i = 0; i < 100; i++)
        x[i] = -INFINITY;
    assert_int_equal(be_argmax(x, 100), 0);
}

static const float *by_value;

static int before(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (by_value[i] != by_value[k])
        return by_value[i] > by_value[k] ? -1 : 1;
    return i < k ? -1 : 1;
}

/* Beside a sort, with many that are equal, and both zeros among them. */
static void best(void **state)
{
    struct rig r = rig_new(-1, 2);
    for (int k = 0; k < 300; k++) {
        enum { T = 3 };
        int64_t n = 1 + rng_below(k % 3 ? 1000 : 80), levels = 1 + rng_below(k % 2 ? 5 : 100000);
        int64_t kept = n < BE_BEST ? n : BE_BEST;
        float *x = malloc((size_t)(T * n) * sizeof *x), values[T * BE_BEST];
        uint32_t ids[T * BE_BEST], *all = malloc((size_t)n * sizeof *all);
        for (int64_t i = 0; i < T * n; i++)
            x[i] = (float)(rng_below(levels) - levels / 2) * (rng_below(2) ? 1.0f : -1.0f);
        be_best(r.b, ids, values, NULL, x, T, n);
        for (int t = 0; t < T; t++) {
            by_value = x + t * n;
            for (int64_t i = 0; i < n; i++)
                all[i] = (uint32_t)i;
            qsort(all, (size_t)n, sizeof *all, before);
            assert_memory_equal(ids + t * BE_BEST, all, (size_t)kept * sizeof *all);
            for (int64_t i = 0; i < kept; i++)
                assert_memory_equal(&values[t * BE_BEST + i], &by_value[all[i]], sizeof *values);
        }
        static const float odd[] = {NAN, INFINITY, -INFINITY};
        x[n + rng_below(n)] = odd[k % 3];
        be_best(r.b, ids, values, NULL, x, T, n);
        for (int t = 0; t < T; t++)
            assert_int_equal(isfinite(values[t * BE_BEST]), t != 1);
        free(x);
        free(all);
    }
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level),
        cmocka_unit_test(argmax),
        cmocka_unit_test(best),
    };
    rng_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
