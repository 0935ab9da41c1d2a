#include "halves.cuh"

/* Operations on rows that read and write each value once: what they cost is the memory that they move. */

/* A thread holds PER values of its row, so that they are read once. ADD: x += add first; LEAVE: y's halves are left, too. */
template <int PER, bool ADD, bool LEAVE>
__global__ void rmsnorm(float *y, float *x, const float *add, const float *w, int64_t n, float eps,
                        struct halves left)
{
    float v[PER], g[PER], sum = 0;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
        g[k] = i < n ? __ldg(w + i) : 0;
    }
    cu_wait();
    float *row = x + blockIdx.x * n;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
        v[k] = i < n ? row[i] : 0;
        if constexpr (ADD)
            v[k] += i < n ? add[blockIdx.x * n + i] : 0;
    }
#pragma unroll
    for (int k = 0; k < PER; k++)
        sum += v[k] * v[k];
    float by = rsqrtf((blockDim.x == 32 ? cu_warp_sum(sum) : cu_block_sum(sum)) / (float)n + eps);
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
        if (i >= n)
            break;
        float value = v[k] * by * g[k];
        if constexpr (ADD)
            row[i] = v[k];
        y[blockIdx.x * n + i] = value;
        if constexpr (LEAVE)
            left.x[half_at(left, blockIdx.x, (uint32_t)i)] = __float2half_rn(value * (1 / HALF_SCALE));
    }
}

struct norm_args {
    float *y, *x;
    const float *add, *w; /* add: NULL: none */
    int64_t T, n;
    float eps;
};

template <int PER>
static void launch_rmsnorm(struct cu *c, const struct norm_args *a, unsigned threads, bool leave)
{
    auto kernel = a->add ? (leave ? rmsnorm<PER, true, true> : rmsnorm<PER, true, false>)
                         : (leave ? rmsnorm<PER, false, true> : rmsnorm<PER, false, false>);
    cu_launch(c, "rmsnorm", kernel, dim3((unsigned)a->T), threads, 0, a->y, a->x, a->add, a->w, a->n, a->eps,
              cu_halves(c, a->T, a->n));
}

static void norm(struct be *b, const struct norm_args *a)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, a->T))
        return;
    unsigned threads = a->n <= 256 ? 32 : a->n <= 2048 ? 256 : 1024;
    bool leave = cu_can_leave(c, a->T, a->n);
    int64_t per = (a->n + threads - 1) / threads;
    if (per > 32)
        cu_ok(c, cudaErrorInvalidValue, "a norm of more than 32768 values");
    else if (per > 16)
        launch_rmsnorm<32>(c, a, threads, leave);
    else if (per > 8)
        launch_rmsnorm<16>(c, a, threads, leave);
    else if (per > 4)
        launch_rmsnorm<8>(c, a, threads, leave);
    else
        launch_rmsnorm<4>(c, a, threads, leave);
    if (leave)
        cu_left(c, a->y, a->T, a->n);
}

void cu_rmsnorm(struct be *b, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps)
{
    struct norm_args a = {y, (float *)x, NULL, w, T, n, eps}; /* nothing is added, so that x is only read */
    norm(b, &a);
}

void cu_add_rmsnorm(struct be *b, float *y, float *x, const float *add, const float *w, int64_t T, int64_t n,
                    float eps)
{
    struct norm_args a = {y, x, add, w, T, n, eps};
    norm(b, &a);
}

enum { ADD, BIAS, SCALE, CAP, SILU, GELU, ROW_GATE };

template <int OP, bool LEAVE>
__global__ void elementwise(float *y, const float *x, float by, int64_t n, int64_t total, struct halves left)
{
    cu_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total)
        return;
    float v = y[i];
    switch (OP) {
    case ADD: v += x[i]; break;
    case BIAS: v += x[i % n]; break;
    case SCALE: v *= by; break;
    case CAP: v = by * tanhf(v / by); break;
    case SILU: v = v / (1 + expf(-v)) * x[i]; break;
    case GELU: v = 0.5f * v * (1 + tanhf(0.79788456f * v * (1 + 0.044715f * v * v))) * x[i]; break;
    case ROW_GATE: v *= 1 / (1 + expf(-x[i / n])); break;
    }
    y[i] = v;
    if constexpr (LEAVE)
        leave_half(left, i, v);
}

template <int OP> static void each(struct be *b, float *y, const float *x, float by, int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T * n))
        return;
    dim3 grid(cu_blocks(T * n, 256));
    if ((OP == SILU || OP == GELU) && cu_can_leave(c, T, n)) {
        cu_launch(c, "elementwise", elementwise<OP, true>, grid, 256, 0, y, x, by, n, T * n,
                  cu_halves(c, T, n));
        cu_left(c, y, T, n);
        return;
    }
    cu_launch(c, "elementwise", elementwise<OP, false>, grid, 256, 0, y, x, by, n, T * n, cu_halves(c, T, n));
}

void cu_add(struct be *b, float *y, const float *x, int64_t T, int64_t n)
{
    each<ADD>(b, y, x, 0, T, n);
}

void cu_add_bias(struct be *b, float *y, const float *bias, int64_t T, int64_t n)
{
    each<BIAS>(b, y, bias, 0, T, n);
}

void cu_scale(struct be *b, float *x, float by, int64_t T, int64_t n)
{
    each<SCALE>(b, x, NULL, by, T, n);
}

void cu_softcap(struct be *b, float *x, float cap, int64_t T, int64_t n)
{
    each<CAP>(b, x, NULL, cap, T, n);
}

void cu_silu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n)
{
    each<SILU>(b, g, u, 0, T, n);
}

void cu_gelu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n)
{
    each<GELU>(b, g, u, 0, T, n);
}

void cu_row_gate(struct be *b, float *x, const float *g, int64_t T, int64_t n)
{
    each<ROW_GATE>(b, x, g, 0, T, n);
}

__global__ void sigmoid_gate(float *x, const float *g, int64_t g_stride, int64_t n, int64_t total)
{
    cu_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < total)
        x[i] *= 1 / (1 + expf(-g[i / n * g_stride + i % n]));
}

void cu_sigmoid_gate(struct be *b, float *x, const float *g, int64_t g_stride, int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T * n))
        return;
    cu_launch(c, "sigmoid_gate", sigmoid_gate, dim3(cu_blocks(T * n, 256)), 256, 0, x, g, g_stride, n, T * n);
}

/* Cosine and sine of a pair's angle. Angles grow with the position: they are brought into one turn in double, so that far positions
 * keep the float's whole precision, as on the CPU. */
static __device__ __forceinline__ float2 turn(int32_t pos, float freq, float mscale)
{
    float s, co;
    double angle = (double)pos * (double)freq;
    angle -= rint(angle * 0.15915494309189535) * 6.283185307179586;
    sincosf((float)angle, &s, &co);
    return make_float2(co * mscale, s * mscale);
}

/* A thread turns one pair. */
__global__ void rope(float *x, int64_t row_stride, int n_head, int64_t head_stride, int half,
                     bool interleaved, const float *freq, float mscale, const int32_t *pos, int64_t total)
{
    cu_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total)
        return;
    int k = (int)(i % half), h = (int)(i / half % n_head);
    int64_t t = i / half / n_head;
    float *p = x + t * row_stride + h * head_stride;
    float *a = p + (interleaved ? 2 * k : k), *b = p + (interleaved ? 2 * k + 1 : k + half);
    float2 r = turn(pos[t], freq[k], mscale);
    float u = *a, v = *b;
    *a = u * r.x - v * r.y;
    *b = u * r.y + v * r.x;
}

/* A block for each head of each row, of queries first, then of keys, which brings its values along; a thread has a channel. */
__global__ void __launch_bounds__(BE_ATTN_MAX_D)
    attn_inputs(float *q, const __grid_constant__ struct be_qkv in, const struct be_rope r,
                const __grid_constant__ struct be_attn a, const struct be_attn_run *runs,
                const int32_t *row_run, const int32_t *pos)
{
    __shared__ float head[BE_ATTN_MAX_D];
    int64_t t = blockIdx.x;
    bool key = (int)blockIdx.y >= a.n_head;
    int h = key ? (int)blockIdx.y - a.n_head : (int)blockIdx.y, i = threadIdx.x, half = r.n_rot / 2;
    const float *norm = key ? in.k_norm : in.q_norm, *bias = key ? in.k_bias : in.q_bias;
    int64_t at = key ? (int64_t)h * a.d : h * in.q_stride,
            row = key ? (int64_t)a.n_kv_head * a.d : a.n_head * in.q_stride;
    float by = i < a.d && norm ? __ldg(norm + i) : 1;
    /* tables are the step's: no kernel writes them, and turning takes longer than waiting */
    const int k = i >= r.n_rot ? 0 : r.interleaved ? i / 2 : i % half;
    float2 by_angle = i < r.n_rot ? turn(pos[t], r.freq[k], r.mscale) : make_float2(1, 0);
    const struct be_attn_run run = runs[row_run[t]];
    int32_t p = run.pos0 + (int32_t)(t - run.row0);
    uint8_t *page = run.pages[p / BE_PAGE];
    cu_wait();
    float v = i < a.d ? (key ? in.k : in.q)[t * row + at + i] : 0;
    if (bias && i < a.d)
        v += bias[at + i];
    if (norm)
        v *= rsqrtf(cu_block_sum(v * v) / (float)a.d + in.eps) * by;
    head[i] = v;
    __syncthreads();
    if (i < r.n_rot) {
        bool second = r.interleaved ? i % 2 : i >= half;
        float other = head[r.interleaved ? i ^ 1 : second ? i - half : i + half];
        v = second ? other * by_angle.y + v * by_angle.x : v * by_angle.x - other * by_angle.y;
    }
    if (!key) {
        if (i < a.d)
            q[(t * a.n_head + h) * a.d + i] = v;
        return;
    }
    int64_t place = (int64_t)h * BE_PAGE + p % BE_PAGE;
    if (i < a.d)
        ((__half *)(page + a.k_at))[place * a.d + i] = __float2half_rn(v);
    if (i < a.dv) {
        int64_t from = h * a.dv + i;
        float value = in.v[t * a.n_kv_head * a.dv + from] + (in.v_bias ? in.v_bias[from] : 0);
        ((__half *)(page + a.v_at))[place * a.dv + i] = __float2half_rn(value);
    }
}

void cu_attn_inputs(struct be *b, float *q, const struct be_qkv *in, const struct be_attn *a,
                    const struct be_rows *rows)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, rows->T))
        return;
    if (in->q_bias && q != in->q) /* the gates between the queries have theirs, too */
        cu_add_bias(b, in->q, in->q_bias, rows->T, in->q_stride * a->n_head);
    struct be_qkv rest = *in;
    if (q != in->q)
        rest.q_bias = NULL;
    unsigned threads = (unsigned)((a->d > a->dv ? a->d : a->dv) + 31) / 32 * 32;
    cu_launch(c, "attn_inputs", attn_inputs, dim3((unsigned)rows->T, (unsigned)(a->n_head + a->n_kv_head)),
              threads, 0, q, rest, *in->rope, *a, rows->runs, rows->row_run, rows->pos);
}

void cu_rope(struct be *b, float *x, int64_t T, int64_t row_stride, int n_head, int64_t head_stride,
             const struct be_rope *r, const int32_t *pos)
{
    struct cu *c = cu_of(b);
    int64_t total = T * n_head * (r->n_rot / 2);
    if (!cu_ready(c, total))
        return;
    cu_launch(c, "rope", rope, dim3(cu_blocks(total, 256)), 256, 0, x, row_stride, n_head, head_stride,
              r->n_rot / 2, r->interleaved, r->freq, r->mscale, pos, total);
}

__global__ void copy_rows(float *y, int64_t y_stride, const float *x, int64_t x_stride, const int32_t *rows,
                          int64_t n)
{
    cu_wait();
    int64_t t = blockIdx.x, from = rows ? rows[t] : t;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        y[t * y_stride + i] = x[from * x_stride + i];
}

void cu_copy_rows(struct be *b, float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t T,
                  int64_t n)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "copy_rows", copy_rows, dim3((unsigned)T), 128, 0, y, y_stride, x, x_stride, nullptr, n);
}

void cu_pick_rows(struct be *b, float *y, const float *x, const int32_t *rows, int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "copy_rows", copy_rows, dim3((unsigned)T), 128, 0, y, n, x, n, rows, n);
}
