#include "coded.cuh"
#include "many.cuh"

/* GPUs without tensor cores: activations as int8 codes with a scale for every 32, as on the CPU, and products of four codes at a
 * time; a warp takes a row of W and its lanes the pieces in turn, for up to eight rows of x. */

struct codes {
    int8_t *q;    /* [T][n] */
    float *d, *s; /* [T][n / 32] scales; [T][n / 16] scales times the sums of 16 codes */
};

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

/* One warp for every 32 values. */
__global__ void quant_rows(struct codes codes, const float *x, int64_t n32)
{
    cu_wait();
    int64_t b = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, at = b * 32 + threadIdx.x % 32;
    if (b < n32)
        leave_codes(codes, at, x[at]);
}

template <uint32_t TYPE, int T>
static __device__ __forceinline__ void dot_codes(float *sum, const struct cu_weight &w, int64_t row,
                                                 const int8_t *xq, const float *xd, const float *xs)
{
    constexpr int AT_ONCE = TYPE == CU_CODED ? 1 : 2; /* what opens coded ones is long */
    int n = (int)w.n_in, pieces = n / 32;
#pragma unroll AT_ONCE
    for (int p = threadIdx.x % 32; p < pieces; p += 32) {
        struct piece o;
        load_piece<TYPE>(w, row, p, o);
#pragma unroll
        for (int t = 0; t < T; t++) {
#pragma unroll
            for (int g = 0; g < 2; g++) {
                int at = o.at[g];
                int4 x = __ldg((const int4 *)(xq + t * (int64_t)n + at));
                int dot = __dp4a(o.c[4 * g], x.x, 0);
                dot = __dp4a(o.c[4 * g + 1], x.y, dot);
                dot = __dp4a(o.c[4 * g + 2], x.z, dot);
                dot = __dp4a(o.c[4 * g + 3], x.w, dot);
                sum[t] += o.d[g] * __ldg(xd + t * (n / 32) + at / 32) * (float)dot;
                if (TYPE != GT_Q8_0)
                    sum[t] += o.m[g] * __ldg(xs + t * (n / 16) + at / 16);
            }
        }
    }
}

template <uint32_t TYPE, int T>
__global__ void __launch_bounds__(32 * OWN_ROWS) plain(const __grid_constant__ struct many m, struct codes x,
                                                       const __grid_constant__ struct spans all, int t0)
{
    cu_wait();
    const struct own_row o = own_row_of<T>(m, all, t0);
    const struct cu_weight &w = m.w[o.i];
    if (o.row >= w.n_out)
        return;
    float sum[T] = {};
    dot_codes<TYPE, T>(sum, w, o.e * w.n_out + o.row, x.q + o.t0 * w.n_in, x.d + o.t0 * (w.n_in / 32),
                       x.s + o.t0 * (w.n_in / 16));
    put_own_row<T>(m, o, sum);
}

template <uint32_t TYPE> static void launch(struct cu *c, struct many *m, const struct spans *s)
{
    struct codes x = {c->xq, c->xd, c->xs};
    launch_own_rows(
        m, s,
        [&](dim3 grid, int t0) {
            cu_launch(c, "plain", plain<TYPE, 8>, grid, 32 * OWN_ROWS, 0, *m, x, *s, t0);
        },
        [&](dim3 grid, int t0) {
            cu_launch(c, "plain", plain<TYPE, 1>, grid, 32 * OWN_ROWS, 0, *m, x, *s, t0);
        });
}

void cu_plain(struct cu *c, struct many *m, const struct spans *s, const float *x)
{
    int64_t n32 = (int64_t)s->T * m->w[0].n_in / 32;
    struct codes codes = {c->xq, c->xd, c->xs};
    cu_launch(c, "quant_rows", quant_rows, dim3(cu_blocks(n32, 8)), 256, 0, codes, x, n32);
    switch (m->w[0].type) {
#define PLAIN_CASE(t)                                                                                        \
    case t: launch<t>(c, m, s); break;
        CU_QUANT_TYPES(PLAIN_CASE)
    default: launch<CU_CODED>(c, m, s);
    }
}
