#include "codes.h"
#include "internal.h"

#include <assert.h>
#include <string.h>

#define CODED(x, f, t)                                                                                       \
    {                                                                                                        \
        .xform = BE_X_##x, .form = BE_##f, .kind = BE_MM_##t                                                 \
    }

static const struct be_type types[] = {
    [GT_F32] = {BE_X_F32, BE_FLOAT, BE_MM_F32},
    [GT_F16] = {BE_X_F32, BE_FLOAT, BE_MM_F16},
    [GT_BF16] = {BE_X_F32, BE_FLOAT, BE_MM_BF16},
    [GT_Q4_0] = CODED(Q32, S32, Q4_0),
    [GT_Q4_1] = CODED(Q32, M32, Q4_1),
    [GT_Q5_0] = CODED(Q32, S32, Q5_0),
    [GT_Q5_1] = CODED(Q32, M32, Q5_1),
    [GT_Q8_0] = CODED(Q32, S32, Q8_0),
    [GT_Q8_1] = CODED(Q32, S32, Q8_1),
    [GT_Q1_0] = CODED(Q32, S32, Q1_0),
    [GT_Q2_0] = CODED(Q32, S32, Q2_0),
    [GT_IQ4_NL] = CODED(Q32, S32, IQ4_NL),
    [GT_MXFP4] = CODED(Q32, S32, MXFP4),
    [GT_NVFP4] = CODED(Q32, H32, NVFP4),
    [GT_Q2_K] = CODED(Q256, M256, Q2_K),
    [GT_Q3_K] = CODED(Q256, S256, Q3_K),
    [GT_Q4_K] = CODED(Q256, M256, Q4_K),
    [GT_Q5_K] = CODED(Q256, M256, Q5_K),
    [GT_Q6_K] = CODED(Q256, S256, Q6_K),
    [GT_Q8_K] = CODED(Q256, S256, Q8_K),
    [GT_IQ4_XS] = CODED(Q256, S256, IQ4_XS),
    [GT_IQ2_XXS] = CODED(Q256, S256, IQ2_XXS),
    [GT_IQ2_XS] = CODED(Q256, S256, IQ2_XS),
    [GT_IQ2_S] = CODED(Q256, S256, IQ2_S),
    [GT_IQ3_XXS] = CODED(Q256, S256, IQ3_XXS),
    [GT_IQ3_S] = CODED(Q256, S256, IQ3_S),
    [GT_IQ1_S] = CODED(Q256, S256, IQ1_S),
    [GT_IQ1_M] = CODED(Q256, S256, IQ1_M),
    [GT_TQ1_0] = CODED(Q256, S256, TQ1_0),
    [GT_TQ2_0] = CODED(Q256, S256, TQ2_0),
};

const struct be_type *be_type(uint32_t type)
{
    if (type >= sizeof types / sizeof types[0] || types[type].kind == BE_MM_NONE)
        return NULL;
    return &types[type];
}

bool be_type_ok(uint32_t type)
{
    return be_type(type) != NULL;
}

static void floats(uint32_t type, const uint8_t *b, float *y, int64_t n)
{
    if (type == GT_F32) {
        memcpy(y, b, (size_t)n * sizeof *y);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = type == GT_F16 ? be_f16_to_f32(be_le16(b + 2 * i)) : be_bf16_to_f32(be_le16(b + 2 * i));
}

static void values(enum be_form form, const struct be_codes *c, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int q = c->c[i];
        switch (form) {
        case BE_S32:
        case BE_H32: y[i] = c->d[i / 16] * (float)q; break;
        case BE_M32: y[i] = c->d[i / 16] * (float)q + c->m; break;
        case BE_S256: y[i] = c->d[0] * (float)(c->scale[i / 16] * q); break;
        default: y[i] = c->d[0] * (float)(c->scale[i / 16] * q) - c->m * (float)c->min[i / 16]; break;
        }
    }
}

void be_dequant(uint32_t type, const void *src, float *dst, int64_t n)
{
    const struct be_type *t = be_type(type);
    int64_t block, bytes;
    assert(t != NULL);
    if (t->form == BE_FLOAT) {
        floats(type, src, dst, n);
        return;
    }
    be_unpack_fn *unpack = be_unpack(type);
    ggml_block(type, &block, &bytes);
    const uint8_t *b = src;
    for (int64_t i = 0; i < n; i += block, b += bytes) {
        struct be_codes c;
        unpack(b, &c);
        values(t->form, &c, dst + i, block);
    }
}
