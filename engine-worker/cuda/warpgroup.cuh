/* Warpgroups' tensor cores (sm_90a): four warps multiply 64 rows by N columns, both in shared memory, while they go on with something
 * else. Operands lie in units of eight halves: unit u of row r at [u * stride + r], rows as neighbours, which is how activations lie
 * in memory, too. Sums: lane 4 g + i of warp w has columns 8 j + 2 i, 8 j + 2 i + 1 of row 16 w + g in c[4 j], c[4 j + 1], of row
 * 16 w + g + 8 in c[4 j + 2], c[4 j + 3].
 *
 * Only code for sm_90a has these, which CU_SM90A tells the host to be there. */
#ifndef WARPGROUP_CUH
#define WARPGROUP_CUH

#include <stdint.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WG_CODE 1
#endif
#if defined(WG_CODE) || defined(CU_EMULATED)
#define WG_HERE 1
#endif
#ifdef CU_EMULATED
#define CU_SM90A 1
#endif

/* What this thread wrote to shared memory is seen by the tensor cores behind the next barrier. */
static __device__ __forceinline__ void wg_publish()
{
#ifdef WG_CODE
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Before the first product of a group. */
static __device__ __forceinline__ void wg_begin()
{
#ifdef WG_CODE
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* What was asked for since the last commit is one group. */
static __device__ __forceinline__ void wg_commit()
{
#ifdef WG_CODE
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Until at most N groups, the latest ones, are at work. */
template <int N> static __device__ __forceinline__ void wg_wait()
{
#ifdef WG_CODE
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

#ifdef WG_CODE
/* Eight rows of a unit are neighbours: 128 bytes; `stride` units to the next unit. */
static __device__ __forceinline__ uint64_t wg_operand(const uint4 *at, uint32_t stride)
{
    uint64_t low = (uint32_t)__cvta_generic_to_shared(at) >> 4 & 0x3fff;
    return low | (uint64_t)stride << 16 | (uint64_t)8 << 32;
}

#define WG_SUMS_4(i)  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define WG_SUMS_16(i) WG_SUMS_4(i), WG_SUMS_4(i + 4), WG_SUMS_4(i + 8), WG_SUMS_4(i + 12)
#endif

/* c = A B, or with `add` c += A B, over 16 values of the inner dimension, units 0 and 1 from left and right on. */
template <int N>
static __device__ __forceinline__ void wg_multiply(float *c, bool add, const uint4 *left,
                                                   uint32_t left_stride, const uint4 *right,
                                                   uint32_t right_stride)
{
    static_assert(N == 64 || N == 128 || N == 256, "columns");
#ifdef WG_CODE
    uint64_t a = wg_operand(left, left_stride), b = wg_operand(right, right_stride);
    if constexpr (N == 64)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
                     "%23,%24,%25,%26,%27,%28,%29,%30,%31"
                     "}, %32, %33, p, 1, 1, 0, 0;\n}"
                     : WG_SUMS_16(0), WG_SUMS_16(16)
                     : "l"(a), "l"(b), "r"((int)add));
    else if constexpr (N == 128)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
                     "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"
                     "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                     "}, %64, %65, p, 1, 1, 0, 0;\n}"
                     : WG_SUMS_16(0), WG_SUMS_16(16), WG_SUMS_16(32), WG_SUMS_16(48)
                     : "l"(a), "l"(b), "r"((int)add));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
                     "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"
                     "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,"
                     "%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"
                     "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,"
                     "%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,"
                     "%121,%122,%123,%124,%125,%126,%127"
                     "}, %128, %129, p, 1, 1, 0, 0;\n}"
                     : WG_SUMS_16(0), WG_SUMS_16(16), WG_SUMS_16(32), WG_SUMS_16(48), WG_SUMS_16(64),
                       WG_SUMS_16(80), WG_SUMS_16(96), WG_SUMS_16(112)
                     : "l"(a), "l"(b), "r"((int)add));
#elif defined(CU_EMULATED)
    emu_warpgroup(c, add, N, left, left_stride, right, right_stride,
                  [](uint16_t h) { return __half2float({h}); });
#endif
}

#endif
