/* Experts on a GPU beside the CPU's, one operation after another and in one go. Without a GPU the test says so and counts as
 * skipped (exit code 77). */
#include "test_device.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts),
        cmocka_unit_test(parts_of_experts),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return device_tests("experts", tests, sizeof tests / sizeof tests[0]);
}
