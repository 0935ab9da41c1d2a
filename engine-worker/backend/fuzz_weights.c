/* Arbitrary bytes as blocks of each weight type: the vector kernels must give the bits of the plain C, and neither may leave its
 * tables or buffers. The first byte chooses the type, the second the number of tokens. */
#include "backend.h"
#include "gguf.h"

#include <stdlib.h>
#include <string.h>

#define N_OUT 9
#define MAX_T 6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void product(int simd, const struct be_weight *w, const float *x, int64_t T, float *y)
{
    struct be_pool *pool;
    struct be *b;
    struct vt_err err;
    if (be_pool_new(&pool, 1, &err) < 0 || be_new(&b, pool, simd, &err) < 0)
        abort();
    be_matmul(b, y, w, x, T);
    be_free(b);
    be_pool_free(pool);
}

/* Equal, or both not a number: which one of several it is depends on the order of operands. */
static void same(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && (a[i] == a[i] || b[i] == b[i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float x[MAX_T * 512], y[MAX_T * N_OUT], z[MAX_T * N_OUT], row[512];
    int64_t block, bytes;
    if (size < 3 || !be_type_ok(data[0] % 48) || !ggml_block(data[0] % 48, &block, &bytes) || block == 1)
        return 0;
    struct be_weight w = {.type = data[0] % 48, .n_in = 2 * block, .n_out = N_OUT};
    int64_t T = 1 + data[1] % MAX_T;
    size_t n = (size_t)(2 * bytes * N_OUT);
    uint8_t *blocks = malloc(n);
    if (blocks == NULL)
        abort();
    for (size_t i = 0; i < n; i++)
        blocks[i] = data[2 + i % (size - 2)];
    w.data = blocks;
    for (int64_t i = 0; i < T * w.n_in; i++)
        x[i] = (float)((i * 7919 + data[1]) % 257 - 128);
    be_dequant(w.type, blocks, row, w.n_in);
    product(BE_REF, &w, x, T, y);
    for (int simd = BE_SSE2; simd <= (int)be_simd_best(); simd++) {
        product(simd, &w, x, T, z);
        same(y, z, T * N_OUT);
    }
    free(blocks);
    return 0;
}
