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
template <typename F> static float time_ms(struct cu *c, int per, F fn)
{
    float ms[REPEATS];
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    for (int i = 0; i < 3; i++)
        fn(i);
    for (int r = 0; r < REPEATS; r++) {
        cudaEventRecord(a, c->stream);
        for (int i = 0; i < per; i++)
            fn(r * per + i);
        cudaEventRecord(b, c->stream);
        cudaEventSynchronize(b);
        cudaEventElapsedTime(&ms[r], a, b);
        ms[r] /= (float)per;
    }
    qsort(ms, REPEATS, sizeof *ms, by_size);
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    return ms[REPEATS / 2];
}

static void die(const struct vt_err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static double copy_bandwidth(struct cu *c)
{
    size_t n = (size_t)2 << 30;
    void *a, *b;
    struct vt_err err;
    if (cu_alloc(c, &a, n, &err) < 0 || cu_alloc(c, &b, n, &err) < 0)
        die(&err);
    cu_zero(c, a, n);
    float ms = time_ms(c, 1, [&](int) { cu_copy(c, b, a, n); });
    cu_release(c, a);
    cu_release(c, b);
    return 2 * (double)n / ms / 1e6;
}

/* Random bytes with finite scales are made on the device by copying one random block stream. */
static void weight(struct cu *c, struct cu_weight *w, uint32_t type, int64_t n_in, int64_t n_out)
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
    if (cu_weight_new(c, w, &h, &err) < 0)
        die(&err);
    free(bytes);
}

static const struct {
    uint32_t type;
    const char *name;
} types[] = {{GT_Q4_K, "Q4_K"}, {GT_Q5_K, "Q5_K"}, {GT_Q6_K, "Q6_K"},
             {GT_Q8_0, "Q8_0"}, {GT_Q4_0, "Q4_0"}, {GT_F16, "F16"}};

extern "C" int bench_cuda(void)
{
    struct cu *c;
    struct vt_err err;
    struct cu_facts f;
    if (cu_count() == 0) {
        fprintf(stderr, "there is no GPU\n");
        return 77;
    }
    if (cu_facts(&f, 0, &err) < 0 || cu_new(&c, 0, 2048, 16384, &err) < 0)
        die(&err);
    double copy = copy_bandwidth(c);
    printf("%s, sm_%d, %d multiprocessors; copy %.0f GB/s (read and written)\n\n", f.name, f.sm,
           f.multiprocessors, copy);
    printf("| matmul | shape | rows | us | GB/s of weights | of copy | TFLOP/s "
           "|\n|---|---|---:|---:|---:|---:|---:|\n");
    static const int64_t shape[][2] = {{4096, 4096}, {4096, 14336}, {14336, 4096}, {1024, 3072}};
    static const int64_t rows[] = {1, 2, 4, 8, 32, 512, 2048};
    for (auto &t : types)
        for (auto &s : shape) {
            struct cu_weight w[24];
            size_t bytes = cu_weight_bytes(t.type, s[0], s[1]);
            int n = (int)(((size_t)300 << 20) / bytes) + 1;
            n = n > 24 ? 24 : n;
            for (int i = 0; i < n; i++)
                if (i == 0)
                    weight(c, &w[i], t.type, s[0], s[1]);
                else {
                    w[i] = w[0];
                    if (cu_alloc(c, &w[i].memory, bytes, &err) < 0)
                        die(&err);
                    cu_copy(c, w[i].memory, w[0].memory, bytes);
                    for (int k = 0; k < 4; k++)
                        w[i].plane[k] = (uint8_t *)w[i].memory + (w[0].plane[k] - (uint8_t *)w[0].memory);
                }
            float *x, *y;
            if (cu_alloc(c, (void **)&x, 2048 * s[0] * 4, &err) < 0 ||
                cu_alloc(c, (void **)&y, 2048 * s[1] * 4, &err) < 0)
                die(&err);
            float *hx = (float *)malloc(2048 * s[0] * 4);
            for (int64_t i = 0; i < 2048 * s[0]; i++)
                hx[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
            cu_write(c, x, hx, 2048 * s[0] * 4);
            free(hx);
            for (auto T : rows) {
                float ms = time_ms(c, T > 32 ? 2 : n, [&](int i) { cu_matmul(c, y, &w[i % n], x, T); });
                printf("| %s | %lld x %lld | %lld | %.1f | %.0f | %.0f %% | %.1f |\n", t.name,
                       (long long)s[0], (long long)s[1], (long long)T, 1000 * ms, (double)bytes / ms / 1e6,
                       100 * (double)bytes / ms / 1e6 / copy, 2e-9 * (double)(T * s[0]) * (double)s[1] / ms);
            }
            for (int i = 0; i < n; i++)
                cu_weight_free(c, &w[i]);
            cu_release(c, x);
            cu_release(c, y);
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
            size_t page = (size_t)a.n_kv_head * BE_PAGE * 128 * 2;
            uint16_t *k, *v, **dtable;
            if (cu_alloc(c, (void **)&k, page * pages * rows8, &err) < 0 ||
                cu_alloc(c, (void **)&v, page * pages * rows8, &err) < 0)
                die(&err);
            cu_zero(c, k, page * pages * rows8);
            cu_zero(c, v, page * pages * rows8);
            uint16_t **table = (uint16_t **)malloc(2 * sizeof *table * pages * rows8);
            if (cu_alloc(c, (void **)&dtable, 2 * sizeof *table * pages * rows8, &err) < 0)
                die(&err);
            struct cu_attn_run runs[8];
            int32_t row_run[8];
            for (int r = 0; r < rows8; r++) {
                for (int p = 0; p < pages; p++) {
                    table[2 * r * pages + p] = k + page / 2 * (r * pages + p);
                    table[(2 * r + 1) * pages + p] = v + page / 2 * (r * pages + p);
                }
                runs[r] = {r, 1, depth - 1, dtable + 2 * r * pages, dtable + (2 * r + 1) * pages};
                row_run[r] = r;
            }
            cu_write(c, dtable, table, 2 * sizeof *table * pages * rows8);
            struct cu_attn_run *dr;
            int32_t *drow;
            float *q, *out;
            if (cu_alloc(c, (void **)&dr, sizeof runs, &err) < 0 ||
                cu_alloc(c, (void **)&drow, sizeof row_run, &err) < 0 ||
                cu_alloc(c, (void **)&q, 8 * 32 * 128 * 4, &err) < 0 ||
                cu_alloc(c, (void **)&out, 8 * 32 * 128 * 4, &err) < 0)
                die(&err);
            cu_zero(c, q, 8 * 32 * 128 * 4);
            cu_write(c, dr, runs, sizeof runs);
            cu_write(c, drow, row_run, sizeof row_run);
            float ms = time_ms(c, 8, [&](int) { cu_attention(c, out, q, &a, dr, drow, rows8, depth - 1); });
            double bytes = 2.0 * (double)page * pages * rows8;
            printf("| 32 heads of 8, d 128 | %d | %d | %.1f | %.0f | %.0f %% |\n", depth, rows8, 1000 * ms,
                   bytes / ms / 1e6, 100 * bytes / ms / 1e6 / copy);
            cu_release(c, k);
            cu_release(c, v);
            cu_release(c, dtable);
            cu_release(c, dr);
            cu_release(c, drow);
            cu_release(c, q);
            cu_release(c, out);
            free(table);
        }
    if (cu_sync(c, &err) < 0)
        die(&err);
    cu_free(c);
    return 0;
}
