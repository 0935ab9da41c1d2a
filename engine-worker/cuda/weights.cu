#include "blocks.cuh"

extern "C" {
#include "grids.h"
}

/* The points that codes of a type are indices of; bytes: 0: the type has none. */
struct points {
    const void *of;
    size_t bytes;
};
static struct points points_of(uint32_t type)
{
    switch (type) {
    case GT_IQ2_XXS: return {be_grid_iq2xxs, sizeof be_grid_iq2xxs};
    case GT_IQ2_XS: return {be_grid_iq2xs, sizeof be_grid_iq2xs};
    case GT_IQ2_S: return {be_grid_iq2s, sizeof be_grid_iq2s};
    case GT_IQ3_XXS: return {be_grid_iq3xxs, sizeof be_grid_iq3xxs};
    case GT_IQ3_S: return {be_grid_iq3s, sizeof be_grid_iq3s};
    case GT_IQ1_S:
    case GT_IQ1_M: return {be_grid_iq1s, sizeof be_grid_iq1s};
    default: return {NULL, 0};
    }
}

/* Bytes of each plane for n_out rows; false: the type is not known here. */
static bool plane_bytes(uint32_t type, int64_t n_in, int64_t n_out, size_t bytes[4])
{
    int64_t block, raw;
    if (plane_of(type, 0) == 0 || !ggml_block(type, &block, &raw) || n_in % block != 0)
        return false;
    for (int k = 0; k < 4; k++)
        bytes[k] = (size_t)(n_in * plane_of(type, k) / 256 * n_out);
    if (points_of(type).bytes)
        bytes[3] = points_of(type).bytes;
    return true;
}

/* Bytes of the file on the device before they are spread; the plan's reserve covers them. */
#define STAGE ((size_t)64 << 20)

static size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

/* Behind the last row there is room up to a multiple of 16 rows: few.cu reads whole lumps. */
/* Behind the last row there is room up to a multiple of 16 rows: few.cu reads whole lumps. */
static size_t bytes_of(uint32_t type, int64_t n_in, int64_t n_out)
{
    size_t plane[4], total = 0;
    if (!plane_bytes(type, n_in, n_out, plane))
        return 0;
    for (size_t bytes : plane)
        total +=
            aligned(bytes) + (bytes + (size_t)n_out - 1) / (size_t)n_out * (size_t)((16 - n_out % 16) % 16);
    return total;
}

size_t cu_weight_bytes(const struct be *, const struct be_weight *w, int n)
{
    return bytes_of(w->type, w->n_in, w->n_out * n);
}

struct cu_weight cu_planes(const struct be_weight *w, int n)
{
    size_t bytes[4] = {};
    struct cu_weight c = {w->type, w->n_in, w->n_out, {}};
    const uint8_t *at = (const uint8_t *)w->data;
    plane_bytes(w->type, w->n_in, w->n_out * n, bytes);
    for (int i = 0; i < 4; i++) {
        c.plane[i] = at;
        at += aligned(bytes[i]);
    }
    return c;
}

/* One block of the file to its planes. Bytes from `at` on go to plane `to`, at `place` of the block's share of it, which has
 * share[to] bytes. A thread moves `unit` bytes: two, or one where the block's number of them is odd. */
struct part {
    int at, bytes, to, place;
};
struct cuts {
    int block, n;
    struct part part[6];
    int unit, share[4];
};

__global__ void spread(uint8_t *p0, uint8_t *p1, uint8_t *p2, uint8_t *p3, const uint8_t *src,
                       const __grid_constant__ struct cuts cuts, int64_t n_blocks)
{
    cu_wait();
    int units = cuts.block / cuts.unit;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_blocks * units)
        return;
    int64_t b = i / units;
    int at = cuts.unit * (int)(i % units);
    uint8_t *plane[4] = {p0, p1, p2, p3};
    for (int k = 0; k < cuts.n; k++) {
        const struct part q = cuts.part[k];
        if (at < q.at || at >= q.at + q.bytes)
            continue;
        uint8_t *to = plane[q.to] + b * cuts.share[q.to] + q.place + at - q.at;
        const uint8_t *from = src + b * cuts.block + at;
        if (cuts.unit == 2)
            *(uint16_t *)to = *(const uint16_t *)from;
        else
            *to = *from;
    }
}

static bool parts_of(uint32_t type, struct cuts *c)
{
    switch (type) {
    case GT_Q8_0: *c = {34, 2, {{2, 32, 0}, {0, 2, 2}}}; return true;
    case GT_Q8_1: *c = {36, 2, {{4, 32, 0}, {0, 2, 2}}}; return true;
    case GT_Q4_0:
    case GT_IQ4_NL: *c = {18, 2, {{2, 16, 0}, {0, 2, 2}}}; return true;
    case GT_Q4_1: *c = {20, 2, {{4, 16, 0}, {0, 4, 2}}}; return true;
    case GT_Q5_0: *c = {22, 3, {{6, 16, 0}, {2, 4, 1}, {0, 2, 2}}}; return true;
    case GT_Q5_1: *c = {24, 3, {{8, 16, 0}, {4, 4, 1}, {0, 4, 2}}}; return true;
    case GT_MXFP4: *c = {17, 2, {{1, 16, 0}, {0, 1, 2}}}; return true;
    case GT_NVFP4: *c = {36, 2, {{4, 32, 0}, {0, 4, 2}}}; return true;
    case GT_Q1_0: *c = {18, 2, {{2, 16, 0}, {0, 2, 2}}}; return true;
    case GT_Q2_0: *c = {18, 2, {{2, 16, 0}, {0, 2, 2}}}; return true;
    case GT_Q2_K: *c = {84, 2, {{0, 80, 0}, {80, 4, 1}}}; return true;
    case GT_Q3_K: *c = {110, 1, {{0, 110, 0}}}; return true;
    case GT_Q6_K: *c = {210, 4, {{0, 128, 0}, {128, 64, 1}, {192, 16, 2}, {208, 2, 3}}}; return true;
    case GT_Q8_K: *c = {292, 2, {{4, 256, 0}, {0, 4, 1}}}; return true;
    case GT_IQ4_XS: *c = {136, 2, {{8, 128, 0}, {0, 8, 1}}}; return true;
    case GT_IQ3_S:
        *c = {110, 5, {{2, 64, 0}, {74, 32, 0, 64}, {66, 8, 0, 96}, {106, 4, 0, 104}, {0, 2, 0, 108}}};
        return true;
    case GT_IQ3_XXS: *c = {98, 2, {{2, 96, 0}, {0, 2, 1}}}; return true;
    case GT_IQ2_XXS: *c = {66, 2, {{2, 64, 0}, {0, 2, 1}}}; return true;
    case GT_IQ2_XS: *c = {74, 3, {{2, 64, 0}, {66, 8, 1}, {0, 2, 1, 8}}}; return true;
    case GT_IQ2_S: *c = {82, 2, {{2, 80, 0}, {0, 2, 1}}}; return true;
    case GT_IQ1_S: *c = {50, 2, {{2, 48, 0}, {0, 2, 1}}}; return true;
    case GT_IQ1_M: *c = {56, 2, {{0, 48, 0}, {48, 8, 1}}}; return true;
    case GT_TQ1_0: *c = {54, 2, {{0, 48, 0}, {48, 6, 1}}}; return true;
    case GT_TQ2_0: *c = {66, 2, {{0, 64, 0}, {64, 2, 1}}}; return true;
    default: return false;
    }
}

/* false: the file's blocks stay as they are. */
static bool cuts_of(uint32_t type, struct cuts *c)
{
    int64_t block, raw;
    if (!parts_of(type, c) || !ggml_block(type, &block, &raw))
        return false;
    c->unit = raw % 2 ? 1 : 2;
    for (int k = 0; k < 4; k++)
        c->share[k] = (int)(plane_of(type, k) * block / 256);
    return true;
}

/* One part, its first row being row0 of the planes. */
static void place(struct cu *c, const struct cu_weight *to, const struct be_weight *w, int64_t row0,
                  uint8_t *staged)
{
    struct cuts cuts = {};
    size_t raw = (size_t)(ggml_row_bytes(w->type, (uint64_t)w->n_in) * (uint64_t)w->n_out);
    uint8_t *plane[4];
    for (int i = 0; i < 4; i++)
        plane[i] = (uint8_t *)to->plane[i] + w->n_in * plane_of(w->type, i) / 256 * row0;
    if (!cu_ready(c, (int64_t)raw))
        return;
    if (!cuts_of(w->type, &cuts)) {
        cu_ok(c, cudaMemcpyAsync(plane[0], w->data, raw, cudaMemcpyHostToDevice, c->stream), "upload");
        return;
    }
    const uint8_t *from = (const uint8_t *)w->data;
    int64_t blocks = (int64_t)(raw / (size_t)cuts.block), most = (int64_t)(STAGE / (size_t)cuts.block);
    for (int64_t at = 0, n; at < blocks; at += n) {
        n = min(blocks - at, most);
        if (!cu_ok(c,
                   cudaMemcpyAsync(staged, from + at * cuts.block, (size_t)(n * cuts.block),
                                   cudaMemcpyHostToDevice, c->stream),
                   "upload"))
            return;
        cu_launch(c, "spread", spread, dim3(cu_blocks(n * (cuts.block / cuts.unit), 256)), 256, 0, plane[0],
                  plane[1], plane[2], plane[3], staged, cuts, n);
        for (int k = 0; k < 4; k++)
            plane[k] += n * cuts.share[k];
    }
}

int cu_upload(struct be *b, struct be_weight *out, void *, const struct be_weight *w, int n,
              struct vt_err *err)
{
    void *staged = NULL;
    struct cuts cuts = {};
    size_t raw = (size_t)(ggml_row_bytes(w->type, (uint64_t)w->n_in) * (uint64_t)w->n_out);
    if (cuts_of(w->type, &cuts) && cu_alloc(b, &staged, min(raw, STAGE), err) < 0)
        return -1;
    struct cu_weight to = cu_planes(out, n);
    struct points points = points_of(w->type);
    if (points.bytes)
        be_write(b, (void *)to.plane[3], points.of, points.bytes);
    for (int i = 0; i < n; i++)
        place(cu_of(b), &to, &w[i], i * w->n_out, (uint8_t *)staged);
    int rc = cu_sync(b, err);
    cu_release(b, staged, 0);
    return rc;
}
