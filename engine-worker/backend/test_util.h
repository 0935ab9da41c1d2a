/* Fresh random inputs for the tests of the backend; the seed is printed so that a failure can be repeated with
 * VITRIOL_TEST_SEED. */
#ifndef TEST_UTIL_H
#define TEST_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend.h"
#include "gguf.h"
#include "hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t rng_state;

static inline void rng_init(void)
{
    const char *s = getenv("VITRIOL_TEST_SEED");
    if (s != NULL)
        rng_state = strtoull(s, NULL, 0);
    else
        vt_random(&rng_state, sizeof rng_state);
    printf("VITRIOL_TEST_SEED=0x%llx\n", (unsigned long long)rng_state);
}

static inline uint64_t rng(void)
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int64_t rng_below(int64_t n)
{
    return (int64_t)(rng() % (uint64_t)n);
}

static inline float rng_uniform(void)
{
    return (float)(rng() >> 40) * 0x1p-23f - 1.0f;
}

/* About normal: what activations look like, with a tail. */
static inline float rng_normal(void)
{
    float s = 0;
    for (int i = 0; i < 6; i++)
        s += rng_uniform();
    return s * 0.7071f;
}

static inline float *rng_floats(int64_t n, float scale)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = scale * rng_normal();
    return x;
}

/* Memory that ends exactly where a page without access begins: a kernel that reads or writes beyond dies at once. */
struct guard {
    void *map;
    size_t len;
    void *p;
};

static inline struct guard guard_new(const void *src, size_t n)
{
    size_t page = 4096, len = (n + page - 1) / page * page + page;
    struct guard g = {.map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                      .len = len};
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect((char *)g.map + len - page, page, PROT_NONE), 0);
    g.p = (char *)g.map + len - page - n;
    if (src != NULL)
        memcpy(g.p, src, n);
    return g;
}

static inline void guard_free(struct guard *g)
{
    munmap(g->map, g->len);
}

static inline void put_f16(uint8_t *b, float f)
{
    uint16_t h = be_f32_to_f16(f);
    memcpy(b, &h, 2);
}

/* Where a block has its scale and its minimum as halves; -1: none. */
static inline void scales_at(uint32_t type, int *d_at, int *m_at)
{
    *d_at = 0;
    *m_at = -1;
    switch (type) {
    case GT_Q4_1:
    case GT_Q5_1:
    case GT_Q4_K:
    case GT_Q5_K: *m_at = 2; break;
    case GT_Q2_K:
        *d_at = 80;
        *m_at = 82;
        break;
    case GT_Q3_K: *d_at = 108; break;
    case GT_Q6_K: *d_at = 208; break;
    case GT_TQ1_0: *d_at = 52; break;
    case GT_TQ2_0: *d_at = 64; break;
    case GT_F32:
    case GT_F16:
    case GT_BF16:
    case GT_Q8_K:
    case GT_IQ1_M:
    case GT_MXFP4:
    case GT_NVFP4: *d_at = -1; break;
    default: break;
    }
}

/* The scale of a block becomes d, its minimum m, whatever form they have. */
static inline void put_scales(uint32_t type, uint8_t *b, float d, float m)
{
    uint16_t h = be_f32_to_f16(d);
    int d_at, m_at;
    scales_at(type, &d_at, &m_at);
    if (d_at >= 0)
        put_f16(b + d_at, d);
    if (m_at >= 0)
        put_f16(b + m_at, m);
    if (type == GT_Q8_K)
        memcpy(b, &d, 4);
    for (int i = 0; type == GT_IQ1_M && i < 4; i++)
        b[49 + 2 * i] = (uint8_t)((b[49 + 2 * i] & 15) | (h >> (4 * i) & 15) << 4);
    if (type == GT_MXFP4)
        b[0] = (uint8_t)(127 + (int)floorf(log2f(fabsf(d))));
}

/* Random blocks of a type with scales of a sane size. */
static inline void fill_block(uint32_t type, uint8_t *b, int64_t bytes)
{
    float d = 0.01f + 0.02f * fabsf(rng_uniform()), f = rng_normal();
    int d_at, m_at;
    for (int64_t i = 0; i < bytes; i++)
        b[i] = (uint8_t)rng();
    scales_at(type, &d_at, &m_at);
    put_scales(type, b, m_at < 0 && rng() & 1 ? -d : d, 3 * d);
    if (type == GT_F32)
        memcpy(b, &f, 4);
    if (type == GT_F16)
        put_f16(b, f);
    if (type == GT_BF16)
        memcpy(b, (uint8_t *)&f + 2, 2);
}

static inline uint8_t *rng_weight(struct be_weight *w, uint32_t type, int64_t n_in, int64_t n_out)
{
    int64_t block, bytes;
    assert_true(ggml_block(type, &block, &bytes));
    int64_t n = n_in / block * n_out;
    uint8_t *data = malloc((size_t)(n * bytes));
    for (int64_t i = 0; i < n; i++)
        fill_block(type, data + i * bytes, bytes);
    *w = (struct be_weight){.type = type, .n_in = n_in, .n_out = n_out, .data = data};
    return data;
}

/* A backend for each level of this CPU, with n threads. */
struct rig {
    struct be_pool *pool;
    struct be *b;
};

static inline struct rig rig_new(int simd, int threads)
{
    struct rig r;
    struct vt_err err;
    if (be_pool_new(&r.pool, threads, &err) < 0 || be_new(&r.b, r.pool, simd, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static inline void rig_free(struct rig *r)
{
    be_free(r->b);
    be_pool_free(r->pool);
}

#endif
