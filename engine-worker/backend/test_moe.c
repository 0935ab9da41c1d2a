#include "test_util.h"

/* ---- choice ---- */

struct chosen {
    int32_t ids[BE_USED_MAX];
    double w[BE_USED_MAX];
    double
        gap; /* smallest distance between two neighbours in the order: nearer than a float tells, they may swap */
};

/* By definition: all probabilities, then the best one again and again. */
static struct chosen route_double(const struct be_route *r, const float *logits)
{
    struct chosen c;
    double p[BE_EXPERTS_MAX], max = -1e300, sum = 0, last = INFINITY;
    bool taken[BE_EXPERTS_MAX] = {false};
    for (int e = 0; e < r->n_expert; e++)
        max = fmax(max, logits[e]);
    for (int e = 0; e < r->n_expert; e++)
        sum += p[e] = exp(logits[e] - max);
    for (int e = 0; e < r->n_expert; e++)
        p[e] = r->sigmoid ? 1 / (1 + exp(-(double)logits[e])) : p[e] / sum;
    sum = 0;
    c.gap = INFINITY;
    for (int j = 0; j <= r->n_used && j < r->n_expert; j++) {
        int best = -1;
        for (int e = 0; e < r->n_expert; e++) {
            double s = p[e] + (r->bias ? r->bias[e] : 0);
            if (!taken[e] && (best < 0 || s > p[best] + (r->bias ? r->bias[best] : 0)))
                best = e;
        }
        taken[best] = true;
        double score = p[best] + (r->bias ? r->bias[best] : 0);
        c.gap = fmin(c.gap, last - score);
        last = score;
        if (j == r->n_used)
            break;
        c.ids[j] = best;
        sum += c.w[j] = p[best];
    }
    for (int j = 0; j < r->n_used; j++)
        c.w[j] *= (double)r->scale / (r->normalize ? sum : 1);
    return c;
}

static void choices(void **state)
{
    struct rig g = rig_new(-1, 2);
    for (int k = 0; k < 200; k++) {
        int n = 1 + (int)rng_below(k % 8 ? 64 : BE_EXPERTS_MAX);
        struct be_route r = {.n_expert = n,
                             .n_used = 1 + (int)rng_below(n < 10 ? n : 10),
                             .sigmoid = rng() & 1,
                             .normalize = rng() & 1,
                             .scale = rng() & 1 ? 1.0f : 2.5f};
        int64_t T = 1 + rng_below(40);
        float *logits = rng_floats(T * n, 2.0f), *bias = rng_floats(n, 0.3f);
        float w[40 * 10];
        int32_t ids[40 * 10];
        r.bias = k % 3 == 0 ? bias : NULL;
        be_moe_route(g.b, ids, w, logits, &r, T);
        for (int64_t t = 0; t < T; t++) {
            struct chosen want = route_double(&r, logits + t * n);
            for (int j = 0; j < r.n_used && (!r.bias || want.gap > 1e-6); j++) {
                double off = fabs(w[t * r.n_used + j] - want.w[j]);
                if (ids[t * r.n_used + j] != want.ids[j] || !(off <= 2e-6 * want.w[j] + 1e-9))
                    fail_msg("expert %d of %d with weight %g instead of %d with %g", ids[t * r.n_used + j], n,
                             (double)w[t * r.n_used + j], want.ids[j], want.w[j]);
            }
        }
        free(logits);
        free(bias);
    }
    rig_free(&g);
}

/* Equal logits: the lower number, as often as it takes; not a number: nothing breaks, and it is seen. */
static void ties_and_nan(void **state)
{
    struct rig g = rig_new(-1, 1);
    struct be_route r = {.n_expert = 6, .n_used = 4, .normalize = true, .scale = 1};
    float logits[6] = {1, 3, 3, 1, 3, 1}, w[4];
    int32_t ids[4];
    be_moe_route(g.b, ids, w, logits, &r, 1);
    assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 4 && ids[3] == 0);
    for (int e = 0; e < 6; e++)
        logits[e] = NAN;
    be_moe_route(g.b, ids, w, logits, &r, 1);
    for (int j = 0; j < 4; j++)
        assert_true(ids[j] >= 0 && ids[j] < 6 && isnan(w[j]));
    rig_free(&g);
}

/* ---- the experts ---- */

struct layer {
    struct be_route r;
    uint32_t type;
    int64_t n_in, n_out;
    struct be_weight w[2][64];
    uint8_t *data[2][64];
};

static void layer_new(struct layer *l, uint32_t type)
{
    *l = (struct layer){.type = type, .n_in = 256 * (1 + rng_below(2)), .n_out = 1 + rng_below(70)};
    l->r = (struct be_route){.n_expert = 2 + (int)rng_below(30), .normalize = true, .scale = 1};
    l->r.n_used = 1 + (int)rng_below(l->r.n_expert < 8 ? l->r.n_expert : 8);
    for (int k = 0; k < 2; k++)
        for (int e = 0; e < l->r.n_expert; e++)
            l->data[k][e] = rng_weight(&l->w[k][e], type, l->n_in, l->n_out);
}

static void layer_free(struct layer *l)
{
    for (int k = 0; k < 2; k++)
        for (int e = 0; e < l->r.n_expert; e++)
            free(l->data[k][e]);
}

/* Two weights an expert, added and mixed: out [T][n_out]. */
static void experts(struct be *b, const struct layer *l, const float *x, const float *logits, int64_t T,
                    float *out)
{
    const struct be_route *r = &l->r;
    int64_t pairs = T * r->n_used, first[BE_EXPERTS_MAX + 1];
    int32_t *ids = malloc((size_t)pairs * sizeof *ids), *at = malloc((size_t)pairs * sizeof *at);
    float *w = malloc((size_t)pairs * sizeof *w), *xs = malloc((size_t)(pairs * l->n_in) * sizeof *xs);
    float *y0 = malloc((size_t)(pairs * l->n_out) * sizeof *y0),
          *y1 = malloc((size_t)(pairs * l->n_out) * sizeof *y1);
    const struct be_weight *ws[] = {l->w[0], l->w[1]};
    float *ys[] = {y0, y1};
    be_moe_route(b, ids, w, logits, r, T);
    be_moe_sort(b, at, first, ids, r, T);
    assert_int_equal(first[r->n_expert], pairs);
    be_moe_gather(b, xs, x, at, r, T, l->n_in);
    be_moe_matmul(b, ys, ws, 2, xs, first, r, T);
    be_add(b, y0, y1, pairs, l->n_out);
    be_moe_combine(b, out, y0, w, at, r, T, l->n_out);
    free(ids);
    free(at);
    free(w);
    free(xs);
    free(y0);
    free(y1);
}

/* Against one be_matmul a pair, which has its own test against double: the same bits, since grouping changes no row. */
static void equals_single_matmuls(struct be *b, const struct layer *l, const float *x, const float *logits,
                                  int64_t T, const float *out)
{
    float y[2][80], want[80];
    for (int64_t t = 0; t < T; t++) {
        int32_t ids[BE_USED_MAX];
        float w[BE_USED_MAX];
        be_moe_route(b, ids, w, logits + t * l->r.n_expert, &l->r, 1);
        memset(want, 0, sizeof want);
        for (int j = 0; j < l->r.n_used; j++) {
            be_matmul(b, y[0], &l->w[0][ids[j]], x + t * l->n_in, 1);
            be_matmul(b, y[1], &l->w[1][ids[j]], x + t * l->n_in, 1);
            for (int64_t c = 0; c < l->n_out; c++)
                want[c] += w[j] * (y[0][c] + y[1][c]);
        }
        assert_memory_equal(out + t * l->n_out, want, (size_t)l->n_out * sizeof *want);
    }
}

static void grouping_changes_no_bit(void **state)
{
    static const uint32_t types[] = {GT_F32, GT_F16, GT_Q8_0, GT_Q4_K, GT_Q6_K, GT_Q5_0};
    for (int simd = 0; simd <= (int)be_simd_best(); simd++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            struct rig one = rig_new(simd, 1), three = rig_new(simd, 3);
            struct layer l;
            layer_new(&l, types[k]);
            int64_t T = 1 + rng_below(20);
            float *x = rng_floats(T * l.n_in, 1.0f), *logits = rng_floats(T * l.r.n_expert, 1.0f);
            float *a = malloc((size_t)(T * l.n_out) * sizeof *a),
                  *c = malloc((size_t)(T * l.n_out) * sizeof *c);
            experts(one.b, &l, x, logits, T, a);
            equals_single_matmuls(one.b, &l, x, logits, T, a);
            experts(three.b, &l, x, logits, T, c);
            assert_memory_equal(a, c, (size_t)(T * l.n_out) * sizeof *a);
            for (int64_t t = 0, n; t < T; t += n) { /* in chunks */
                n = 1 + rng_below(T - t);
                experts(three.b, &l, x + t * l.n_in, logits + t * l.r.n_expert, n, c + t * l.n_out);
            }
            assert_memory_equal(a, c, (size_t)(T * l.n_out) * sizeof *a);
            free(x);
            free(logits);
            free(a);
            free(c);
            layer_free(&l);
            rig_free(&one);
            rig_free(&three);
        }
}

/* The whole block with F32 weights against double. */
static void against_double(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        struct rig g = rig_new(simd, 2);
        struct layer l;
        layer_new(&l, GT_F32);
        int64_t T = 9;
        float *x = rng_floats(T * l.n_in, 1.0f), *logits = rng_floats(T * l.r.n_expert, 1.0f);
        float *out = malloc((size_t)(T * l.n_out) * sizeof *out);
        experts(g.b, &l, x, logits, T, out);
        for (int64_t t = 0; t < T; t++) {
            struct chosen c = route_double(&l.r, logits + t * l.r.n_expert);
            for (int64_t o = 0; o < l.n_out; o++) {
                double want = 0, mag = 0;
                for (int j = 0; j < l.r.n_used; j++)
                    for (int k = 0; k < 2; k++)
                        for (int64_t i = 0; i < l.n_in; i++) {
                            double v = c.w[j] * (double)x[t * l.n_in + i] *
                                       ((const float *)(const void *)l.data[k][c.ids[j]])[o * l.n_in + i];
                            want += v;
                            mag += fabs(v);
                        }
                assert_true(fabs(out[t * l.n_out + o] - want) <= 1e-6 * mag);
            }
        }
        free(x);
        free(logits);
        free(out);
        layer_free(&l);
        rig_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),
        cmocka_unit_test(ties_and_nan),
        cmocka_unit_test(grouping_changes_no_bit),
        cmocka_unit_test(against_double),
    };
    rng_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
