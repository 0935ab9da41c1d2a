/* Times the CUDA kernels beside the device's copy bandwidth, in one run: medians of graph-free launches between events, over
 * weights that together are several times the cache. */
#include "cu_priv.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 25

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Median milliseconds of fn(i). */
template <typename F> static float time_ms(struct be *b, int per, F fn)
{
    struct cu *c = cu_of(b);
    float ms[REPEATS];
    cudaEvent_t a, z;
    cudaEventCreate(&a);
    cudaEventCreate(&z);
    for (int i = 0; i < 3; i++)
        fn(i);
    for (int r = 0; r < REPEATS; r++) {
        cudaEventRecord(a, c->stream);
        for (int i = 0; i < per; i++)
            fn(r * per + i);
        cudaEventRecord(z, c->stream);
        cudaEventSynchronize(z);
        cudaEventElapsedTime(&ms[r], a, z);
        ms[r] /= (float)per;
    }
    qsort(ms, REPEATS, sizeof *ms, by_size);
    cudaEventDestroy(a);
    cudaEventDestroy(z);
    return ms[REPEATS / 2];
}

static void die(const struct vt_err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static double copy_bandwidth(struct be *g)
{
    size_t n = (size_t)2 << 30;
    void *from, *to;
    struct vt_err err;
    if (be_alloc(g, &from, n, &err) < 0 || be_alloc(g, &to, n, &err) < 0)
        die(&err);
    float ms = time_ms(g, 1, [&](int) { be_copy(g, to, from, n); });
    be_release(g, from, n);
    be_release(g, to, n);
    return 2 * (double)n / ms / 1e6;
}

/* Random bytes with finite scales are made on the device by copying one random block stream. */
static void weight(struct be *g, struct be_weight *w, uint32_t type, int64_t n_in, int64_t n_out)
{
    struct vt_err err;
    size_t n = ggml_row_bytes(type, (uint64_t)n_in) * (size_t)n_out;
    uint8_t *bytes = (uint8_t *)malloc(n);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (uint8_t)(x & 0x3b); /* no f16 of such bytes is infinite or NaN */
    }
    struct be_weight h = {type, n_in, n_out, bytes};
    if (be_upload(g, w, &h, 1, &err) < 0)
        die(&err);
    free(bytes);
}

static const struct {
    uint32_t type;
    const char *name;
} types[] = {{GT_Q4_K, "Q4_K"},     {GT_Q5_K, "Q5_K"},       {GT_Q6_K, "Q6_K"},   {GT_Q8_0, "Q8_0"},
             {GT_Q4_0, "Q4_0"},     {GT_F16, "F16"},         {GT_Q4_1, "Q4_1"},   {GT_Q5_0, "Q5_0"},
             {GT_Q5_1, "Q5_1"},     {GT_Q3_K, "Q3_K"},       {GT_Q2_K, "Q2_K"},   {GT_IQ4_XS, "IQ4_XS"},
             {GT_IQ4_NL, "IQ4_NL"}, {GT_MXFP4, "MXFP4"},     {GT_IQ3_S, "IQ3_S"}, {GT_IQ3_XXS, "IQ3_XXS"},
             {GT_IQ2_S, "IQ2_S"},   {GT_IQ2_XXS, "IQ2_XXS"}, {GT_IQ1_S, "IQ1_S"}};

/* Attention of prompts: T rows behind `depth` tokens; operations on keys that a row sees. */
static void prompts(struct be *g)
{
    enum { HEADS = 32, KV = 8, D = 128, MOST = 32768 + 2048 };
    struct vt_err err;
    struct be_attn a = {};
    a.n_head = HEADS;
    a.n_kv_head = KV;
    a.d = a.dv = D;
    a.scale = 0.088f;
    a.v_at = (size_t)KV * BE_PAGE * D * 2;
    uint8_t *kv, **dtable, *table[MOST / BE_PAGE];
    struct be_attn_run *dr;
    int32_t *drow;
    float *q, *out, *row = (float *)malloc(2048 * HEADS * D * 4);
    if (be_alloc(g, (void **)&kv, 2 * a.v_at * (MOST / BE_PAGE), &err) < 0 ||
        be_alloc(g, (void **)&dtable, sizeof table, &err) < 0 ||
        be_alloc(g, (void **)&dr, sizeof *dr, &err) < 0 ||
        be_alloc(g, (void **)&drow, 2048 * sizeof *drow, &err) < 0 ||
        be_alloc(g, (void **)&q, 2048 * HEADS * D * 4, &err) < 0 ||
        be_alloc(g, (void **)&out, 2048 * HEADS * D * 4, &err) < 0)
        die(&err);
    for (int p = 0; p < MOST / BE_PAGE; p++)
        table[p] = kv + 2 * a.v_at * (size_t)p;
    be_write(g, dtable, table, sizeof table);
    for (int64_t i = 0; i < 2048 * HEADS * D; i++)
        row[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
    be_write(g, q, row, 2048 * HEADS * D * 4);
    for (int32_t t = 0; t < MOST; t += 2048) { /* keys and values that are not zeros */
        struct be_attn_run run = {0, 2048, t, dtable};
        struct be_rows rows = {2048, 1, t + 2047, NULL, drow, dr};
        be_write(g, dr, &run, sizeof run);
        be_kv_write(g, &a, &rows, q, q + 1024 * KV * D);
    }
    printf("\n| prompt | rows | depth | us | TFLOP/s |\n|---|---:|---:|---:|---:|\n");
    static const int lengths[] = {32, 128, 512, 2048}, depths[] = {0, 4096, 32768};
    for (int T : lengths)
        for (int depth : depths) {
            struct be_attn_run run = {0, T, depth, dtable};
            struct be_rows rows = {T, 1, depth + T - 1, NULL, drow, dr};
            be_write(g, dr, &run, sizeof run);
            float ms = time_ms(g, 4, [&](int) { be_attention(g, out, q, &a, &rows); });
            double seen = (double)T * depth + (double)T * (T + 1) / 2;
            printf("| 32 heads of 8, d 128 | %d | %d | %.1f | %.1f |\n", T, depth, 1000 * ms,
                   4e-9 * HEADS * D * seen / ms);
        }
    free(row);
    void *all[] = {kv, dtable, dr, drow, q, out};
    for (void *p : all)
        be_release(g, p, 0);
}

static float *filled(struct be *g, int64_t n, float by)
{
    struct vt_err err;
    float *x, *h = (float *)malloc((size_t)n * 4);
    if (be_alloc(g, (void **)&x, (size_t)n * 4, &err) < 0)
        die(&err);
    for (int64_t i = 0; i < n; i++)
        h[i] = by * ((float)(i * 2654435761u % 1000) / 500 - 1);
    be_write(g, x, h, (size_t)n * 4);
    free(h);
    return x;
}

static float time_delta(struct be *g, const struct be_delta *shape, int64_t T)
{
    struct vt_err err;
    struct be_delta d = *shape;
    int64_t cd = 2 * (int64_t)d.n_k_head * d.dk + (int64_t)d.n_v_head * d.dv, n = (int64_t)d.n_v_head * d.dv;
    float *conv = filled(g, cd * d.conv_k, 1), *dt = filled(g, d.n_v_head, 1),
          *a = filled(g, d.n_v_head, 0.1f), *norm = filled(g, d.dv, 1), *u = filled(g, T * cd, 1),
          *z = filled(g, T * n, 1), *out = filled(g, T * n, 0), *bt = filled(g, T * d.n_v_head, 1),
          *at = filled(g, T * d.n_v_head, 1), *state = filled(g, (int64_t)be_delta_state_floats(&d), 0.1f);
    struct be_delta_run run = {0, T, state}, *dr;
    if (be_alloc(g, (void **)&dr, sizeof run, &err) < 0)
        die(&err);
    be_write(g, dr, &run, sizeof run);
    d.conv_w = conv;
    d.dt_bias = dt;
    d.a = a;
    d.norm_w = norm;
    float ms = time_ms(g, 4, [&](int) { be_delta_net(g, out, &d, u, z, bt, at, dr, 1, T); });
    void *all[] = {conv, dt, a, norm, u, z, out, bt, at, state, dr};
    for (void *p : all)
        be_release(g, p, 0);
    return ms;
}

/* Chunks beside rows one after the other, which is what a GPU without tensor cores does. */
static void deltas(struct be *g)
{
    struct vt_err err;
    struct be *serial;
    if (vitriol_gpu.backend(&serial, 0, &err) < 0 || be_reserve(serial, 2048, 16384, &err) < 0 ||
        cu_plain_only(serial, &err) < 0)
        die(&err);
    printf("\n| delta net | rows | us | serial us |\n|---|---:|---:|---:|\n");
    static const int heads[] = {32, 48}, lengths[] = {1, 16, 17, 64, 256, 512, 2048};
    for (int n : heads)
        for (int T : lengths) {
            struct be_delta d = {16, n, 128, 128, 4, true, 1e-6f};
            printf("| 16 and %d heads of 128 | %d | %.1f | %.1f |\n", n, T, 1000 * time_delta(g, &d, T),
                   1000 * time_delta(serial, &d, T));
        }
    be_free(serial);
}

/* The best of rows of logits beside bringing the rows to the host. */
static void bests(struct be *g)
{
    enum { N = 151936, MOST = 32 };
    struct vt_err err;
    void *host;
    if (be_alloc_host(g, &host, (size_t)MOST * N * 4, &err) < 0)
        die(&err);
    float *x = filled(g, (int64_t)MOST * N, 1), *values = filled(g, MOST * 2 * BE_BEST, 0),
          *room = filled(g, MOST * (int64_t)be_best_room(N), 0);
    printf(
        "\n| best %d of %d | rows | us | and read, us | whole rows read, us |\n|---|---:|---:|---:|---:|\n",
        BE_BEST, N);
    for (int T = 1; T <= MOST; T *= 2) {
        auto best = [&](int) { be_best(g, (uint32_t *)values + T * BE_BEST, values, room, x, T, N); };
        float alone = time_ms(g, 8, best), with = time_ms(g, 1, [&](int i) {
                                               best(i);
                                               be_read(g, host, values, (size_t)T * BE_BEST * 8, &err);
                                           });
        float whole = time_ms(g, 1, [&](int) { be_read(g, host, x, (size_t)T * N * 4, &err); });
        printf("| logits | %d | %.1f | %.1f | %.1f |\n", T, 1000 * alone, 1000 * with, 1000 * whole);
    }
    be_release_host(g, host);
    void *all[] = {x, values, room};
    for (void *p : all)
        be_release(g, p, 0);
}

extern "C" int bench_cuda(void)
{
    struct be *g;
    struct vt_err err;
    struct gpu_facts f;
    if (vitriol_gpu.count() == 0) {
        fprintf(stderr, "there is no GPU\n");
        return 77;
    }
    if (vitriol_gpu.facts(&f, 0, &err) < 0 || vitriol_gpu.backend(&g, 0, &err) < 0 ||
        be_reserve(g, 2048, 16384, &err) < 0)
        die(&err);
    double copy = copy_bandwidth(g);
    printf("%s, sm_%d, %d multiprocessors; copy %.0f GB/s (read and written)\n\n", f.name, f.sm,
           f.multiprocessors, copy);
    printf("| matmul | shape | rows | us | GB/s of weights | of copy | TFLOP/s "
           "|\n|---|---|---:|---:|---:|---:|---:|\n");
    static const int64_t shape[][2] = {{4096, 4096}, {4096, 14336}, {14336, 4096}, {1024, 3072}};
    static const int64_t rows[] = {1, 2, 4, 8, 32, 512, 2048};
    for (auto &t : types)
        for (auto &s : shape) {
            struct be_weight w[24];
            const struct be_weight shape_of = {t.type, s[0], s[1], NULL};
            size_t bytes = be_weight_bytes(g, &shape_of, 1);
            int n = (int)(((size_t)300 << 20) / bytes) + 1;
            n = n > 24 ? 24 : n;
            for (int i = 0; i < n; i++)
                if (i == 0) {
                    weight(g, &w[i], t.type, s[0], s[1]);
                } else {
                    void *p;
                    w[i] = w[0];
                    if (be_alloc(g, &p, bytes, &err) < 0)
                        die(&err);
                    be_copy(g, p, w[0].data, bytes);
                    w[i].data = p;
                }
            float *x, *y;
            if (be_alloc(g, (void **)&x, 2048 * s[0] * 4, &err) < 0 ||
                be_alloc(g, (void **)&y, 2048 * s[1] * 4, &err) < 0)
                die(&err);
            float *hx = (float *)malloc(2048 * s[0] * 4);
            for (int64_t i = 0; i < 2048 * s[0]; i++)
                hx[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
            be_write(g, x, hx, 2048 * s[0] * 4);
            free(hx);
            for (auto T : rows) {
                float ms = time_ms(g, T > 32 ? 2 : n, [&](int i) { be_matmul(g, y, &w[i % n], x, T); });
                printf("| %s | %lld x %lld | %lld | %.1f | %.0f | %.0f %% | %.1f |\n", t.name,
                       (long long)s[0], (long long)s[1], (long long)T, 1000 * ms, (double)bytes / ms / 1e6,
                       100 * (double)bytes / ms / 1e6 / copy, 2e-9 * (double)(T * s[0]) * (double)s[1] / ms);
            }
            for (int i = 0; i < n; i++)
                be_release(g, (void *)w[i].data, bytes);
            be_release(g, x, 0);
            be_release(g, y, 0);
        }
    printf("\n| attention | depth | rows | us | GB/s of keys and values | of copy "
           "|\n|---|---:|---:|---:|---:|---:|\n");
    static const int depths[] = {512, 4096, 32768};
    for (int depth : depths)
        for (int rows8 = 1; rows8 <= 8; rows8 *= 8) {
            struct be_attn a = {};
            a.n_head = 32;
            a.n_kv_head = 8;
            a.d = a.dv = 128;
            a.scale = 0.088f;
            int pages = depth / BE_PAGE;
            a.v_at = (size_t)a.n_kv_head * BE_PAGE * 128 * 2;
            size_t page = 2 * a.v_at, all = page * (size_t)(pages * rows8);
            uint8_t *kv, **dtable, *table[32768 / BE_PAGE * 8];
            struct be_attn_run runs[8], *dr;
            int32_t row_run[8], *drow;
            float *q, *out;
            if (be_alloc(g, (void **)&kv, all, &err) < 0 ||
                be_alloc(g, (void **)&dtable, sizeof table, &err) < 0 ||
                be_alloc(g, (void **)&dr, sizeof runs, &err) < 0 ||
                be_alloc(g, (void **)&drow, sizeof row_run, &err) < 0 ||
                be_alloc(g, (void **)&q, 8 * 32 * 128 * 4, &err) < 0 ||
                be_alloc(g, (void **)&out, 8 * 32 * 128 * 4, &err) < 0)
                die(&err);
            for (int p = 0; p < pages * rows8; p++)
                table[p] = kv + page * (size_t)p;
            for (int r = 0; r < rows8; r++) {
                runs[r] = {r, 1, depth - 1, dtable + r * pages};
                row_run[r] = r;
            }
            be_write(g, dtable, table, sizeof table);
            be_write(g, dr, runs, sizeof runs);
            be_write(g, drow, row_run, sizeof row_run);
            struct be_rows rows = {rows8, rows8, depth - 1, NULL, drow, dr};
            float ms = time_ms(g, 8, [&](int) { be_attention(g, out, q, &a, &rows); });
            double bytes = (double)all;
            printf("| 32 heads of 8, d 128 | %d | %d | %.1f | %.0f | %.0f %% |\n", depth, rows8, 1000 * ms,
                   bytes / ms / 1e6, 100 * bytes / ms / 1e6 / copy);
            be_release(g, kv, 0);
            be_release(g, dtable, 0);
            be_release(g, dr, 0);
            be_release(g, drow, 0);
            be_release(g, q, 0);
            be_release(g, out, 0);
        }
    prompts(g);
    deltas(g);
    bests(g);
    if (be_sync(g, &err) < 0)
        die(&err);
    be_free(g);
    return 0;
}
