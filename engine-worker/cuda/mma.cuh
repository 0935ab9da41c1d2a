/* Tensor cores: f16 operands, float32 sums. 16 x 8 results over an inner dimension of 16; lane 4 g + i has
 *   a0 a1 a2 a3   values 2 i, 2 i + 1 of rows g and g + 8, then values 2 i + 8, 2 i + 9 of the same rows
 *   b0 b1         values 2 i, 2 i + 1 of column g, then 2 i + 8, 2 i + 9
 *   c0 .. c3      columns 2 i, 2 i + 1 of row g, then of row g + 8
 * Where there are none (before sm_75) nothing here is called. */
#ifndef MMA_CUH
#define MMA_CUH

#include <stdint.h>

/* c += a b: 16 x 16 times 16 x 8. sm_75 has half of it at a time. */
static __device__ __forceinline__ void mma_f16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#elif defined(CU_EMULATED)
    emu_mma(c, a, b0, b1, [](uint16_t h) { return __half2float({h}); });
#endif
}

/* A float as the sum of two that tensor cores take whole (sm_80): 10 bits behind the leading one, and the next 10. */
struct mma_split {
    uint32_t big, small;
};
static __device__ __forceinline__ struct mma_split mma_split(float v)
{
    uint32_t big = __float_as_uint(v) & 0xffffe000u;
    return {big, __float_as_uint(v - __uint_as_float(big)) & 0xffffe000u};
}

/* c += a b for such parts: 16 x 8 times 8 x 8; lane 4 g + i has
 *   a0 a1 a2 a3   column i of rows g and g + 8, then column i + 4 of the same rows
 *   b0 b1         rows i and i + 4 of column g
 *   c0 .. c3      as above */
static __device__ __forceinline__ void mma_tf32(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(CU_EMULATED)
    emu_mma_tf32(c, a, b0, b1);
#endif
}

/* Four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_matrices(uint32_t *to, const void *from)
{
#ifdef CU_EMULATED
    emu_matrices(to, from, TRANSPOSED);
#else
    uint32_t at = (uint32_t)__cvta_generic_to_shared(from);
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
#endif
}

/* 16 bytes into shared memory, or zeros; behind commit and wait. Below sm_80 at once. */
static __device__ __forceinline__ void copy16(void *to, const void *from, bool real)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from), "r"(real ? 16 : 0)
        : "memory");
#elif defined(CU_EMULATED)
    emu_copy(to, real ? from : NULL, 16);
#else
    uint4 v = {0, 0, 0, 0};
    if (real)
        v = *(const uint4 *)from;
    *(uint4 *)to = v;
#endif
}

/* 4 bytes, likewise. */
static __device__ __forceinline__ void copy4(void *to, const void *from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
#elif defined(CU_EMULATED)
    emu_copy(to, from, 4);
#else
    *(uint32_t *)to = *(const uint32_t *)from;
#endif
}

/* What a thread copied since its last commit is one group. */
static __device__ __forceinline__ void copies_commit()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(CU_EMULATED)
    emu_commit();
#endif
}

/* Until at most N of the thread's groups, the latest ones, are on their way. */
template <int N> static __device__ __forceinline__ void copies_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#elif defined(CU_EMULATED)
    emu_copies_wait(N);
#endif
}

#endif
