#include "delta.cuh"

/* Gated delta net: convolution over time, unit q and k, the recurrence, norm and gate. The recurrence of a few rows is serial in
 * time, as on the CPU; longer runs go through chunks.cu. Yang et al., arXiv:2412.06464. */

#define CONV_ROWS 16 /* whose inputs are on their way together */

__global__ void conv(float *u, struct be_delta d, int64_t cd, const struct be_delta_run *runs)
{
    cu_wait();
    int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const struct be_delta_run r = runs[blockIdx.y];
    if (c >= cd)
        return;
    float *state = r.state + d.state_at, *at = u + r.row0 * cd + c, past[BE_CONV_MAX], w[BE_CONV_MAX];
    int none = BE_CONV_MAX -
               d.conv_k; /* taps that are not there: zeros, so that the others are found without an index */
#pragma unroll
    for (int i = 0; i < BE_CONV_MAX; i++) {
        w[i] = i >= none ? d.conv_w[c * d.conv_k + i - none] : 0;
        past[i] = i >= none && i + 1 < BE_CONV_MAX ? state[(i - none) * cd + c] : 0;
    }
    for (int64_t t = 0; t < r.n_rows; t += CONV_ROWS) {
        float in[CONV_ROWS];
#pragma unroll
        for (int k = 0; k < CONV_ROWS; k++)
            in[k] = t + k < r.n_rows ? at[(t + k) * cd] : 0;
#pragma unroll
        for (int k = 0; k < CONV_ROWS; k++) {
            float v = 0;
            if (t + k >= r.n_rows)
                break;
            past[BE_CONV_MAX - 1] = in[k];
#pragma unroll
            for (int i = 0; i < BE_CONV_MAX; i++)
                v += past[i] * w[i];
#pragma unroll
            for (int i = 0; i + 1 < BE_CONV_MAX; i++)
                past[i] = past[i + 1];
            at[(t + k) * cd] = v / (1 + expf(-v));
        }
    }
#pragma unroll
    for (int i = 0; i + 1 < BE_CONV_MAX; i++)
        if (i >= none)
            state[(i - none) * cd + c] = past[i];
}

/* A warp for each head of q, then of k, of each row. */
__global__ void unit(float *u, struct be_delta d, int64_t cd, int64_t vectors)
{
    cu_wait();
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32, heads = 2 * d.n_k_head;
    if (i >= vectors)
        return;
    float *x = u + i / heads * cd + i % heads * d.dk, sum = 0;
    for (int k = lane; k < d.dk; k += 32)
        sum += x[k] * x[k];
    float by = (i % heads < d.n_k_head ? rsqrtf((float)d.dk) : 1.0f) / sqrtf(cu_warp_sum(sum) + 1e-6f);
    for (int k = lane; k < d.dk; k += 32)
        x[k] *= by;
}

/* Runs of at most `most` rows. 32 columns of one head's state: four threads share a column, each holding dk / 4 of its rows in registers. */
template <int ROWS>
__global__ void __launch_bounds__(128)
    recur(float *out, const float *u, const float *bt, const float *at, struct be_delta d, int64_t cd,
          const struct be_delta_run *runs, int64_t most)
{
    cu_wait();
    const struct be_delta_run r = runs[blockIdx.z];
    if (r.n_rows > most)
        return;
    int h = blockIdx.y, part = threadIdx.x % 4, col = blockIdx.x * 32 + threadIdx.x / 4;
    int kh = delta_key_head(d, h);
    int64_t kd = (int64_t)d.n_k_head * d.dk;
    float *state = r.state + d.state_at + (d.conv_k - 1) * cd + (int64_t)h * d.dk * d.dv + col, s[ROWS];
    bool live = col < d.dv;
    __shared__ float q[4 * ROWS], k[4 * ROWS];
    for (int i = 0; i < ROWS; i++) {
        int row = part * ROWS + i;
        s[i] = live && row < d.dk ? state[(int64_t)row * d.dv] : 0;
    }
    for (int64_t t = 0; t < r.n_rows; t++) {
        int64_t row = r.row0 + t;
        const float *x = u + row * cd;
        __syncthreads();
        for (int i = threadIdx.x; i < 4 * ROWS; i += 128) {
            q[i] = i < d.dk ? x[(int64_t)kh * d.dk + i] : 0;
            k[i] = i < d.dk ? x[kd + (int64_t)kh * d.dk + i] : 0;
        }
        __syncthreads();
        float alpha = delta_alpha(d, at, row, h), beta = delta_beta(d, bt, row, h);
        float seen = 0, o = 0;
        for (int i = 0; i < ROWS; i++) {
            s[i] *= alpha;
            seen += s[i] * k[part * ROWS + i];
        }
        seen += __shfl_xor_sync(~0u, seen, 1);
        seen += __shfl_xor_sync(~0u, seen, 2);
        float by = beta * ((live ? x[2 * kd + (int64_t)h * d.dv + col] : 0) - seen);
        for (int i = 0; i < ROWS; i++) {
            s[i] += k[part * ROWS + i] * by;
            o += s[i] * q[part * ROWS + i];
        }
        o += __shfl_xor_sync(~0u, o, 1);
        o += __shfl_xor_sync(~0u, o, 2);
        if (part == 0 && live)
            out[(row * d.n_v_head + h) * d.dv + col] = o;
    }
    for (int i = 0; i < ROWS; i++) {
        int row = part * ROWS + i;
        if (live && row < d.dk)
            state[(int64_t)row * d.dv] = s[i];
    }
}

/* A warp for each head of each row: RMS norm times silu of the gate. */
__global__ void gated_norm(float *out, const float *z, struct be_delta d, int64_t vectors)
{
    cu_wait();
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (i >= vectors)
        return;
    float *x = out + i * d.dv, sum = 0;
    for (int k = lane; k < d.dv; k += 32)
        sum += x[k] * x[k];
    float by = rsqrtf(cu_warp_sum(sum) / (float)d.dv + d.eps);
    for (int k = lane; k < d.dv; k += 32) {
        float g = z[i * d.dv + k];
        x[k] = x[k] * by * d.norm_w[k] * (g / (1 + expf(-g)));
    }
}

void cu_delta_net(struct be *b, float *out, const struct be_delta *d, float *u, const float *z,
                  const float *bt, const float *at, const struct be_delta_run *runs, int n_runs, int64_t T)
{
    int64_t cd = delta_channels(*d);
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "conv", conv, dim3((unsigned)((cd + 127) / 128), (unsigned)n_runs), 128, 0, u, *d, cd, runs);
    int64_t vectors = T * 2 * d->n_k_head;
    cu_launch(c, "unit", unit, dim3((unsigned)((vectors + 3) / 4)), 128, 0, u, *d, cd, vectors);
    bool chunked = cu_delta_chunks(c, out, u, bt, at, d, runs, n_runs, T);
    if (!chunked || n_runs > 1) {
        int64_t most = chunked ? CU_DELTA_SERIAL : T;
        auto kernel = d->dk <= 64 ? recur<16> : d->dk <= 128 ? recur<32> : recur<64>;
        dim3 grid((unsigned)((d->dv + 31) / 32), (unsigned)d->n_v_head, (unsigned)n_runs);
        cu_launch(c, "recur", kernel, grid, 128, 0, out, u, bt, at, *d, cd, runs, most);
    }
    vectors = T * d->n_v_head;
    cu_launch(c, "gated_norm", gated_norm, dim3((unsigned)((vectors + 3) / 4)), 128, 0, out, z, *d, vectors);
}
