#include "choice.cuh"
#include "many.cuh"
#include "twins.cuh"

/* Experts of few rows: three launches for the whole feed-forward part. Nothing is sorted or gathered. Every block makes the choice of
 * its row anew out of the router's logits, which takes less than it takes one kernel to leave it for the next. Weights stay codes, as
 * in one.cu. The sum over a row's experts is one inner product: their inner values lie one behind the other, and a warp goes through
 * the same row of all of their weights. So the order of sums is fixed, and which token is whose neighbour changes nothing.
 *
 * router: waits, and only then lets the next kernel begin, so that what is written ahead of router can be read by the next one before
 * it waits; so does experts_in. So the blocks of experts_in make their codes while the router works, and those of experts_out choose
 * and ask for their first weights while experts_in works. */

#define WARPS       8
#define AT_ONCE     2 /* blocks on a multiprocessor */
#define ROUTER_ROWS 8 /* rows of x in a block */
#define ROUTER_WIDE 4 /* warps of a block, each with one row of W */
#define HELD        8 /* fours of W that a lane asks for before it waits */
#define TWINS       3 /* and twins of each expert's row */

/* ---- logits: a warp for each expert; the last one is the shared expert's gate ---- */

struct router {
    const float *w, *shared; /* [n_expert][n], [n] or NULL */
    int n_expert, n_logits, n;
};

template <int T>
static __device__ __forceinline__ void add_four(float *sum, const float4 &w, const float *x, int n, int i,
                                                int rows)
{
#pragma unroll
    for (int t = 0; t < T; t++) {
        if (t >= rows)
            break;
        float4 v = *(const float4 *)(x + (int64_t)t * n + 4 * i);
        sum[t] += w.x * v.x + w.y * v.y + w.z * v.z + w.w * v.w;
    }
}

template <int T>
__global__ void __launch_bounds__(32 * ROUTER_WIDE)
    router_logits(float *logits, const __grid_constant__ struct router r, const float *x, int all)
{
    int e = (int)(blockIdx.x * ROUTER_WIDE + threadIdx.x / 32), lane = threadIdx.x % 32, fours = r.n / 4,
        t0 = T * (int)blockIdx.y, rows = min(T, all - t0);
    const float4 *w = (const float4 *)(e < r.n_expert ? r.w + (int64_t)e * r.n : r.shared);
    float4 held[HELD];
    float sum[T] = {};
    bool real = e < r.n_logits;
#pragma unroll
    for (int k = 0; k < HELD; k++)
        if (real && lane + 32 * k < fours)
            held[k] = __ldg(w + lane + 32 * k);
    cu_wait_then_start();
    if (!real)
        return;
    x += (int64_t)t0 * r.n;
#pragma unroll
    for (int k = 0; k < HELD; k++)
        if (lane + 32 * k < fours)
            add_four<T>(sum, held[k], x, r.n, lane + 32 * k, rows);
#pragma unroll 4
    for (int i = lane + 32 * HELD; i < fours; i += 32)
        add_four<T>(sum, __ldg(w + i), x, r.n, i, rows);
#pragma unroll
    for (int t = 0; t < T; t++) {
        float s = cu_warp_sum(sum[t]);
        if (lane == 0 && t < rows)
            logits[(int64_t)(t0 + t) * r.n_logits + e] = s;
    }
}

/* ---- the experts ---- */

struct layer {
    struct be_route route;
    const float *logits; /* [T][n_logits] */
    int n_logits, used;  /* used: those of a row, with the shared one, which is the last */
    struct cu_weight gate, up, down, shared_gate, shared_up, shared_down;
    bool gelu;
};

/* left, [T][used * inner] = act(gate x) * (up x). blockIdx.y: one of all rows' experts. */
template <uint32_t TYPE>
__global__ void __launch_bounds__(32 * WARPS, AT_ONCE)
    experts_in(const __grid_constant__ struct layer l, const struct halves x, const struct halves left)
{
    CU_SHARED(int4, room, 16);
    __shared__ struct scores scores;
    __shared__ int chosen;
    int lane = threadIdx.x % 32, t = (int)blockIdx.y / l.used, j = (int)blockIdx.y % l.used,
        twins = (int)(x.n / TWIN), n_out = (int)l.gate.n_out, step = (int)gridDim.x * WARPS,
        row = (int)(blockIdx.x * WARPS + threadIdx.x / 32);
    bool shared = j == l.route.n_used;
    const struct cu_weight &gate = shared ? l.shared_gate : l.gate, &up = shared ? l.shared_up : l.up;
    struct row_codes codes = codes_in(room, x.n);
    struct twin<TYPE> a, b;
    encode<TYPE>(codes, x, t, raw_row{});
    cu_wait_then_start();
    int64_t first = 0;
    if (!shared) {
        read_scores(&scores, l.logits + (int64_t)t * l.n_logits, l.route);
        for (int e = threadIdx.x; e < l.route.n_expert; e += blockDim.x)
            if (rank_of(scores, l.route.n_expert, e) == j)
                chosen = e;
        __syncthreads();
        first = (int64_t)chosen * n_out;
    }
    auto load = [&](int at, int v) {
        a.load(gate, first + at, v);
        b.load(up, first + at, v);
    };
    if (row < n_out && lane < twins)
        load(row, lane);
    for (; row < n_out; row += step) {
        float g = 0, u = 0;
        for (int v = lane; v < twins; v += 32) {
            struct twin<TYPE> now[2] = {
                a, b
            };
            if (v + 32 < twins)
                load(row, v + 32);
            else if (row + step < n_out && lane < twins)
                load(row + step, lane);
            g += dot_twin<TYPE>(now[0], codes, v);
            u += dot_twin<TYPE>(now[1], codes, v);
        }
        g = cu_warp_sum(g);
        u = cu_warp_sum(u);
        if (lane == 0)
            left.x[half_at(left, (uint32_t)t, (uint32_t)(j * n_out + row))] =
                __float2half_rn(activate(g, l.gelu) * u * (1 / HALF_SCALE));
    }
}

/* out [T][n_out]: what the experts of row blockIdx.y make of their inner values, x [T][used * inner]. */
template <uint32_t TYPE>
__global__ void __launch_bounds__(32 * WARPS, AT_ONCE)
    experts_out(float *out, const __grid_constant__ struct layer l, const struct halves x)
{
    CU_SHARED(int4, room, 16);
    __shared__ struct scores scores;
    __shared__ struct choice c;
    int lane = threadIdx.x % 32, t = (int)blockIdx.y, n_used = l.route.n_used,
        own = (int)(l.down.n_in / TWIN), twins = l.used * own, n_out = (int)l.down.n_out,
        step = (int)gridDim.x * WARPS, row = (int)(blockIdx.x * WARPS + threadIdx.x / 32);
    const float *logits = l.logits + (int64_t)t * l.n_logits;
    struct row_codes codes = codes_in(room, x.n);
    struct twin<TYPE> held[TWINS];
    read_scores(&scores, logits, l.route);
    choose(&c, scores, l.route);
    float gate = l.used > n_used ? sigmoid(__ldcg(logits + l.route.n_expert)) : 0;
    auto load = [&](struct twin<TYPE> *to, int at, int v) {
        int j = v / own;
        if (j == n_used)
            to->load(l.shared_down, at, v - j * own);
        else
            to->load(l.down, (int64_t)c.id[j] * n_out + at, v - j * own);
    };
    auto load_first = [&](int at) {
#pragma unroll
        for (int k = 0; k < TWINS; k++)
            if (at < n_out && lane + 32 * k < twins)
                load(&held[k], at, lane + 32 * k);
    };
    load_first(row);
    cu_wait();
    encode<TYPE>(codes, x, t, raw_row{});
    for (; row < n_out; row += step) {
        float sum = 0;
        auto add = [&](const struct twin<TYPE> &o, int v) {
            int j = v / own;
            sum += (j == n_used ? gate : c.w[j]) * dot_twin<TYPE>(o, codes, v);
        };
#pragma unroll
        for (int k = 0; k < TWINS; k++)
            if (lane + 32 * k < twins)
                add(held[k], lane + 32 * k);
        for (int v = lane + 32 * TWINS; v < twins; v += 32) {
            load(&held[0], row, v);
            add(held[0], v);
        }
        load_first(row + step);
        sum = cu_warp_sum(sum);
        if (lane == 0)
            out[(int64_t)t * n_out + row] = sum;
    }
}

/* ---- launches ---- */

/* Blocks for each of n, so that all run at once. */
static unsigned blocks_for(const struct cu *c, int64_t rows, unsigned n)
{
    return cu_even(cu_blocks(rows, WARPS), AT_ONCE * (unsigned)c->multiprocessors / n);
}

template <uint32_t TYPE>
static void launch_in(struct cu *c, const struct layer *l, const struct halves &x, const struct halves &left)
{
    int shared = codes_bytes(x.n);
    unsigned pairs = x.T * (unsigned)l->used;
    cu_launch(c, "experts_in", experts_in<TYPE>, dim3(blocks_for(c, l->gate.n_out, pairs), pairs), 32 * WARPS,
              (size_t)shared, *l, x, left);
}

template <uint32_t TYPE>
static void launch_out(struct cu *c, float *out, const struct layer *l, const struct halves &x)
{
    int shared = codes_bytes(x.n);
    cu_launch(c, "experts_out", experts_out<TYPE>, dim3(blocks_for(c, l->down.n_out, x.T), x.T), 32 * WARPS,
              (size_t)shared, out, *l, x);
}

static void launch_router(struct cu *c, float *logits, const struct be_experts *e, bool shared,
                          const float *x, int64_t T)
{
    const struct router r = {(const float *)e->router->data,
                             shared ? (const float *)e->shared_by->data : NULL, e->route.n_expert,
                             e->route.n_expert + shared, (int)e->router->n_in};
    unsigned blocks = cu_blocks(r.n_logits, ROUTER_WIDE);
    if (T == 1)
        cu_launch(c, "router", router_logits<1>, dim3(blocks), 32 * ROUTER_WIDE, 0, logits, r, x, 1);
    else
        cu_launch(c, "router", router_logits<ROUTER_ROWS>, dim3(blocks, cu_blocks(T, ROUTER_ROWS)),
                  32 * ROUTER_WIDE, 0, logits, r, x, (int)T);
}

/* ---- whether they can ---- */

static bool has_twins(const struct be_weight *w)
{
#define TWIN_CASE(t) || w->type == t
    return w->n_in % TWIN == 0 && (false CU_TWIN_TYPES(TWIN_CASE));
}

static bool same(const struct be_weight *a, const struct be_weight *b)
{
    return a->type == b->type && a->n_in == b->n_in && a->n_out == b->n_out;
}

static bool can(const struct cu *c, const struct be_experts *e, int64_t T)
{
    int64_t n = e->router->n_in, inner = e->down->n_in;
    return c->tensor_cores && T <= CU_EXPERT_ROWS && e->router->type == GT_F32 && n % 4 == 0 &&
           cu_can_leave(c, T, n) && same(e->gate, e->up) && has_twins(e->gate) && has_twins(e->down) &&
           T * (e->route.n_used + 1) * inner <= c->max_rows * c->max_in &&
           codes_bytes(n) <= c->shared_block - 12288 &&
           codes_bytes((e->route.n_used + 1) * inner) <= c->shared_block - 12288;
}

/* Whether the shared expert is like the others. */
static bool joins(const struct be_experts *e)
{
    return e->shared_by && e->shared_by->type == GT_F32 && same(e->shared_gate, e->gate) &&
           same(e->shared_up, e->up) && same(e->shared_down, e->down);
}

void cu_experts(struct be *b, float *out, const struct be_experts *e, const struct be_experts_room *room,
                const float *x, int64_t T)
{
    struct cu *c = cu_of(b);
    const float *left = c->left;
    if (!can(c, e, T)) {
        be_experts_parts(b, out, e, room, x, T);
        return;
    }
    if (!cu_ready(c, T))
        return;
    bool shared = joins(e);
    int n = e->route.n_expert, used = e->route.n_used + shared;
    struct layer l = {e->route,
                      room->logits,
                      n + shared,
                      used,
                      cu_planes(e->gate, n),
                      cu_planes(e->up, n),
                      cu_planes(e->down, n),
                      {},
                      {},
                      {},
                      e->gelu};
    if (shared) {
        l.shared_gate = cu_planes(e->shared_gate, 1);
        l.shared_up = cu_planes(e->shared_up, 1);
        l.shared_down = cu_planes(e->shared_down, 1);
    }
    cu_prepare(c, left, x, T, e->router->n_in);
    struct halves inner = {c->xg, (uint32_t)T, (uint32_t)(used * e->down->n_in)},
                  in = cu_halves(c, T, e->router->n_in);
    launch_router(c, room->logits, e, shared, x, T);
    switch (e->gate->type) {
#define IN_CASE(t)                                                                                           \
    case t: launch_in<t>(c, &l, in, inner); break;
        CU_TWIN_TYPES(IN_CASE)
    }
    switch (e->down->type) {
#define OUT_CASE(t)                                                                                          \
    case t: launch_out<t>(c, out, &l, inner); break;
        CU_TWIN_TYPES(OUT_CASE)
    }
    if (e->shared_by && !shared)
        be_shared_expert(b, out, e, room, x, T);
}
