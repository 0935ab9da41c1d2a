/* Codes: activations as int8, as the matmuls of few rows read them. Whoever writes rows with a whole warp on 32 neighbours can
 * leave their codes, too; struct cu then knows (coded) and the matmul need not make them. Rounding as on the CPU; what is not
 * finite makes the scale NaN, so that it is seen in the result. */
#ifndef CODES_CUH
#define CODES_CUH

#include "cu_priv.cuh"

struct codes {
    int8_t *q;    /* [T][n] */
    float *d, *s; /* [T][n / 32] scales; [T][n / 16] scales times the sums of 16 codes */
};

static inline struct codes cu_codes(const struct cu *c)
{
    return {c->xq, c->xd, c->xs};
}

/* v: value `at` of all rows, of the lane; 32 lanes have 32 neighbours. */
static __device__ __forceinline__ void leave_codes(const struct codes &k, int64_t at, float v)
{
    int lane = threadIdx.x % 32;
    float max = cu_warp_max(fabsf(v));
    float scale = __any_sync(~0u, isnan(v)) ? NAN : max / 127, inv = max > 0 ? 127 / max : 0;
    int code = __float2int_rn(v * inv), sum = code;
    for (int o = 8; o > 0; o >>= 1)
        sum += __shfl_xor_sync(~0u, sum, o);
    k.q[at] = (int8_t)code;
    if (lane == 0)
        k.d[at / 32] = scale;
    if (lane % 16 == 0)
        k.s[at / 16] = scale * (float)sum;
}

/* Whether rows of n values can leave their codes. */
static inline bool cu_codable(int64_t T, int64_t n)
{
    return T <= CU_CODED_ROWS && n % 32 == 0;
}

static inline void cu_coded(struct cu *c, const float *x, int64_t T, int64_t n)
{
    c->coded = x;
    c->coded_T = T;
    c->coded_n = n;
}

#endif
