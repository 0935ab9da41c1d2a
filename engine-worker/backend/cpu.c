#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The table of this processor: memory is the process's own, and everything is done when a call returns. */

static int cpu_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    *out = NULL;
    if (bytes == 0)
        return 0;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return vt_fail_errno(err, VT_E_NOMEM, "cannot map %zu MiB", bytes >> 20);
    *out = p;
    return 0;
}

static void cpu_release(struct be *b, void *p, size_t bytes)
{
    if (p != NULL)
        munmap(p, bytes);
}

static void cpu_copy(struct be *b, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

static void cpu_zero(struct be *b, void *dst, size_t bytes)
{
    if (bytes > 0)
        memset(dst, 0, bytes);
}

static int cpu_read(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err)
{
    cpu_copy(b, dst, src, bytes);
    return 0;
}

static int cpu_sync(struct be *b, struct vt_err *err)
{
    return 0;
}

static int cpu_alloc_host(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    *out = calloc(1, bytes);
    return *out != NULL ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory for %zu bytes", bytes);
}

static void cpu_release_host(struct be *b, void *p)
{
    free(p);
}

/* Calls cost nothing here: nothing is recorded. */
static bool cpu_begin(struct be *b, uint64_t key)
{
    return false;
}

static void cpu_end(struct be *b, uint64_t key) {}

static const struct be_ops cpu_ops = {
    .matmul_n = cpu_matmul_n,
    .get_rows = cpu_get_rows,
    .copy_rows = cpu_copy_rows,
    .pick_rows = cpu_pick_rows,
    .rmsnorm = cpu_rmsnorm,
    .add = cpu_add,
    .silu_mul = cpu_silu_mul,
    .gelu_mul = cpu_gelu_mul,
    .add_bias = cpu_add_bias,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .row_gate = cpu_row_gate,
    .sigmoid_gate = cpu_sigmoid_gate,
    .rope = cpu_rope,
    .kv_write = cpu_kv_write,
    .attention = cpu_attention,
    .delta_net = cpu_delta_net,
    .moe_route = cpu_moe_route,
    .moe_sort = cpu_moe_sort,
    .moe_gather = cpu_moe_gather,
    .moe_matmul = cpu_moe_matmul,
    .moe_combine = cpu_moe_combine,
    .reserve = cpu_reserve,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .write = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .read = cpu_read,
    .fetch = cpu_read,
    .sync = cpu_sync,
    .alloc_host = cpu_alloc_host,
    .release_host = cpu_release_host,
    .begin = cpu_begin,
    .end = cpu_end,
};

const struct be_ops *cpu_table(void)
{
    return &cpu_ops;
}
