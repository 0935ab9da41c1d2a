/* bench_matmul: speed of the matmul kernels for each weight type and number of tokens, beside what memory gives.
 *
 *   bench_matmul [-t THREADS] [-s ref|sse2|avx|avx2|avx512] [-i N_IN] [-o N_OUT] [-c COPIES] [-T TOKENS] [-u] [TYPE …]
 *
 * Weights are as many copies of an N_OUT x N_IN matrix as -c says (default: 512 MiB in all), walked one after another, so that
 * they come from memory as in a model. -u takes the calling thread's processor time instead of the time elapsed: with -t 1 it
 * says what a kernel costs on a machine that others use too. Prints the median of repeats: GB/s of weight bytes and G multiply-adds/s x 2. */
#include "backend.h"
#include "gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

struct read_job {
    const uint8_t *data;
    size_t per_piece;
    uint64_t sum[64];
};

/* Eight independent sums of 64-bit words: as fast as one core can read. */
static void read_piece(void *arg, int64_t i)
{
    struct read_job *j = arg;
    const uint64_t *p = (const uint64_t *)(j->data + (size_t)i * j->per_piece);
    uint64_t s[8] = {0};
    for (size_t k = 0; k + 8 <= j->per_piece / 8; k += 8)
        for (int m = 0; m < 8; m++)
            s[m] += p[k + (size_t)m];
    for (int m = 0; m < 8; m++)
        j->sum[i] += s[m];
}

static double read_speed(struct be_pool *pool, const uint8_t *data, size_t bytes)
{
    double t[7];
    int n = be_pool_threads(pool) * 4;
    n = n < 64 ? n : 64;
    struct read_job j = {.data = data, .per_piece = bytes / (size_t)n / 64 * 64};
    for (int i = 0; i < 7; i++) {
        double t0 = now();
        be_pool_run(pool, read_piece, &j, n);
        t[i] = now() - t0;
    }
    volatile uint64_t sink = j.sum[0];
    (void)sink;
    return (double)(j.per_piece * (size_t)n) / median(t, 7) * 1e-9;
}

struct copy_job {
    uint8_t *dst;
    const uint8_t *src;
    size_t per_piece;
};

static void copy_piece(void *arg, int64_t i)
{
    struct copy_job *j = arg;
    memcpy(j->dst + (size_t)i * j->per_piece, j->src + (size_t)i * j->per_piece, j->per_piece);
}

static double copy_speed(struct be_pool *pool, uint8_t *data, size_t bytes)
{
    double t[7];
    int64_t n = be_pool_threads(pool) * 4;
    struct copy_job j = {.dst = data, .src = data + bytes / 2, .per_piece = bytes / 2 / (size_t)n};
    for (int i = 0; i < 7; i++) {
        double t0 = now();
        be_pool_run(pool, copy_piece, &j, n);
        t[i] = now() - t0;
    }
    return (double)(j.per_piece * (size_t)n) / median(t, 7) * 1e-9;
}

static void fill(uint8_t *b, size_t bytes, uint32_t type)
{
    int64_t block, size;
    uint64_t r = 88172645463325252u;
    ggml_block(type, &block, &size);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        r ^= r << 13;
        r ^= r >> 7;
        r ^= r << 17;
        uint64_t v = type == GT_F32   ? (r & 0x3fffffff3fffffff)
                     : type == GT_F16 ? (r & 0x3bff3bff3bff3bff)
                                      : r;
        memcpy(b + i, &v, 8);
    }
    uint16_t d = be_f32_to_f16(0.01f);
    for (size_t i = 0; block > 1 && i + (size_t)size <= bytes; i += (size_t)size) {
        memcpy(b + i, &d, 2);
        memcpy(b + i + 2, &d,
               type == GT_Q4_K || type == GT_Q5_K || type == GT_Q4_1 || type == GT_Q5_1 ? 2 : 0);
        memcpy(b + i + size - 2, &d, type == GT_Q6_K || type == GT_Q3_K || type == GT_Q2_K ? 2 : 0);
    }
}

struct setup {
    struct be *b;
    int64_t n_in, n_out;
    int copies; /* 0: fill the memory given */
    uint8_t *data;
    size_t bytes;
    int only; /* number of tokens, 0: the usual ones */
};

static void bench(const struct setup *s, uint32_t type)
{
    static const int tokens[] = {1, 2, 3, 4, 8, 16, 64, 256, 512};
    size_t one = ggml_row_bytes(type, (uint64_t)s->n_in) * (size_t)s->n_out;
    int copies = s->copies > 0 ? s->copies : (int)(s->bytes / one);
    fill(s->data, one * (size_t)copies, type);
    for (size_t k = 0; k < sizeof tokens / sizeof tokens[0]; k++) {
        int64_t T = s->only > 0 ? s->only : tokens[k];
        if (s->only > 0 && k > 0)
            break;
        float *x = malloc((size_t)(T * s->n_in) * 4), *y = malloc((size_t)(T * s->n_out) * 4);
        double t[9];
        for (int64_t i = 0; i < T * s->n_in; i++)
            x[i] = (float)((i * 7919) % 2001 - 1000) * 1e-3f;
        int most = T < 512 ? (int)(512 / T) : 1, use = copies < most ? copies : most;
        int reps = T < 8 ? 9 : 5;
        for (int i = -1; i < reps; i++) {
            double t0 = now();
            for (int c = 0; c < use; c++) {
                struct be_weight w = {
                    .type = type, .n_in = s->n_in, .n_out = s->n_out, .data = s->data + one * (size_t)c};
                be_matmul(s->b, y, &w, x, T);
            }
            if (i >= 0)
                t[i] = (now() - t0) / use;
        }
        double sec = median(t, reps);
        printf("%-8s T=%-4d %9.1f us %8.2f GB/s %9.1f Gop/s\n", ggml_type_name(type), (int)T, sec * 1e6,
               (double)one / sec * 1e-9, 2.0 * (double)(s->n_in * s->n_out * T) / sec * 1e-9);
        fflush(stdout);
        free(x);
        free(y);
    }
}

static int level_of(const char *name)
{
    for (int i = 0; i <= BE_AVX512; i++)
        if (strcmp(name, be_simd_name((enum be_simd)i)) == 0)
            return i;
    return BE_AVX512 + 1; /* be_new will refuse it */
}

static const uint32_t all[] = {
    GT_F32,    GT_F16,     GT_BF16,  GT_Q8_0,   GT_Q4_0,   GT_Q4_1,  GT_Q5_0,  GT_Q5_1,  GT_Q2_K,    GT_Q3_K,
    GT_Q4_K,   GT_Q5_K,    GT_Q6_K,  GT_IQ4_NL, GT_IQ4_XS, GT_MXFP4, GT_NVFP4, GT_IQ3_S, GT_IQ3_XXS, GT_IQ2_S,
    GT_IQ2_XS, GT_IQ2_XXS, GT_IQ1_M, GT_IQ1_S,  GT_TQ2_0,  GT_TQ1_0, GT_Q2_0,  GT_Q1_0,  GT_Q8_1,    GT_Q8_K};
#define N_ALL (sizeof all / sizeof all[0])

static void bench_named(const struct setup *s, char **names, int n)
{
    for (size_t i = 0; i < N_ALL; i++) {
        bool wanted = n == 0;
        for (int k = 0; k < n; k++)
            wanted = wanted || strcmp(names[k], ggml_type_name(all[i])) == 0;
        if (wanted)
            bench(s, all[i]);
    }
}

int main(int argc, char **argv)
{
    struct setup s = {.n_in = 1024, .n_out = 3072, .bytes = (size_t)512 << 20};
    int threads = 0, simd = -1, opt;
    struct be_pool *pool;
    struct vt_err err;
    while ((opt = getopt(argc, argv, "t:s:i:o:c:T:u")) != -1) {
        switch (opt) {
        case 't': threads = atoi(optarg); break;
        case 's': simd = level_of(optarg); break;
        case 'i': s.n_in = atoll(optarg); break;
        case 'o': s.n_out = atoll(optarg); break;
        case 'c': s.copies = atoi(optarg); break;
        case 'T': s.only = atoi(optarg); break;
        case 'u': clock_id = CLOCK_THREAD_CPUTIME_ID; break;
        default:
            fprintf(stderr, "usage: bench_matmul [-t n] [-s level] [-i n_in] [-o n_out] [-c copies] [-T "
                            "tokens] [-u] [TYPE ...]\n");
            return 64;
        }
    }
    size_t most = (size_t)(s.n_in * s.n_out) * 4 * (size_t)(s.copies > 0 ? s.copies : 1);
    if (s.bytes < most)
        s.bytes = most;
    s.data = aligned_alloc(64, (s.bytes + 63) / 64 * 64);
    if (s.data == NULL || be_pool_new(&pool, threads, &err) < 0 || be_new(&s.b, pool, simd, &err) < 0) {
        fprintf(stderr, "bench_matmul: %s\n", s.data == NULL ? "no memory" : err.text);
        return 1;
    }
    memset(s.data, 1, s.bytes);
    printf("%s, %d threads, %lld x %lld; memory read %.1f GB/s, copied %.1f GB/s\n",
           be_simd_name(be_simd_of(s.b)), be_pool_threads(pool), (long long)s.n_in, (long long)s.n_out,
           read_speed(pool, s.data, s.bytes), copy_speed(pool, s.data, s.bytes));
    bench_named(&s, argv + optind, argc - optind);
    be_free(s.b);
    be_pool_free(pool);
    free(s.data);
    return 0;
}
