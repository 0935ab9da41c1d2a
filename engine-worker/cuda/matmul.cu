#include "coded.cuh"
#include "halves.cuh"
#include "many.cuh"

/* Matmuls: the activations in the form that the weights read, and which kernel takes them. */

/* A thread for each eight values of a row; what is behind its end is zeros. */
__global__ void half_rows(struct halves h, const float *x, uint32_t units)
{
    cu_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t t = (uint32_t)(i / units), e = (uint32_t)(i % units) * 8;
    if (t >= h.T)
        return;
    const float *from = x + (int64_t)t * h.n + e;
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = e + k < h.n ? from[k] * (1 / HALF_SCALE) : 0;
    __half2 u[4] = {__floats2half2_rn(v[0], v[2]), __floats2half2_rn(v[1], v[3]),
                    __floats2half2_rn(v[4], v[6]), __floats2half2_rn(v[5], v[7])};
    *(uint4 *)(h.x + ((int64_t)(e / 8) * h.T + t) * 8) = *(const uint4 *)u;
}

/* ---- few rows times floats: a warp per row of W ---- */

template <uint32_t TYPE, int T>
static __device__ __forceinline__ void dot_float(float *sum, const struct cu_weight &w, int64_t row,
                                                 const float *x)
{
    for (int64_t i = threadIdx.x % 32; i < w.n_in; i += 32) {
        float v = load_float<TYPE>(w, row * w.n_in + i);
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[t] += v * __ldg(x + t * w.n_in + i);
    }
}

template <uint32_t TYPE, int T>
__global__ void __launch_bounds__(32 * OWN_ROWS) floats(const __grid_constant__ struct many m, const float *x,
                                                        const __grid_constant__ struct spans all, int t0)
{
    cu_wait();
    const struct own_row o = own_row_of<T>(m, all, t0);
    const struct cu_weight &w = m.w[o.i];
    if (o.row >= w.n_out)
        return;
    float sum[T] = {};
    dot_float<TYPE, T>(sum, w, o.e * w.n_out + o.row, x + o.t0 * w.n_in);
    put_own_row<T>(m, o, sum);
}

template <uint32_t TYPE>
static void launch_floats(struct cu *c, struct many *m, const struct spans *s, const float *x)
{
    launch_own_rows(
        m, s,
        [&](dim3 grid, int t0) {
            cu_launch(c, "floats", floats<TYPE, 8>, grid, 32 * OWN_ROWS, 0, *m, x, *s, t0);
        },
        [&](dim3 grid, int t0) {
            cu_launch(c, "floats", floats<TYPE, 1>, grid, 32 * OWN_ROWS, 0, *m, x, *s, t0);
        });
}

static void few_floats(struct cu *c, struct many *m, const struct spans *s, const float *x)
{
    switch (m->w[0].type) {
#define FLOAT_CASE(t)                                                                                        \
    case t: launch_floats<t>(c, m, s, x); break;
        CU_FLOAT_TYPES(FLOAT_CASE)
    }
}

/* ---- which of them ---- */

static bool is_float(uint32_t type)
{
    return type == GT_F32 || type == GT_F16 || type == GT_BF16;
}

/* Types that few.cu does not have. */
static bool is_coded(uint32_t type)
{
    switch (type) {
#define CODED_CASE(t)                                                                                        \
    case t: return true;
        CU_CODED_TYPES(CODED_CASE)
    default: return false;
    }
}

/* Rows that an expert gets on average, or all. */
static bool is_few(const struct spans *s, bool quant)
{
    int64_t rows = s->first ? s->T / s->n_expert : s->T;
    if (!quant)
        return s->T <= CU_VEC_ROWS;
    return s->first ? rows < CU_FEW_ROWS / 2 : rows <= CU_FEW_ROWS;
}

void cu_prepare(struct cu *c, const float *left, const float *x, int64_t T, int64_t n)
{
    uint32_t units = ((uint32_t)n + 15) / 16 * 2;
    if (left != x || c->left_n != n || c->left_T != T)
        cu_launch(c, "half_rows", half_rows, dim3(cu_blocks(T * units, 128)), 128, 0, cu_halves(c, T, n), x,
                  units);
    cu_left(c, x, T, n);
}

/* Of a single row, quantized: from its halves, or from what raw has instead, if cu_one takes it. */
static void run_single(struct cu *c, struct many *m, const struct spans *s, enum gate_act act,
                       const struct raw_row *raw)
{
    if (!cu_one(c, m, s, act, raw))
        cu_few(c, m, s, act);
}

static void run(struct cu *c, struct many *m, const struct spans *s, const float *left, const float *x)
{
    const struct raw_row none = {};
    bool quant = !is_float(m->w[0].type), few = is_few(s, quant);
    struct spans tiles = *s;
    c->left = left; /* they are still those */
    if (!quant && (few || !c->tensor_cores)) {
        few_floats(c, m, s, x);
        return;
    }
    if (!c->tensor_cores) {
        cu_plain(c, m, s, x);
        return;
    }
    cu_prepare(c, left, x, s->T, m->w[0].n_in);
    tiles.tiles = c->expert_tiles[few ? 0 : 1];
    if (few && is_coded(m->w[0].type))
        cu_coded_few(c, m, &tiles);
    else if (few && s->single)
        run_single(c, m, &tiles, GATE_NONE, &none);
    else if (few)
        cu_few(c, m, &tiles, GATE_NONE);
    else if (!cu_wide(c, m, &tiles))
        cu_tiled(c, m, &tiles);
}

/* Those weights from the i-th on that go together: of the same type, or of two that a single row takes. Returns the first that does
 * not. */
static int gather_weights(const struct cu *c, struct many *m, float *const *y,
                          const struct be_weight *const *w, int i, int n, int parts, bool single)
{
    int j = i;
    uint32_t type = w[i]->type;
    *m = {};
    for (; j < n && j - i < TOGETHER; j++) {
        if (w[j]->type != type &&
            !(single && type == w[i]->type && cu_one_takes(c, type, w[j]->type, w[j]->n_in)))
            break;
        type = w[j]->type;
        m->w[j - i] = cu_planes(w[j], parts);
        m->y[j - i] = y[j];
    }
    m->n = j - i;
    return j;
}

/* One after another. */
static void matmul(struct cu *c, const struct spans *s, float *const *y, const struct be_weight *const *w,
                   int n, const float *x, int parts)
{
    const float *left = c->left;
    struct many m;
    if (!cu_ready(c, s->T))
        return;
    for (int i = 0; i < n;) {
        i = gather_weights(c, &m, y, w, i, n, parts, c->tensor_cores && s->T == 1 && !s->first);
        run(c, &m, s, left, x);
        left = c->left;
    }
    for (int i = 0; i < n; i++)
        if (c->left == y[i])
            c->left = NULL;
}

void cu_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                 int64_t T)
{
    struct spans s = {(int)T, NULL, NULL, 0, T == 1};
    matmul(cu_of(b), &s, y, w, n, x, 1);
}

/* The experts of a device's weight are one weight of n_expert parts, the first of the array. */
void cu_moe_matmul(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                   const int64_t *first, const struct be_route *r, int64_t T)
{
    struct spans s = {(int)(T * r->n_used), first, NULL, r->n_expert, T == 1};
    matmul(cu_of(b), &s, y, w, n, x, r->n_expert);
}

/* Whether the kernels for a single row take a weight. */
static bool is_single(const struct cu *c, const struct be_weight *w, int64_t T)
{
    return c->tensor_cores && T == 1 && !is_float(w->type) && !is_coded(w->type);
}

/* Swaps the halves that a gated launch has left beside those that it read. */
static void left_beside(struct cu *c, const float *y, int64_t T, int64_t n)
{
    __half *old = c->xh;
    c->xh = c->xg;
    c->xg = old;
    cu_left(c, y, T, n);
}

/* In one launch where both weights are of one type and the rows are few. */
void cu_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                     const struct be_weight *up, bool gelu, const float *x, int64_t T)
{
    struct cu *c = cu_of(b);
    struct spans s = {(int)T, NULL, NULL, 0, T == 1};
    const float *left = c->left;
    bool together = c->tensor_cores && !is_float(gate->type) && !is_coded(gate->type) &&
                    gate->type == up->type && is_few(&s, true) && cu_can_leave(c, T, gate->n_out);
    if (!together) {
        const struct be_weight *w[] = {gate, up};
        float *y[] = {g, u};
        cu_matmul_n(b, y, w, 2, x, T);
        if (gelu)
            cu_gelu_mul(b, g, u, T, gate->n_out);
        else
            cu_silu_mul(b, g, u, T, gate->n_out);
        return;
    }
    if (!cu_ready(c, T))
        return;
    struct many m = {{cu_planes(gate, 1), cu_planes(up, 1)}, {g, u}, {}, 2, NULL};
    const struct raw_row none = {};
    cu_prepare(c, left, x, T, gate->n_in);
    enum gate_act act = gelu ? GATE_GELU : GATE_SILU;
    if (s.single)
        run_single(c, &m, &s, act, &none);
    else
        cu_few(c, &m, &s, act);
    left_beside(c, g, T, gate->n_out);
}

/* ---- a single row between its norm and the sum with the residual stream ---- */

/* The norm of a row whose squares were left needs no pass of its own where the matmul makes codes of the row anyway. */
static bool can_fold(struct cu *c, struct raw_row *raw, const struct be_normed *in,
                     const struct be_weight *const *w, int n, int64_t T)
{
    *raw = {in->x, in->w, c->squares, c->n_squares, in->eps};
    if (in->add || c->squares_of != in->x || w[0]->n_in % 16 != 0 || (uintptr_t)in->w % 16 != 0)
        return false;
    for (int i = 0; i < n; i++)
        if (!is_single(c, w[i], T) || !cu_one_takes(c, w[i]->type, w[i]->type, w[i]->n_in))
            return false;
    return true;
}

static void norm_to_room(struct be *b, const struct be_normed *in, int64_t T, int64_t n)
{
    if (in->add)
        cu_add_rmsnorm(b, in->room, in->x, in->add, in->w, T, n, in->eps);
    else
        cu_rmsnorm(b, in->room, in->x, in->w, T, n, in->eps);
}

void cu_norm_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n,
                      const struct be_normed *in, int64_t T)
{
    struct cu *c = cu_of(b);
    const struct spans s = {(int)T, NULL, NULL, 0, true};
    struct raw_row raw;
    struct many m;
    if (!can_fold(c, &raw, in, w, n, T)) {
        norm_to_room(b, in, T, w[0]->n_in);
        cu_matmul_n(b, y, w, n, in->room, T);
        return;
    }
    if (!cu_ready(c, T))
        return;
    for (int i = 0; i < n;) {
        i = gather_weights(c, &m, y, w, i, n, 1, true);
        run_single(c, &m, &s, GATE_NONE, &raw);
    }
}

void cu_norm_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                          const struct be_weight *up, bool gelu, const struct be_normed *in, int64_t T)
{
    struct cu *c = cu_of(b);
    const struct be_weight *w[] = {gate, up};
    const struct spans s = {(int)T, NULL, NULL, 0, true};
    struct raw_row raw;
    if (gate->type != up->type || !cu_can_leave(c, T, gate->n_out) || !can_fold(c, &raw, in, w, 2, T)) {
        norm_to_room(b, in, T, gate->n_in);
        cu_matmul_gated(b, g, u, gate, up, gelu, in->room, T);
        return;
    }
    if (!cu_ready(c, T))
        return;
    struct many m = {{cu_planes(gate, 1), cu_planes(up, 1)}, {g, u}, {}, 2, NULL};
    run_single(c, &m, &s, gelu ? GATE_GELU : GATE_SILU, &raw);
    left_beside(c, g, T, gate->n_out);
}

void cu_matmul_add(struct be *b, float *x, const struct be_weight *w, const float *in, float *room, int64_t T,
                   const float **rest)
{
    struct cu *c = cu_of(b);
    const struct spans s = {(int)T, NULL, NULL, 0, true};
    const struct raw_row none = {};
    const float *left = c->left;
    *rest = room;
    if (!is_single(c, w, T)) {
        cu_matmul_n(b, &room, &w, 1, in, T);
        return;
    }
    *rest = NULL;
    if (!cu_ready(c, T))
        return;
    struct many m = {{cu_planes(w, 1)}, {x}, {}, 1, c->squares};
    cu_prepare(c, left, in, T, w->n_in);
    run_single(c, &m, &s, GATE_NONE, &none);
    c->squares_of = x;
}

/* ---- rows of the embedding ---- */

template <uint32_t TYPE> __global__ void rows_quant(float *out, struct cu_weight w, const uint32_t *ids)
{
    cu_wait();
    for (int p = threadIdx.x; p < w.n_in / 32; p += blockDim.x) {
        struct piece o;
        load_piece<TYPE>(w, ids[blockIdx.x], p, o);
#pragma unroll
        for (int k = 0; k < 32; k++) {
            int code = (int)(int8_t)(o.c[k / 4] >> 8 * (k % 4)), g = k / 16;
            out[blockIdx.x * w.n_in + o.at[g] + k % 16] = o.d[g] * (float)code + o.m[g];
        }
    }
}

template <uint32_t TYPE> __global__ void rows_float(float *out, struct cu_weight w, const uint32_t *ids)
{
    cu_wait();
    for (int64_t i = threadIdx.x; i < w.n_in; i += blockDim.x)
        out[blockIdx.x * w.n_in + i] = load_float<TYPE>(w, ids[blockIdx.x] * w.n_in + i);
}

void cu_get_rows(struct be *b, float *out, const struct be_weight *w, const uint32_t *ids, int64_t T)
{
    struct cu *c = cu_of(b);
    struct cu_weight planes = cu_planes(w, 1);
    if (!cu_ready(c, T))
        return;
    switch (w->type) {
#define QUANT_ROWS(t)                                                                                        \
    case t:                                                                                                  \
        cu_launch(c, "rows_quant", rows_quant<t>, dim3((unsigned)T), 128, 0, out, planes, ids);              \
        break;
#define FLOAT_ROWS(t)                                                                                        \
    case t: cu_launch(c, "rows_float", rows_float<t>, dim3((unsigned)T), 128, 0, out, planes, ids); break;
        CU_QUANT_TYPES(QUANT_ROWS)
        CU_FLOAT_TYPES(FLOAT_ROWS)
    default: cu_launch(c, "rows_quant", rows_quant<CU_CODED>, dim3((unsigned)T), 128, 0, out, planes, ids);
    }
}
