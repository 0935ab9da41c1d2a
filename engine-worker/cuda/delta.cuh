/* What the serial and the chunked recurrence of the gated delta net share. */
#ifndef DELTA_CUH
#define DELTA_CUH

#include "cu_priv.cuh"

static __host__ __device__ __forceinline__ int64_t delta_channels(const struct be_delta &d)
{
    return 2 * (int64_t)d.n_k_head * d.dk + (int64_t)d.n_v_head * d.dv;
}

static __device__ __forceinline__ int delta_key_head(const struct be_delta &d, int h)
{
    return d.grouped ? h / (d.n_v_head / d.n_k_head) : h % d.n_k_head;
}

static __device__ __forceinline__ float delta_alpha(const struct be_delta &d, const float *at, int64_t row,
                                                    int h)
{
    float z = at[row * d.n_v_head + h] + d.dt_bias[h];
    return expf(d.a[h] * (z > 20 ? z : log1pf(expf(z))));
}

static __device__ __forceinline__ float delta_beta(const struct be_delta &d, const float *bt, int64_t row,
                                                   int h)
{
    return 1 / (1 + expf(-bt[row * d.n_v_head + h]));
}

/* The recurrence of runs of more than CU_DELTA_SERIAL rows, q and k being unit vectors; those of others are left. false: not of this
 * shape, or no such run. */
bool cu_delta_chunks(struct cu *c, float *out, const float *u, const float *bt, const float *at,
                     const struct be_delta *d, const struct be_delta_run *runs, int n_runs, int64_t T);

#endif
