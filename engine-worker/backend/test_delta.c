#include "test_util.h"

struct layer {
    struct be_delta d;
    int64_t cd, T;
    float *conv_w, *dt_bias, *a, *norm_w;
    float *u, *z, *bt, *at;
};

static struct layer layer_new(int nk, int nv, int dk, int dv, int taps, bool grouped, int64_t T)
{
    struct layer l = {.T = T, .cd = 2 * nk * dk + nv * dv};
    l.conv_w = rng_floats(l.cd * taps, 0.5f);
    l.dt_bias = rng_floats(nv, 0.5f);
    l.a = rng_floats(nv, 0.5f);
    l.norm_w = rng_floats(dv, 1.0f);
    for (int i = 0; i < nv; i++)
        l.a[i] = -0.05f - fabsf(l.a[i]);
    l.u = rng_floats(T * l.cd, 1.0f);
    l.z = rng_floats(T * nv * dv, 1.0f);
    l.bt = rng_floats(T * nv, 1.0f);
    l.at = rng_floats(T * nv, 1.0f);
    l.d = (struct be_delta){.n_k_head = nk,
                            .n_v_head = nv,
                            .dk = dk,
                            .dv = dv,
                            .conv_k = taps,
                            .grouped = grouped,
                            .eps = 1e-6f,
                            .conv_w = l.conv_w,
                            .dt_bias = l.dt_bias,
                            .a = l.a,
                            .norm_w = l.norm_w};
    return l;
}

static void layer_free(struct layer *l)
{
    free(l->conv_w);
    free(l->dt_bias);
    free(l->a);
    free(l->norm_w);
    free(l->u);
    free(l->z);
    free(l->bt);
    free(l->at);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void unit(double *x, int n, double scale)
{
    double s = 1e-6;
    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    for (int i = 0; i < n; i++)
        x[i] *= scale / sqrt(s);
}

/* The definition, in double, one head and token after another. */
static void in_double(const struct layer *l, double *out)
{
    const struct be_delta *d = &l->d;
    double *c = malloc((size_t)l->cd * sizeof *c),
           *S = calloc((size_t)d->n_v_head * d->dk * d->dv, sizeof *S);
    for (int64_t t = 0; t < l->T; t++) {
        for (int64_t ch = 0; ch < l->cd; ch++) {
            double s = 0;
            for (int j = 0; j < d->conv_k; j++)
                if (t - d->conv_k + 1 + j >= 0)
                    s += (double)l->conv_w[ch * d->conv_k + j] *
                         (double)l->u[(t - d->conv_k + 1 + j) * l->cd + ch];
            c[ch] = silu(s);
        }
        for (int h = 0; h < d->n_k_head; h++) {
            unit(c + h * d->dk, d->dk, 1 / sqrt(d->dk));
            unit(c + (d->n_k_head + h) * d->dk, d->dk, 1);
        }
        for (int h = 0; h < d->n_v_head; h++) {
            int kh = d->grouped ? h / (d->n_v_head / d->n_k_head) : h % d->n_k_head;
            double *q = c + kh * d->dk, *k = q + d->n_k_head * d->dk,
                   *v = c + 2 * d->n_k_head * d->dk + h * d->dv;
            double *s = S + (int64_t)h * d->dk * d->dv, *o = out + (t * d->n_v_head + h) * d->dv, sq = 0;
            double alpha =
                exp((double)l->a[h] * log1p(exp((double)(l->at[t * d->n_v_head + h] + l->dt_bias[h]))));
            double beta = 1 / (1 + exp(-(double)l->bt[t * d->n_v_head + h]));
            for (int j = 0; j < d->dv; j++) {
                double r = v[j];
                for (int i = 0; i < d->dk; i++)
                    r -= alpha * s[i * d->dv + j] * k[i];
                o[j] = 0;
                for (int i = 0; i < d->dk; i++) {
                    s[i * d->dv + j] = alpha * s[i * d->dv + j] + beta * r * k[i];
                    o[j] += s[i * d->dv + j] * q[i];
                }
                sq += o[j] * o[j];
            }
            for (int j = 0; j < d->dv; j++)
                o[j] *= (double)l->norm_w[j] / sqrt(sq / d->dv + 1e-6) *
                        silu((double)l->z[(t * d->n_v_head + h) * d->dv + j]);
        }
    }
    free(c);
    free(S);
}

static const struct {
    int nk, nv, dk, dv, taps;
    bool grouped;
} shapes[] = {{2, 4, 128, 128, 4, false},
              {2, 6, 32, 48, 4, true},
              {1, 1, 5, 7, 3, false},
              {3, 3, 64, 33, 2, true},
              {2, 2, 16, 100, 1, false}};
#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

static struct layer shape_new(int k, int64_t T)
{
    return layer_new(shapes[k].nk, shapes[k].nv, shapes[k].dk, shapes[k].dv, shapes[k].taps,
                     shapes[k].grouped, T);
}

/* Bound: 2e-4 of a row's largest value (the final norm may blow up a small o by its inverse). */
static void against_double(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        for (int k = 0; k < N_SHAPES; k++) {
            struct layer l = shape_new(k, 70);
            struct rig r = rig_new(simd, 2);
            int64_t n = (int64_t)l.d.n_v_head * l.d.dv;
            double *want = malloc((size_t)(l.T * n) * sizeof *want);
            float *out = malloc((size_t)(l.T * n) * sizeof *out);
            float *st = calloc(be_delta_state_floats(&l.d), sizeof *st);
            struct be_delta_run run = {.row0 = 0, .n_rows = l.T, .state = st};
            in_double(&l, want);
            be_delta_net(r.b, out, &l.d, l.u, l.z, l.bt, l.at, &run, 1, l.T);
            for (int64_t t = 0; t < l.T; t++) {
                double mag = 0;
                for (int64_t i = 0; i < n; i++)
                    mag = fmax(mag, fabs(want[t * n + i]));
                for (int64_t i = 0; i < n; i++)
                    if (!(fabs(out[t * n + i] - want[t * n + i]) <= 2e-4 * mag))
                        fail_msg("%s shape %d: row %lld value %lld is %.9g instead of %.9g",
                                 be_simd_name((enum be_simd)simd), k, (long long)t, (long long)i,
                                 (double)out[t * n + i], want[t * n + i]);
            }
            free(want);
            free(out);
            free(st);
            layer_free(&l);
            rig_free(&r);
        }
    }
}

static void copy_rows(float *dst, const float *src, int64_t to, int64_t from, int64_t n, int64_t width)
{
    memcpy(dst + to * width, src + from * width, (size_t)(n * width) * sizeof *dst);
}

/* Chunks of random sizes beside a second sequence give the same bits, in the output and in the state. */
static void chunks_and_neighbours_change_no_bit(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        for (int k = 0; k < N_SHAPES; k++) {
            struct layer l = shape_new(k, 60), b = shape_new(k, 60);
            struct rig one = rig_new(simd, 1), three = rig_new(simd, 3);
            int64_t nv = l.d.n_v_head, n = nv * l.d.dv;
            size_t st_n = be_delta_state_floats(&l.d);
            float *whole = calloc(st_n, 4), *parts = calloc(st_n, 4), *other = calloc(st_n, 4);
            float *out = malloc((size_t)(60 * n) * 4), *out2 = malloc((size_t)(120 * n) * 4);
            float *u = malloc((size_t)(120 * l.cd) * 4), *z = malloc((size_t)(120 * n) * 4);
            float *bt = malloc((size_t)(120 * nv) * 4), *at = malloc((size_t)(120 * nv) * 4);
            memcpy(u, l.u, (size_t)(60 * l.cd) * 4);
            struct be_delta_run run = {.row0 = 0, .n_rows = 60, .state = whole};
            be_delta_net(one.b, out, &l.d, u, l.z, l.bt, l.at, &run, 1, 60);
            for (int64_t p = 0, m; p < 60; p += m) {
                m = rng() & 1 ? 1 : 1 + rng_below(60 - p);
                int64_t beside = rng_below(30);
                copy_rows(u, b.u, 0, 0, beside, l.cd);
                copy_rows(u, l.u, beside, p, m, l.cd);
                copy_rows(z, b.z, 0, 0, beside, n);
                copy_rows(z, l.z, beside, p, m, n);
                copy_rows(bt, b.bt, 0, 0, beside, nv);
                copy_rows(bt, l.bt, beside, p, m, nv);
                copy_rows(at, b.at, 0, 0, beside, nv);
                copy_rows(at, l.at, beside, p, m, nv);
                struct be_delta_run runs[2] = {{.row0 = 0, .n_rows = beside, .state = other},
                                               {.row0 = beside, .n_rows = m, .state = parts}};
                be_delta_net(three.b, out2, &l.d, u, z, bt, at, runs, 2, beside + m);
                assert_memory_equal(out2 + beside * n, out + p * n, (size_t)(m * n) * 4);
            }
            assert_memory_equal(whole, parts, st_n * 4);
            free(whole);
            free(parts);
            free(other);
            free(out);
            free(out2);
            free(u);
            free(z);
            free(bt);
            free(at);
            layer_free(&l);
            layer_free(&b);
            rig_free(&one);
            rig_free(&three);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_double),
        cmocka_unit_test(chunks_and_neighbours_change_no_bit),
    };
    rng_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
