#include "blocks.cuh"

/* Bytes of each plane for one row; false: the type is not known here. */
static bool plane_bytes(uint32_t type, int64_t n, int64_t bytes[4])
{
    bytes[0] = bytes[1] = bytes[2] = bytes[3] = 0;
    switch (type) {
    case GT_F32: bytes[0] = 4 * n; return true;
    case GT_F16:
    case GT_BF16: bytes[0] = 2 * n; return true;
    case GT_Q8_0:
        bytes[0] = n;
        bytes[2] = n / 16;
        return n % 32 == 0;
    case GT_Q4_0:
        bytes[0] = n / 2;
        bytes[2] = n / 16;
        return n % 32 == 0;
    case GT_Q4_K: bytes[0] = n / 256 * 144; return n % 256 == 0;
    case GT_Q5_K: bytes[0] = n / 256 * 176; return n % 256 == 0;
    case GT_Q6_K:
        bytes[0] = n / 2;
        bytes[1] = n / 4;
        bytes[2] = n / 16;
        bytes[3] = n / 128;
        return n % 256 == 0;
    default: return false;
    }
}

/* Bytes of the file on the device before they are spread; the plan's reserve covers them. */
#define STAGE ((size_t)64 << 20)

static size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

static size_t bytes_of(uint32_t type, int64_t n_in, int64_t n_out)
{
    int64_t row[4];
    size_t total = 0;
    if (!plane_bytes(type, n_in, row))
        return 0;
    for (int i = 0; i < 4; i++)
        total += aligned((size_t)(row[i] * n_out));
    return total;
}

size_t cu_weight_bytes(const struct be *, const struct be_weight *w, int n)
{
    return bytes_of(w->type, w->n_in, w->n_out * n);
}

struct cu_weight cu_planes(const struct be_weight *w, int n)
{
    int64_t row[4];
    struct cu_weight c = {w->type, w->n_in, w->n_out, {}};
    const uint8_t *at = (const uint8_t *)w->data;
    plane_bytes(w->type, w->n_in, row);
    for (int i = 0; i < 4; i++) {
        c.plane[i] = at;
        at += aligned((size_t)(row[i] * w->n_out * n));
    }
    return c;
}

/* One block of the file to its planes; a thread moves two bytes. `at` is the place in the block, given to plane `to` at
 * `place` within the block's share of that plane. */
struct part {
    int at, bytes, to;
};
struct cuts {
    int block, n;
    struct part part[4];
};

__global__ void spread(uint8_t *p0, uint8_t *p1, uint8_t *p2, uint8_t *p3, const uint8_t *src,
                       struct cuts cuts, int64_t n_blocks)
{
    cu_wait();
    int halves = cuts.block / 2;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_blocks * halves)
        return;
    int64_t b = i / halves;
    int at = 2 * (int)(i % halves);
    uint8_t *plane[4] = {p0, p1, p2, p3};
    for (int k = 0; k < cuts.n; k++) {
        const struct part q = cuts.part[k];
        if (at >= q.at && at < q.at + q.bytes)
            *(uint16_t *)(plane[q.to] + b * q.bytes + at - q.at) =
                *(const uint16_t *)(src + b * cuts.block + at);
    }
}

static bool cuts_of(uint32_t type, struct cuts *c)
{
    switch (type) {
    case GT_Q8_0: *c = {34, 2, {{2, 32, 0}, {0, 2, 2}}}; return true;
    case GT_Q4_0: *c = {18, 2, {{2, 16, 0}, {0, 2, 2}}}; return true;
    case GT_Q6_K: *c = {210, 4, {{0, 128, 0}, {128, 64, 1}, {192, 16, 2}, {208, 2, 3}}}; return true;
    default: return false;
    }
}

/* One part, its first row being row0 of the planes. */
static void place(struct cu *c, const struct cu_weight *to, const struct be_weight *w, int64_t row0,
                  uint8_t *staged)
{
    int64_t row[4];
    struct cuts cuts = {};
    size_t raw = (size_t)(ggml_row_bytes(w->type, (uint64_t)w->n_in) * (uint64_t)w->n_out);
    uint8_t *plane[4];
    plane_bytes(w->type, w->n_in, row);
    for (int i = 0; i < 4; i++)
        plane[i] = (uint8_t *)to->plane[i] + row[i] * row0;
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
        cu_launch(c, "spread", spread, dim3(cu_blocks(n * (cuts.block / 2), 256)), 256, 0, plane[0], plane[1],
                  plane[2], plane[3], staged, cuts, n);
        for (int k = 0; k < cuts.n; k++)
            plane[cuts.part[k].to] += n * cuts.part[k].bytes;
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
    for (int i = 0; i < n; i++)
        place(cu_of(b), &to, &w[i], i * w->n_out, (uint8_t *)staged);
    int rc = cu_sync(b, err);
    cu_release(b, staged, 0);
    return rc;
}
