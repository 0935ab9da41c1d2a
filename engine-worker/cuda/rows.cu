#include "codes.cuh"

/* Operations on rows that read and write each value once: what they cost is the memory that they move. */

/* A thread holds PER values of its row, so that they are read once; CODES leaves them as codes, too. */
template <int PER, bool CODES>
__global__ void rmsnorm(float *y, const float *x, const float *w, int64_t n, float eps, struct codes codes)
{
    float v[PER], g[PER], sum = 0;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
        g[k] = i < n ? __ldg(w + i) : 0;
    }
    cu_wait();
    const float *row = x + blockIdx.x * n;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
        v[k] = i < n ? row[i] : 0;
    }
#pragma unroll
    for (int k = 0; k < PER; k++)
        sum += v[k] * v[k];
    float by = rsqrtf((blockDim.x == 32 ? cu_warp_sum(sum) : cu_block_sum(sum)) / (float)n + eps);
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
        if (i >= n)
            break; /* of all lanes, where codes are left */
        float value = v[k] * by * g[k];
        y[blockIdx.x * n + i] = value;
        if constexpr (CODES)
            leave_codes(codes, blockIdx.x * n + i, value);
    }
}

template <int PER>
static void launch_rmsnorm(struct cu *c, float *y, const float *x, const float *w, int64_t T, int64_t n,
                           float eps, unsigned threads, bool codes)
{
    if (codes)
        cu_launch(c, "rmsnorm", rmsnorm<PER, true>, dim3((unsigned)T), threads, 0, y, x, w, n, eps,
                  cu_codes(c));
    else
        cu_launch(c, "rmsnorm", rmsnorm<PER, false>, dim3((unsigned)T), threads, 0, y, x, w, n, eps,
                  cu_codes(c));
}

void cu_rmsnorm(struct be *b, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    unsigned threads = n <= 256 ? 32 : n <= 2048 ? 256 : 1024;
    bool codes = cu_codable(T, n) && n <= c->max_in && T <= c->max_rows;
    int64_t per = (n + threads - 1) / threads;
    if (per > 32)
        c->failed = cudaErrorInvalidValue;
    else if (per > 16)
        launch_rmsnorm<32>(c, y, x, w, T, n, eps, threads, codes);
    else if (per > 8)
        launch_rmsnorm<16>(c, y, x, w, T, n, eps, threads, codes);
    else if (per > 4)
        launch_rmsnorm<8>(c, y, x, w, T, n, eps, threads, codes);
    else
        launch_rmsnorm<4>(c, y, x, w, T, n, eps, threads, codes);
    if (codes)
        cu_coded(c, y, T, n);
}

enum { ADD, BIAS, SCALE, CAP, SILU, GELU, ROW_GATE };

template <int OP, bool CODES>
__global__ void elementwise(float *y, const float *x, float by, int64_t n, int64_t total, struct codes codes)
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
    if constexpr (CODES)
        leave_codes(codes, i, v);
}

template <int OP> static void each(struct be *b, float *y, const float *x, float by, int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T * n))
        return;
    dim3 grid(cu_blocks(T * n, 256));
    if ((OP == SILU || OP == GELU) && cu_codable(T, n) && n <= c->max_in && T <= c->max_rows) {
        cu_launch(c, "elementwise", elementwise<OP, true>, grid, 256, 0, y, x, by, n, T * n, cu_codes(c));
        cu_coded(c, y, T, n);
        return;
    }
    cu_launch(c, "elementwise", elementwise<OP, false>, grid, 256, 0, y, x, by, n, T * n, cu_codes(c));
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

/* A thread turns one pair. Angles grow with the position: they are brought into one turn in double, so that far positions keep
 * the float's whole precision, as on the CPU. */
__global__ void rope(float *x, int64_t row_stride, int n_head, int64_t head_stride, int half,
                     bool interleaved, const float *freq, float mscale, const int32_t *pos, int64_t total)
{
    cu_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total)
        return;
    int k = (int)(i % half), h = (int)(i / half % n_head);
    int64_t t = i / half / n_head;
    float *p = x + t * row_stride + h * head_stride, s, co;
    float *a = p + (interleaved ? 2 * k : k), *b = p + (interleaved ? 2 * k + 1 : k + half);
    double angle = (double)pos[t] * (double)freq[k];
    angle -= rint(angle * 0.15915494309189535) * 6.283185307179586;
    sincosf((float)angle, &s, &co);
    s *= mscale;
    co *= mscale;
    float u = *a, v = *b;
    *a = u * co - v * s;
    *b = u * s + v * co;
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
