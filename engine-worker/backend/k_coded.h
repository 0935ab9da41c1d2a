/* Quantized types whose layout k_gemv.h and k_panel.h do not read themselves. A type is its form (codes.h), the bias that makes its
 * codes unsigned, and how many groups of four products one 16-bit sum holds; everything else is shared. Without AVX2 blocks are
 * unpacked in plain C, into the same panels. */
#ifndef BE_K_CODED_H
#define BE_K_CODED_H

#include "codes.h"
#include "k_decode.h"
#include "k_panel.h"

#define SIGNED                                                                                               \
    0 /* bias of codes that stay signed: S32, S256 and H32 with it take the activations' signs instead */

/* type, block, bytes, form, bias, panels (see below) */
#define CODED_KERNELS(K)                                                                                     \
    K(Q4_1, 32, 20, BE_M32, 0, m32)                                                                          \
    K(Q5_0, 32, 22, BE_S32, 16, s32)                                                                         \
    K(Q5_1, 32, 24, BE_M32, 0, m32)                                                                          \
    K(Q8_1, 32, 36, BE_S32, SIGNED, signed32)                                                                \
    K(Q1_0, 128, 18, BE_S32, 1, s32)                                                                         \
    K(Q2_0, 64, 18, BE_S32, 1, s32)                                                                          \
    K(IQ4_NL, 32, 18, BE_S32, SIGNED, signed32)                                                              \
    K(MXFP4, 32, 17, BE_S32, 12, s32)                                                                        \
    K(NVFP4, 64, 36, BE_H32, SIGNED, halves32)                                                               \
    K(Q2_K, 256, 84, BE_M256, 0, m256)                                                                       \
    K(Q3_K, 256, 110, BE_S256, 4, s256)                                                                      \
    K(Q8_K, 256, 292, BE_S256, SIGNED, signed256)                                                            \
    K(IQ4_XS, 256, 136, BE_S256, SIGNED, signed256)                                                          \
    K(IQ2_XXS, 256, 66, BE_S256, 43, wide256)                                                                \
    K(IQ2_XS, 256, 74, BE_S256, 43, wide256)                                                                 \
    K(IQ2_S, 256, 82, BE_S256, 43, wide256)                                                                  \
    K(IQ3_XXS, 256, 98, BE_S256, 62, wide256)                                                                \
    K(IQ3_S, 256, 110, BE_S256, 15, s256)                                                                    \
    K(IQ1_S, 256, 50, BE_S256, 9, s256)                                                                      \
    K(IQ1_M, 256, 56, BE_S256, 9, s256)                                                                      \
    K(TQ1_0, 256, 54, BE_S256, 1, s256)                                                                      \
    K(TQ2_0, 256, 66, BE_S256, 1, s256)

/* ---- filling a panel ---- */

/* Blocks of Q rows, unpacked but not yet side by side. */
struct unpacked {
    uint8_t code[Q][256];
    int16_t scale[Q][16], min[Q][16];
};

/* Scales of every 16, row r of which is s[r]: as pairs in order; and each twice. */
ALWAYS void scale_lanes(struct panel *p, int16_t (*s)[16], bool pairs_alone)
{
    const uint8_t *row[Q];
    qi v[8];
    for (int r = 0; r < Q; r++)
        row[r] = (const uint8_t *)s[r];
    transpose32(row, 0, v);
    for (int k = 0; k < 8; k++) {
        p->pair[k] = v[k];
        if (pairs_alone)
            continue;
        p->scale[2 * k] = (v[k] & 0xffff) | v[k] << 16;
        p->scale[2 * k + 1] = q_shr(v[k], 16) | (v[k] & ~0xffff);
    }
}

/* Block b of a panel from unpacked rows. */
ALWAYS void code_lanes(struct panel *p, const int block, int b, struct unpacked *u)
{
    const uint8_t *row[Q];
    for (int r = 0; r < Q; r++)
        row[r] = u->code[r];
    for (int g = 0; g < block / 32; g++)
        transpose32(row, 32 * (size_t)g, &p->code[(block / 32 * b + g) * 8]);
}

#if defined(__AVX2__)
/* The two halves of 16-bit numbers back in order. */
ALWAYS void store_scales(int16_t *to, __m256i v)
{
    __m128i lo = _mm256_castsi256_si128(v), hi = _mm256_extracti128_si256(v, 1);
    _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi16(lo, hi));
    _mm_storeu_si128((__m128i *)(to + 8), _mm_unpackhi_epi16(lo, hi));
}

ALWAYS qf scale_rows(const uint32_t ty, const bool min, const uint8_t *const row[Q], const int s)
{
    __m256 a = min ? mins8(ty, row) : scales8(ty, row, s);
#if Q == 16
    __m256 b = min ? mins8(ty, row + 8) : scales8(ty, row + 8, s);
    return (qf)_mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
#else
    return (qf)a;
#endif
}

ALWAYS void fill_decoded_32(const uint32_t ty, const int block, const enum be_form form, struct panel *p,
                            int b, const uint8_t *const row[Q])
{
    struct unpacked u;
    const int n = block / 32;
    for (int r = 0; r < Q; r++)
        UNROLL
    for (int k = 0; k < n; k++)
        _mm256_storeu_si256((__m256i *)(u.code[r] + 32 * k), codes_32(ty, row[r], k));
    code_lanes(p, block, b, &u);
    UNROLL
    for (int k = 0; k < n; k++) {
        p->d[n * b + k] = scale_rows(ty, false, row, 2 * k);
        if (form == BE_M32)
            p->scale[n * b + k] = (qi)scale_rows(ty, true, row, 0);
        if (form == BE_H32)
            p->scale[n * b + k] = (qi)scale_rows(ty, false, row, 2 * k + 1);
    }
}

ALWAYS void fill_decoded_256(const uint32_t ty, const enum be_form form, const int bias, struct panel *p,
                             const uint8_t *const row[Q])
{
    struct unpacked u;
    for (int r = 0; r < Q; r++) {
        struct block_256 o;
        open_256(ty, row[r], &o);
        store_scales(u.scale[r], o.sc);
        if (form == BE_M256)
            store_scales(u.min[r], o.min);
        UNROLL
        for (int k = 0; k < 8; k++)
            _mm256_storeu_si256((__m256i *)(u.code[r] + 32 * k), codes_256(ty, bias, row[r], &o, k));
    }
    p->d[0] = scale_rows(ty, false, row, 0);
    code_lanes(p, 256, 0, &u);
    scale_lanes(p, u.scale, false);
    if (form != BE_M256)
        return;
    p->dmin = scale_rows(ty, true, row, 0);
    scale_lanes(p, u.min, true);
}

ALWAYS void fill_rows(const uint32_t ty, const int block, const enum be_form form, const int bias,
                      struct panel *p, int b, const uint8_t *const row[Q])
{
    if (block == 256)
        fill_decoded_256(ty, form, bias, p, row);
    else
        fill_decoded_32(ty, block, form, p, b, row);
}
#else
ALWAYS void fill_rows(const uint32_t ty, const int block, const enum be_form form, const int bias,
                      struct panel *p, int b, const uint8_t *const row[Q])
{
    be_unpack_fn *unpack = be_unpack(ty);
    struct unpacked u;
    for (int r = 0; r < Q; r++) {
        struct be_codes c;
        unpack(row[r], &c);
        for (int i = 0; i < block; i++)
            u.code[r][i] = (uint8_t)(c.c[i] + bias);
        if (block == 256) {
            memcpy(u.scale[r], c.scale, sizeof c.scale);
            p->d[0][r] = c.d[0];
        }
        for (int k = 0; block < 256 && k < block / 32; k++) {
            p->d[block / 32 * b + k][r] = c.d[2 * k];
            if (form == BE_H32)
                memcpy((uint8_t *)&p->scale[block / 32 * b + k] + 4 * r, &c.d[2 * k + 1], 4);
        }
        if (form == BE_M256)
            memcpy(u.min[r], c.min, sizeof c.min);
        if (form == BE_M256)
            p->dmin[r] = c.m;
        if (form == BE_M32)
            memcpy((uint8_t *)&p->scale[b] + 4 * r, &c.m, 4);
    }
    code_lanes(p, block, b, &u);
    if (block == 256)
        scale_lanes(p, u.scale, false);
    if (form == BE_M256)
        scale_lanes(p, u.min, true);
}
#endif

/* ---- tiles ---- */

ALWAYS void sum_signed(const int N, const struct panel *p, const struct q_tile *x, int g0, const int n,
                       qw scale, qi a[Q_TOKENS])
{
    UNROLL
    for (int g = g0; g < g0 + n; g++) {
        qi w = p->code[g], u = q_abs(w);
        UNROLL
        for (int t = 0; t < N; t++) {
            a[t] += q_mul16(q_mul8(u, q_sign(q_bcast(x->q[t] + 4 * g), w)), scale);
            PIN(a[t]);
        }
    }
}

/* Blocks of 32: safe: 16-bit sums hold so many groups, 0 for signed codes. */
ALWAYS void tile_32(const enum be_form form, const int safe, const int N, int blocks, const struct panel *p,
                    const struct q_tile *x, qf acc[Q_TOKENS])
{
    const qw one = (qw){0} + 1;
    for (int b = 0; b < blocks; b++) {
        qi a[Q_TOKENS] = {{0}}, h[Q_TOKENS] = {{0}};
        if (safe > 0)
            sum_groups(N, p, x, 8 * b, 8, safe, one, a);
        else
            sum_signed(N, p, x, 8 * b, form == BE_H32 ? 4 : 8, one, a);
        if (form == BE_H32)
            sum_signed(N, p, x, 8 * b + 4, 4, one, h);
        UNROLL
        for (int t = 0; t < N; t++) {
            qf dx = q_setf(x->d[t][b]);
            if (form == BE_M32)
                acc[t] += dx * (p->d[b] * q_float(a[t]) + (qf)p->scale[b] * q_setf((float)x->s32[t][b]));
            else if (form == BE_H32)
                acc[t] += dx * (p->d[b] * q_float(a[t]) + (qf)p->scale[b] * q_float(h[t]));
            else if (safe > 0)
                acc[t] += (p->d[b] * dx) * q_float(a[t] - p->bias * (int32_t)x->s32[t][b]);
            else
                acc[t] += (p->d[b] * dx) * q_float(a[t]);
        }
    }
}

ALWAYS void tile_256(const enum be_form form, const int safe, const int N, const struct panel *p,
                     const struct q_tile *x, qf acc[Q_TOKENS])
{
    qi a[Q_TOKENS] = {{0}};
    for (int k = 0; k < 16; k++) {
        if (safe > 0)
            sum_groups(N, p, x, 4 * k, 4, safe, (qw)p->scale[k], a);
        else
            sum_signed(N, p, x, 4 * k, 4, (qw)p->scale[k], a);
    }
    UNROLL
    for (int t = 0; t < N; t++) {
        qf dx = q_setf(x->d[t][0]);
        if (form == BE_M256)
            acc[t] += dx * (p->d[0] * q_float(a[t]) - p->dmin * q_float(sum_pairs(p, x->s16[t], 8)));
        else if (safe > 0)
            acc[t] += (p->d[0] * dx) * q_float(a[t] - p->bias * sum_pairs(p, x->s16[t], 8));
        else
            acc[t] += (p->d[0] * dx) * q_float(a[t]);
    }
}

/* Which tiles there are: the types that share one differ in how a panel is filled and in their bias. Sums of 16 bits hold four
 * groups of 2 products up to 31 * 127, or one of two products up to 124 * 127. */
#define PANELS_OF(NAME, TILE)                                                                                \
    ALWAYS void tile_##NAME(const int N, int blocks, const struct panel *p, const struct q_tile *x,          \
                            qf acc[Q_TOKENS])                                                                \
    {                                                                                                        \
        TILE;                                                                                                \
    }                                                                                                        \
    static __attribute__((noinline)) void panels_##NAME(fill_fn *fill, int block, int bytes,                 \
                                                        const struct be_mm *m, int64_t r0, int64_t r1)       \
    {                                                                                                        \
        mm_panel(fill, tile_##NAME, block, bytes, m, r0, r1);                                                \
    }
PANELS_OF(s32, tile_32(BE_S32, 4, N, blocks, p, x, acc))
PANELS_OF(m32, tile_32(BE_M32, 4, N, blocks, p, x, acc))
PANELS_OF(signed32, tile_32(BE_S32, 0, N, blocks, p, x, acc))
PANELS_OF(halves32, tile_32(BE_H32, 0, N, blocks, p, x, acc))
PANELS_OF(s256, tile_256(BE_S256, 4, N, p, x, acc))
PANELS_OF(wide256, tile_256(BE_S256, 1, N, p, x, acc))
PANELS_OF(signed256, tile_256(BE_S256, 0, N, p, x, acc))
PANELS_OF(m256, tile_256(BE_M256, 4, N, p, x, acc))
#undef PANELS_OF

/* ---- a few tokens ---- */

#if defined(__AVX2__)

/* Products of neighbours, two and two. */
ALWAYS __m256i pair_sums(const bool is_signed, __m256i w, const int8_t *q)
{
    __m256i x = load256(q);
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}

/* Sub-block k of block b, in blocks of `block` values. */
ALWAYS __m256 coded_32(const uint32_t ty, const int block, const enum be_form form, const int bias,
                       const uint8_t *const w[8], const int k, const struct be_x *x, int64_t t, int64_t b,
                       __m256 acc)
{
    const int64_t i = block / 32 * b + k;
    const int8_t *q = x->q + t * x->q_stride + 32 * i;
    __m256 d = scales8(ty, w, 2 * k), dx = _mm256_set1_ps(x->d[t * x->d_stride + i]);
    int32_t sx = x->s32[t * x->s32_stride + i];
    __m256i v[8];
    UNROLL
    for (int r = 0; r < 8; r++)
        v[r] = _mm256_madd_epi16(pair_sums(form != BE_M32 && bias == SIGNED, codes_32(ty, w[r], k), q),
                                 _mm256_set1_epi16(1));
    if (form == BE_H32) {
        __m256i low, high;
        fold8_apart(v, &low, &high);
        __m256 h = _mm256_mul_ps(scales8(ty, w, 2 * k + 1), _mm256_cvtepi32_ps(high));
        return _mm256_add_ps(acc,
                             _mm256_mul_ps(dx, _mm256_add_ps(_mm256_mul_ps(d, _mm256_cvtepi32_ps(low)), h)));
    }
    __m256i sum = fold8(v);
    if (form == BE_M32) {
        __m256 m = _mm256_mul_ps(mins8(ty, w), _mm256_set1_ps((float)sx));
        return _mm256_add_ps(acc,
                             _mm256_mul_ps(dx, _mm256_add_ps(_mm256_mul_ps(d, _mm256_cvtepi32_ps(sum)), m)));
    }
    if (bias != 0)
        sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(bias * sx));
    return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(sum)));
}

/* The same for sub-block k of 256 and N tokens, whose activations are at q[n]: what a code costs is paid once. Types of grids take
 * the points as they are: magnitudes leave their signs to the activations. */
ALWAYS void pair_sums_256(const uint32_t ty, const bool is_signed, const int bias, const uint8_t *w,
                          const struct block_256 *o, const int k, const int N, const int8_t *const *q,
                          __m256i *out)
{
    __m256i code = has_signs(ty)    ? magnitudes(ty, w, o, k)
                   : ty == GT_IQ1_S ? iq1_points(o, k)
                                    : codes_256(ty, bias, w, o, k);
    UNROLL
    for (int n = 0; n < N; n++) {
        const int8_t *x = q[n] + 32 * k;
        out[n] = has_signs(ty) ? _mm256_maddubs_epi16(code, sign_where(load256(x), &o->sign[k]))
                               : pair_sums(is_signed, code, x);
    }
}

/* How much of a row's sums is due to what was added to its codes. */
ALWAYS __m256i excess(const uint32_t ty, const int bias, const struct block_256 *o, __m256i s16)
{
    if (ty == GT_IQ1_S)
        return _mm256_madd_epi16(o->over, s16);
    return _mm256_mullo_epi32(_mm256_madd_epi16(o->sc, s16), _mm256_set1_epi32(bias));
}

/* One row times N tokens: sums in eight lanes. */
ALWAYS void row_256(const uint32_t ty, const bool is_signed, const int bias, const uint8_t *w,
                    const struct block_256 *o, const int N, const int8_t *const *q, __m256i *sum)
{
    UNROLL
    for (int n = 0; n < N; n++)
        sum[n] = _mm256_setzero_si256();
    UNROLL
    for (int k = 0; k < 8; k++) {
        __m256i p[GEMV_MOST], sc = spread(o->sc, k);
        pair_sums_256(ty, is_signed, bias, w, o, k, N, q, p);
        UNROLL
        for (int n = 0; n < N; n++)
            sum[n] = _mm256_add_epi32(sum[n], _mm256_madd_epi16(p[n], sc));
    }
}

/* Rows of grids are opened before the first is multiplied: what a processor looks ahead is about one row long, and would be spent
 * on waiting for that row's indices. */
ALWAYS bool from_grid(const uint32_t ty)
{
    return has_signs(ty) || ty == GT_IQ1_S || ty == GT_IQ1_M;
}

/* Sums of 16 activation codes in the order of block_256.sc. */
ALWAYS __m256i sums_apart(const int16_t *s16)
{
    const __m256i apart = both(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load256(s16), apart), 0xd8);
}

ALWAYS void coded_256(const uint32_t ty, const enum be_form form, const int bias, const int N,
                      const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b, __m256 *acc)
{
    __m256i s16[GEMV_MOST], v[GEMV_MOST][8], m[GEMV_MOST][8];
    const int8_t *q[GEMV_MOST];
    __m256 d = scales8(ty, w, 0);
    UNROLL
    for (int n = 0; n < N; n++) {
        q[n] = x->q + (t + n) * x->q_stride + 256 * b;
        s16[n] = sums_apart(x->s16 + (t + n) * x->s16_stride + 16 * b);
    }
    struct block_256 ahead[8];
    for (int r = 0; r < 8 && from_grid(ty); r++)
        open_256(ty, w[r], &ahead[r]);
    for (int r = 0; r < 8; r++) {
        struct block_256 here;
        __m256i sum[GEMV_MOST];
        if (!from_grid(ty))
            open_256(ty, w[r], &here);
        const struct block_256 *o = from_grid(ty) ? &ahead[r] : &here;
        row_256(ty, form == BE_S256 && bias == SIGNED, bias, w[r], o, N, q, sum);
        UNROLL
        for (int n = 0; n < N; n++) {
            v[n][r] =
                bias == 0 || has_signs(ty) ? sum[n] : _mm256_sub_epi32(sum[n], excess(ty, bias, o, s16[n]));
            if (form == BE_M256)
                m[n][r] = _mm256_madd_epi16(o->min, s16[n]);
        }
    }
    UNROLL
    for (int n = 0; n < N; n++) {
        __m256 dx = _mm256_set1_ps(x->d[(t + n) * x->d_stride + b]), sum = _mm256_cvtepi32_ps(fold8(v[n]));
        if (form == BE_M256) {
            __m256 min = _mm256_mul_ps(mins8(ty, w), _mm256_cvtepi32_ps(fold8(m[n])));
            acc[n] = _mm256_add_ps(acc[n], _mm256_mul_ps(dx, _mm256_sub_ps(_mm256_mul_ps(d, sum), min)));
        } else {
            acc[n] = _mm256_add_ps(acc[n], _mm256_mul_ps(_mm256_mul_ps(d, dx), sum));
        }
    }
}

ALWAYS void coded_block(const uint32_t ty, const int block, const enum be_form form, const int bias,
                        const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                        __m256 *acc)
{
    if (block == 256) {
        coded_256(ty, form, bias, N, w, x, t, b, acc);
        return;
    }
    UNROLL
    for (int k = 0; k < block / 32; k++)
        *acc = coded_32(ty, block, form, bias, w, k, x, t, b, *acc);
}

#define CODED_BELOW(ty) (from_grid(ty) ? GEMV_MOST + 1 : GEMV_BELOW)

#define CODED_GEMV(TYPE, BLOCK, BYTES, FORM, BIAS)                                                           \
    ALWAYS void block_##TYPE(const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t,        \
                             int64_t b, __m256 *acc)                                                         \
    {                                                                                                        \
        coded_block(GT_##TYPE, BLOCK, FORM, BIAS, N, w, x, t, b, acc);                                       \
    }                                                                                                        \
    static void gemv_##TYPE(const struct be_mm *m, int64_t r0, int64_t r1)                                   \
    {                                                                                                        \
        switch (from_grid(GT_##TYPE) ? m->T : 1) {                                                           \
        case 2: gemv(block_##TYPE, 2, BLOCK, BYTES, m, r0, r1); break;                                       \
        case 3: gemv(block_##TYPE, 3, BLOCK, BYTES, m, r0, r1); break;                                       \
        case 4: gemv(block_##TYPE, 4, BLOCK, BYTES, m, r0, r1); break;                                       \
        default: gemv(block_##TYPE, 1, BLOCK, BYTES, m, r0, r1);                                             \
        }                                                                                                    \
    }

#else

#define CODED_BELOW(ty) GEMV_BELOW

#define CODED_GEMV(TYPE, BLOCK, BYTES, FORM, BIAS)                                                           \
    static void gemv_##TYPE(const struct be_mm *m, int64_t r0, int64_t r1) {}

#endif

#define CODED_KERNEL(TYPE, BLOCK, BYTES, FORM, BIAS, PANELS_NAME)                                            \
    CODED_GEMV(TYPE, BLOCK, BYTES, FORM, BIAS)                                                               \
    static void fill_##TYPE(struct panel *p, int b, const uint8_t *const row[Q])                             \
    {                                                                                                        \
        p->bias = (qi){0} + BIAS;                                                                            \
        fill_rows(GT_##TYPE, BLOCK, FORM, BIAS, p, b, row);                                                  \
    }                                                                                                        \
    static void mm_##TYPE(const struct be_mm *m, int64_t r0, int64_t r1)                                     \
    {                                                                                                        \
        if (m->T < CODED_BELOW(GT_##TYPE))                                                                   \
            gemv_##TYPE(m, r0, r1);                                                                          \
        else                                                                                                 \
            panels_##PANELS_NAME(fill_##TYPE, BLOCK, BYTES, m, r0, r1);                                      \
    }

CODED_KERNELS(CODED_KERNEL)

#endif
