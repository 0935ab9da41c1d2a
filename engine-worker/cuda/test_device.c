#include "test_device.h"

struct be *gpu, *cpu;

void must(int rc, const struct vt_err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

void *device_bytes(size_t n)
{
    struct vt_err err;
    void *p;
    must(be_alloc(gpu, &p, n, &err), &err);
    return p;
}

void *to_device(const void *host, size_t n)
{
    void *p = device_bytes(n);
    be_write(gpu, p, host, n);
    return p;
}

float *floats_to_device(const float *x, int64_t n)
{
    return to_device(x, (size_t)n * sizeof *x);
}

/* Room whose bytes are NaN until something is written. */
float *poisoned(int64_t n)
{
    float *host = malloc((size_t)n * sizeof *host), *p;
    memset(host, 0xff, (size_t)n * sizeof *host);
    p = floats_to_device(host, n);
    free(host);
    return p;
}

float *from_device(const float *p, int64_t n)
{
    struct vt_err err;
    float *x = malloc((size_t)n * sizeof *x);
    must(be_read(gpu, x, p, (size_t)n * sizeof *x, &err), &err);
    return x;
}

/* ‖got - want‖ / ‖want‖; NaN fails. */
float *device_floats(int64_t n, double by)
{
    float *x = rng_floats(n, by), *d = floats_to_device(x, n);
    free(x);
    return d;
}

struct be_weight device_weight(uint32_t type, int64_t n_in, int64_t n_out)
{
    struct vt_err err;
    uint8_t *bytes = random_weight(type, n_in, n_out);
    struct be_weight h = {.type = type, .n_in = n_in, .n_out = n_out, .data = bytes}, d;
    must(be_upload(gpu, &d, &h, 1, &err), &err);
    free(bytes);
    return d;
}

void near(const char *what, const float *got, const float *want, int64_t n, double bound)
{
    double diff = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        all += (double)want[i] * (double)want[i];
    }
    double rel = sqrt(diff / (all > 0 ? all : 1));
    if (!(rel <= bound))
        fail_msg("%s: relative error %g, at most %g is allowed", what, rel, bound);
}

/* Compares a device array with a host one and gives both back. */
void settle(const char *what, float *device, float *want, int64_t n, double bound)
{
    float *got = from_device(device, n);
    near(what, got, want, n, bound);
    be_release(gpu, device, 0);
    free(got);
    free(want);
}

uint8_t *random_weight(uint32_t type, int64_t n_in, int64_t n_out)
{
    int64_t block, bytes, values = n_in * n_out;
    assert_true(ggml_block(type, &block, &bytes));
    uint8_t *w = malloc((size_t)(values / block * bytes));
    for (int64_t i = 0; i < values / block; i++) {
        uint8_t *b = w + i * bytes;
        fill_block(type, b, bytes);
        if (block > 1)
            put_scales(type, b, 0.001f + 0.01f * fabsf(rng_uniform()), 0.01f * fabsf(rng_uniform()));
    }
    return w;
}

float *copy_of(const float *x, int64_t n)
{
    float *y = malloc((size_t)n * sizeof *y);
    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

int device_tests(const char *name, const struct CMUnitTest *tests, size_t n)
{
    struct be_pool *pool;
    struct vt_err err;
    if (vitriol_gpu.count() == 0) {
        printf("skipped: there is no GPU\n");
        return 77;
    }
    rng_init();
    if (be_pool_new(&pool, 0, &err) < 0 || be_new(&cpu, pool, -1, &err) < 0 ||
        be_reserve(cpu, MOST_ROWS, RESERVED, &err) < 0 || vitriol_gpu.backend(&gpu, 0, &err) < 0 ||
        be_reserve(gpu, 1024, RESERVED, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    if (be_sync(gpu, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        failed++;
    }
    be_free(gpu);
    be_free(cpu);
    be_pool_free(pool);
    return failed;
}
