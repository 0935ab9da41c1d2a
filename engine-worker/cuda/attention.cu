#include "codes.cuh"

/* Attention over pages, in two steps: every block takes one query row, one KV head, up to HEADS of its query heads and a
 * share of the row's pages, and leaves a maximum, a sum of weights and an unnormalized output; then the shares are merged.
 * Flash-decoding: Dao et al. 2023; the online softmax is that of Milakov and Gimelshein, arXiv:1805.02867. */

#define HEADS       8  /* query heads that a block serves */
#define KEYS        32 /* keys in shared memory at a time */
#define THREADS     128
#define MOST_SHARES 128 /* of a row */

struct shape {
    struct be_attn a;
    int chunks_each; /* of KEYS keys in a share */
    int n_shares;    /* of a row */
    int groups;      /* blocks that share the heads of a KV head */
};

/* A block for each KV head of each row. */
__global__ void kv_write(struct be_attn a, const struct be_attn_run *runs, const int32_t *row_run,
                         const float *k, const float *v)
{
    cu_wait();
    int64_t t = blockIdx.x, h = blockIdx.y, head = t * a.n_kv_head + h;
    const struct be_attn_run r = runs[row_run[t]];
    int32_t pos = r.pos0 + (int32_t)(t - r.row0);
    uint8_t *page = r.pages[pos / BE_PAGE];
    uint16_t *kp = (uint16_t *)(page + a.k_at) + (h * BE_PAGE + pos % BE_PAGE) * a.d;
    uint16_t *vp = (uint16_t *)(page + a.v_at) + (h * BE_PAGE + pos % BE_PAGE) * a.dv;
    for (int i = threadIdx.x; i < a.d; i += blockDim.x)
        kp[i] = __half_as_ushort(__float2half_rn(k[head * a.d + i]));
    for (int i = threadIdx.x; i < a.dv; i += blockDim.x)
        vp[i] = __half_as_ushort(__float2half_rn(v[head * a.dv + i]));
}

void cu_kv_write(struct be *b, const struct be_attn *a, const struct be_rows *rows, const float *k,
                 const float *v)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, rows->T))
        return;
    cu_launch(c, "kv_write", kv_write, dim3((unsigned)rows->T, (unsigned)a->n_kv_head), 128, 0, *a,
              rows->runs, rows->row_run, k, v);
}

/* Copies n rows of `width` halves into rows of `stride`; the rest of KEYS are zeros, since what lies there may be anything. */
static __device__ void load_rows(__half *to, int stride, const uint16_t *from, int n, int width)
{
    int chunks = width / 8;
    for (int i = threadIdx.x; i < KEYS * chunks; i += THREADS) {
        int r = i / chunks, k = i % chunks * 8;
        uint4 v = {0, 0, 0, 0};
        if (r < n)
            v = *(const uint4 *)(from + (int64_t)r * width + k);
        *(uint4 *)(to + r * stride + k) = v;
    }
}

/* CPT: output columns of a thread, dv / THREADS rounded up. */
template <int CPT>
__global__ void __launch_bounds__(THREADS) attend(float *partial, const float *q, struct shape s,
                                                  const struct be_attn_run *runs, const int32_t *row_run)
{
    cu_wait();
    const struct be_attn a = s.a;
    extern __shared__ __align__(16) unsigned char shared[];
    int group = a.n_head / a.n_kv_head, sk = a.d + 8, sv = a.dv + 8;
    float *qs = (float *)shared;          /* [HEADS][d] */
    float *p = qs + HEADS * a.d;          /* [HEADS][KEYS] */
    float *old = p + HEADS * KEYS;        /* [HEADS] what the output so far is multiplied with */
    __half *ks = (__half *)(old + HEADS); /* [KEYS][sk] */
    __half *vs = ks + KEYS * sk;          /* [KEYS][sv] */
    int64_t t = blockIdx.x;
    int kv = blockIdx.y / s.groups, h0 = blockIdx.y % s.groups * HEADS, share = blockIdx.z;
    int heads = group - h0 < HEADS ? group - h0 : HEADS;
    const struct be_attn_run r = runs[row_run[t]];
    int32_t pos = r.pos0 + (int32_t)(t - r.row0);
    int32_t first = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
    int32_t chunk0 = first / KEYS + share * s.chunks_each, chunk1 = chunk0 + s.chunks_each;
    if (chunk1 > pos / KEYS + 1)
        chunk1 = pos / KEYS + 1;
    float out[HEADS][CPT], max = -INFINITY,
                           sum = 0; /* max and sum: of head `warp` and of head `warp + 4` in turn below */
    float max2 = -INFINITY, sum2 = 0;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < CPT; i++)
            out[h][i] = 0;
    const float *q0 = q + t * a.n_head * a.d + (int64_t)(kv * group + h0) * a.d;
    for (int i = threadIdx.x; i < HEADS * a.d; i += THREADS)
        qs[i] = i < heads * a.d ? q0[i] * a.scale : 0;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int32_t key0 = chunk0 * KEYS; key0 < chunk1 * KEYS; key0 += KEYS) {
        const uint8_t *page = r.pages[key0 / BE_PAGE];
        int n = pos + 1 - key0;
        const uint16_t *kp =
            (const uint16_t *)(page + a.k_at) + ((int64_t)kv * BE_PAGE + key0 % BE_PAGE) * a.d;
        const uint16_t *vp =
            (const uint16_t *)(page + a.v_at) + ((int64_t)kv * BE_PAGE + key0 % BE_PAGE) * a.dv;
        __syncthreads();
        load_rows(ks, sk, kp, n, a.d);
        load_rows(vs, sv, vp, n, a.dv);
        __syncthreads();
        /* scores: lane = key, a warp takes heads warp and warp + 4 */
        float d0 = 0, d1 = 0;
        for (int i = 0; i < a.d; i += 2) {
            float2 k = __half22float2(*(const __half2 *)(ks + lane * sk + i));
            float2 x = *(const float2 *)(qs + warp * a.d + i),
                   y = *(const float2 *)(qs + (warp + 4) * a.d + i);
            d0 += k.x * x.x + k.y * x.y;
            d1 += k.x * y.x + k.y * y.y;
        }
        bool seen = key0 + lane >= first && key0 + lane <= pos;
        if (a.softcap > 0) {
            d0 = a.softcap * tanhf(d0 / a.softcap);
            d1 = a.softcap * tanhf(d1 / a.softcap);
        }
        d0 = seen ? d0 : -INFINITY;
        d1 = seen ? d1 : -INFINITY;
        float top0 = fmaxf(max, cu_warp_max(d0)), top1 = fmaxf(max2, cu_warp_max(d1));
        float w0 = seen ? expf(d0 - top0) : 0, w1 = seen ? expf(d1 - top1) : 0;
        float o0 = expf(max - top0), o1 = expf(max2 - top1);
        sum = sum * o0 + cu_warp_sum(w0);
        sum2 = sum2 * o1 + cu_warp_sum(w1);
        max = top0;
        max2 = top1;
        p[warp * KEYS + lane] = w0;
        p[(warp + 4) * KEYS + lane] = w1;
        if (lane == 0) {
            old[warp] = o0;
            old[warp + 4] = o1;
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int i = 0; i < CPT; i++)
                out[h][i] *= old[h];
        for (int j = 0; j < KEYS; j++)
#pragma unroll
            for (int i = 0; i < CPT; i++) {
                int col = threadIdx.x + i * THREADS;
                float v = col < a.dv ? __half2float(vs[j * sv + col]) : 0;
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    out[h][i] += p[h * KEYS + j] * v;
            }
    }
    /* partial[row][head][share][max, sum, out dv] */
    for (int h = 0; h < heads; h++) {
        float *to = partial + ((t * a.n_head + kv * group + h0 + h) * s.n_shares + share) * (a.dv + 2);
        if (h % 4 == warp && lane == 0) {
            to[0] = h < 4 ? max : max2;
            to[1] = h < 4 ? sum : sum2;
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int i = 0; i < CPT; i++) {
            int col = threadIdx.x + i * THREADS;
            if (h < heads && col < a.dv)
                partial[((t * a.n_head + kv * group + h0 + h) * s.n_shares + share) * (a.dv + 2) + 2 + col] =
                    out[h][i];
        }
}

/* A block for each head of each row. Weights of the shares first, so that each is computed once. */
template <bool CODES>
__global__ void __launch_bounds__(THREADS)
    merge(float *out, const float *partial, int n_shares, int dv, struct codes codes)
{
    __shared__ float weight[MOST_SHARES], total;
    cu_wait();
    const float *p = partial + (int64_t)blockIdx.x * n_shares * (dv + 2);
    if (threadIdx.x < 32) {
        float max = -INFINITY, sum = 0;
        for (int s = threadIdx.x; s < n_shares; s += 32)
            max = fmaxf(max, p[s * (dv + 2)]);
        max = cu_warp_max(max);
        for (int s = threadIdx.x; s < n_shares; s += 32) {
            float here = p[s * (dv + 2) + 1];
            float w = here > 0 || isnan(here) ? expf(p[s * (dv + 2)] - max) : 0; /* a share may be empty */
            weight[s] = w;
            sum += w * here;
        }
        sum = cu_warp_sum(sum);
        if (threadIdx.x == 0)
            total = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < dv; i += blockDim.x) {
        float v = 0;
        for (int s = 0; s < n_shares; s++)
            if (weight[s] != 0)
                v += p[s * (dv + 2) + 2 + i] * weight[s];
        v /= total;
        out[(int64_t)blockIdx.x * dv + i] = v;
        if constexpr (CODES)
            leave_codes(codes, (int64_t)blockIdx.x * dv + i, v);
    }
}

template <int CPT>
static void launch(struct cu *c, const float *q, const struct shape *s, const struct be_attn_run *runs,
                   const int32_t *row_run, int64_t T)
{
    const struct be_attn *a = &s->a;
    size_t shared = sizeof(float) * (size_t)(HEADS * a->d + HEADS * KEYS + HEADS) +
                    sizeof(__half) * (size_t)(KEYS * (a->d + 8) + KEYS * (a->dv + 8));
    dim3 grid((unsigned)T, (unsigned)(a->n_kv_head * s->groups), (unsigned)s->n_shares);
    cu_ok(c, cudaFuncSetAttribute(attend<CPT>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
          "shared memory");
    cu_launch(c, "attend", attend<CPT>, grid, THREADS, shared, c->partial, q, *s, runs, row_run);
}

/* Shares: as many blocks as keep the GPU busy, at least one chunk each. */
static struct shape plan(const struct cu *c, const struct be_attn *a, int64_t T, int32_t max_pos)
{
    int group = a->n_head / a->n_kv_head, chunks = max_pos / KEYS + 1;
    if (a->window > 0 && chunks > a->window / KEYS + 2)
        chunks = a->window / KEYS + 2;
    struct shape s = {*a, 1, 1, (group + HEADS - 1) / HEADS};
    int64_t blocks = T * a->n_kv_head * s.groups, want = 6 * (int64_t)c->multiprocessors;
    int64_t shares = blocks >= want ? 1 : want / blocks;
    shares = shares > chunks ? chunks : shares;
    shares = shares > MOST_SHARES ? MOST_SHARES : shares;
    s.chunks_each = (int)((chunks + shares - 1) / shares);
    s.n_shares = (chunks + s.chunks_each - 1) / s.chunks_each;
    return s;
}

void cu_attention(struct be *b, float *out, const float *q, const struct be_attn *a,
                  const struct be_rows *rows)
{
    struct cu *c = cu_of(b);
    int64_t T = rows->T;
    if (!cu_ready(c, T))
        return;
    if (cu_flash(c, out, q, a, rows))
        return;
    struct shape s = plan(c, a, T, rows->max_pos);
    size_t need = (size_t)(T * a->n_head * s.n_shares) * (size_t)(a->dv + 2);
    if (need > c->partial_floats) {
        cu_ok(c, cudaStreamSynchronize(c->stream), "attention");
        cudaFree(c->partial);
        c->partial = NULL;
        c->partial_floats = 0;
        if (!cu_ok(c, cudaMalloc(&c->partial, need * sizeof(float)), "work space of attention"))
            return;
        c->partial_floats = need;
    }
    if (a->dv <= THREADS)
        launch<1>(c, q, &s, rows->runs, rows->row_run, T);
    else if (a->dv <= 2 * THREADS)
        launch<2>(c, q, &s, rows->runs, rows->row_run, T);
    else
        launch<4>(c, q, &s, rows->runs, rows->row_run, T);
    dim3 heads((unsigned)(T * a->n_head));
    if (cu_codable(T, a->dv) && T <= c->max_rows && (int64_t)a->n_head * a->dv <= c->max_in) {
        cu_launch(c, "merge", merge<true>, heads, THREADS, 0, out, c->partial, s.n_shares, a->dv,
                  cu_codes(c));
        cu_coded(c, out, T, (int64_t)a->n_head * a->dv);
        return;
    }
    cu_launch(c, "merge", merge<false>, heads, THREADS, 0, out, c->partial, s.n_shares, a->dv, cu_codes(c));
}
