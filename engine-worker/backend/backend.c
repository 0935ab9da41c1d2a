#include "internal.h"

#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>

static const struct be_kernels *kernels_of(enum be_simd simd)
{
    switch (simd) {
    case BE_SSE2: return &be_kernels_sse2;
    case BE_AVX: return &be_kernels_avx;
    case BE_AVX2: return &be_kernels_avx2;
    case BE_AVX512: return &be_kernels_avx512;
    default: return &be_kernels_ref;
    }
}

/* Registers that the kernel saves across a switch: bits 1 and 2 for 256 bits, 5 to 7 for 512 and the masks. */
static uint32_t os_state(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}

enum be_simd be_simd_of_cpu(uint32_t c1, uint32_t b7, uint32_t os)
{
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if (!(c1 & bit_AVX) || (os & 0x06) != 0x06)
        return BE_SSE2;
    if (!(c1 & bit_FMA) || !(c1 & bit_F16C) || !(b7 & bit_AVX2))
        return BE_AVX;
    if ((b7 & avx512) != avx512 || (os & 0xe6) != 0xe6)
        return BE_AVX2;
    return BE_AVX512;
}

enum be_simd be_simd_best(void)
{
    uint32_t a, b, c1 = 0, b7 = 0, c, d;
    __get_cpuid(1, &a, &b, &c1, &d);
    __get_cpuid_count(7, 0, &a, &b7, &c, &d);
    return be_simd_of_cpu(c1, b7, os_state());
}

const char *be_simd_name(enum be_simd s)
{
    static const char *const name[] = {"ref", "sse2", "avx", "avx2", "avx512"};
    return (unsigned)s < sizeof name / sizeof name[0] ? name[s] : "unknown";
}

int be_new(struct be **out, struct be_pool *pool, int simd, struct vt_err *err)
{
    *out = NULL;
    enum be_simd best = be_simd_best();
    if (simd > BE_AVX512 || simd < -1)
        return vt_fail(err, VT_E_CONFIG, "there is no instruction set number %d", simd);
    if (simd > (int)best)
        return vt_fail(err, VT_E_CONFIG, "this processor has no %s; the best it has is %s",
                       be_simd_name((enum be_simd)simd), be_simd_name(best));
    struct be *b = calloc(1, sizeof *b);
    if (b == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the CPU backend");
    b->ops = cpu_table();
    b->k = kernels_of(simd < 0 ? best : (enum be_simd)simd);
    b->pool = pool;
    *out = b;
    return 0;
}

static void free_scratch(struct be *b)
{
    for (int i = 0; i < BE_X_N; i++) {
        free(b->q[i]);
        free(b->d[i]);
        free(b->s16[i]);
        free(b->s32[i]);
        b->q[i] = NULL;
        b->d[i] = NULL;
        b->s16[i] = b->s32[i] = NULL;
    }
}

void be_free(struct be *b)
{
    if (b == NULL)
        return;
    if (b->device != NULL)
        b->ops->fini(b);
    free_scratch(b);
    free(b);
}

enum be_simd be_simd_of(const struct be *b)
{
    return b->k->simd;
}

static void *lines(int64_t n, size_t size)
{
    return aligned_alloc(64, ((size_t)n * size + 63) / 64 * 64);
}

int cpu_reserve(struct be *b, int64_t max_rows, int64_t max_in, struct vt_err *err)
{
    max_rows = max_rows > b->max_rows ? max_rows : b->max_rows;
    max_in = max_in > b->max_in ? max_in : b->max_in;
    if (max_rows == b->max_rows && max_in == b->max_in)
        return 0;
    int64_t in = (max_in + 255) / 256 * 256;
    free_scratch(b);
    b->max_rows = b->max_in = 0;
    for (int i = BE_X_Q32; i < BE_X_N; i++) {
        b->q[i] = lines(max_rows * in, 1);
        b->d[i] = lines(max_rows * in / 32, sizeof(float));
        b->s16[i] = lines(max_rows * in / 16, sizeof(int16_t));
        b->s32[i] = lines(max_rows * in / 32, sizeof(int16_t));
        if (b->q[i] == NULL || b->d[i] == NULL || b->s16[i] == NULL || b->s32[i] == NULL) {
            free_scratch(b);
            return vt_fail(err, VT_E_NOMEM, "no memory for the activations of %lld rows of %lld values",
                           (long long)max_rows, (long long)max_in);
        }
    }
    b->max_rows = max_rows;
    b->max_in = max_in;
    return 0;
}

void be_need(struct be *b, int64_t rows, int64_t n)
{
    struct vt_err err;
    if (cpu_reserve(b, rows, n, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

int64_t be_pieces(const struct be *b, int64_t most, int64_t work)
{
    /* Waking a thread costs a few microseconds: below that it only delays. Four pieces a thread even out the
     * ends. */
    int64_t n = work / 8000, cap = 4 * (int64_t)be_pool_threads(b->pool);
    if (be_pool_threads(b->pool) == 1)
        cap = 1;
    n = n < cap ? n : cap;
    n = n < most ? n : most;
    return n > 1 ? n : 1;
}
