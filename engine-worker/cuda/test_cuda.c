/* CUDA operations other than matmuls, experts and attention beside the CPU's on fresh random inputs, odd sizes among them, and those
 * that do several in one go. Without a GPU the test says so and counts as
 * skipped (exit code 77). */
#include "test_device.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused),  cmocka_unit_test(stream),      cmocka_unit_test(row_operations),
        cmocka_unit_test(rotary), cmocka_unit_test(moving_rows), cmocka_unit_test(best),
        cmocka_unit_test(delta),  cmocka_unit_test(delta_cut),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return device_tests("cuda", tests, sizeof tests / sizeof tests[0]);
}
