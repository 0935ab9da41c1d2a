/* Quantized weights times many tokens. A panel holds Q rows side by side, one row to a lane, unpacked once for all tokens: four
 * codes of each row to a 32-bit lane, so that a product with four broadcast activations needs no sum across lanes. */
#ifndef BE_K_PANEL_H
#define BE_K_PANEL_H

#include "k_quant.h"

/* 256 weights of Q rows. A 32-block type has a scale for each 32, a 256-block type one for all; the rest depends on the type. */
struct panel {
    _Alignas(64) int32_t code[64][Q];
    int16_t scale[16][2 * Q]; /* of a sub-block, twice, since products come in pairs */
    int16_t pair[8][2 * Q];   /* what multiplies two neighbouring sums of activation codes */
    float d[8][Q], dmin[Q];
};

#define PANELS                                                                                               \
    4 /* of a visit: about 10 KiB for 8 rows, so that panel and activations share the nearest cache */

/* codes[Q][256] → 32-bit lanes. */
static void interleave(struct panel *p, const uint8_t codes[Q][256])
{
#if Q >= 8
    for (int r = 0; r < Q; r += 8)
        for (int g = 0; g < 64; g += 8) {
            __m256i a[8], b[8];
            for (int i = 0; i < 8; i++)
                a[i] = _mm256_load_si256((const __m256i *)(codes[r + i] + 4 * g));
            for (int i = 0; i < 8; i += 2) {
                b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
                b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
            }
            for (int i = 0; i < 8; i += 4)
                for (int k = 0; k < 2; k++) {
                    a[i + 2 * k] = _mm256_unpacklo_epi64(b[i + k], b[i + k + 2]);
                    a[i + 2 * k + 1] = _mm256_unpackhi_epi64(b[i + k], b[i + k + 2]);
                }
            for (int i = 0; i < 4; i++) {
                _mm256_store_si256((__m256i *)&p->code[g + i][r],
                                   _mm256_permute2x128_si256(a[i], a[i + 4], 0x20));
                _mm256_store_si256((__m256i *)&p->code[g + i + 4][r],
                                   _mm256_permute2x128_si256(a[i], a[i + 4], 0x31));
            }
        }
#else
    for (int r = 0; r < Q; r++)
        for (int g = 0; g < 64; g++)
            memcpy(&p->code[g][r], codes[r] + 4 * g, 4);
#endif
}

/* One block of one row: its codes, and what else goes into lane r of the panel. b: which 32 of the panel, 0 for a block of 256. */
typedef void unpack_fn(struct panel *p, int b, int r, const uint8_t *w, uint8_t *codes);

static void set_scale(struct panel *p, int k, int r, int scale)
{
    p->scale[k][2 * r] = p->scale[k][2 * r + 1] = (int16_t)scale;
}

static void unpack_nibbles(const uint8_t *qs, uint8_t *codes)
{
    for (int c = 0; c < 4; c++)
        for (int j = 0; j < 32; j++) {
            codes[64 * c + j] = qs[32 * c + j] & 15;
            codes[64 * c + 32 + j] = qs[32 * c + j] >> 4;
        }
}

static void unpack_k4_scales(struct panel *p, int r, const uint8_t *w)
{
    p->d[0][r] = be_f16_to_f32(be_le16(w));
    p->dmin[r] = be_f16_to_f32(be_le16(w + 2));
    for (int k = 0; k < 8; k++) {
        uint8_t a, m;
        be_k4_scale(w + 4, k, &a, &m);
        set_scale(p, k, r, a);
        p->pair[k / 2][2 * r + k % 2] = m;
    }
}

static void unpack_q4_k(struct panel *p, int b, int r, const uint8_t *w, uint8_t *codes)
{
    unpack_k4_scales(p, r, w);
    unpack_nibbles(w + 16, codes);
}

static void unpack_q5_k(struct panel *p, int b, int r, const uint8_t *w, uint8_t *codes)
{
    unpack_k4_scales(p, r, w);
    unpack_nibbles(w + 48, codes);
    for (int k = 0; k < 8; k++)
        for (int j = 0; j < 32; j++)
            codes[32 * k + j] |= (uint8_t)((w[16 + j] >> k & 1) << 4);
}

static void unpack_q6_k(struct panel *p, int b, int r, const uint8_t *w, uint8_t *codes)
{
    const int8_t *scale = (const int8_t *)w + 192;
    p->d[0][r] = be_f16_to_f32(be_le16(w + 208));
    for (int k = 0; k < 16; k++) {
        set_scale(p, k, r, scale[k]);
        p->pair[k / 2][2 * r + k % 2] = scale[k];
    }
    for (int h = 0; h < 2; h++, codes += 128) {
        const uint8_t *ql = w + 64 * h, *qh = w + 128 + 32 * h;
        for (int l = 0; l < 32; l++) {
            codes[l] = (uint8_t)((ql[l] & 15) | (qh[l] & 3) << 4);
            codes[l + 32] = (uint8_t)((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4);
            codes[l + 64] = (uint8_t)(ql[l] >> 4 | (qh[l] >> 4 & 3) << 4);
            codes[l + 96] = (uint8_t)(ql[l + 32] >> 4 | (qh[l] >> 6) << 4);
        }
    }
}

static void unpack_q4_0(struct panel *p, int b, int r, const uint8_t *w, uint8_t *codes)
{
    p->d[b][r] = be_f16_to_f32(be_le16(w));
    for (int j = 0; j < 16; j++) {
        codes[j] = w[2 + j] & 15;
        codes[j + 16] = w[2 + j] >> 4;
    }
}

static void unpack_q8_0(struct panel *p, int b, int r, const uint8_t *w, uint8_t *codes)
{
    p->d[b][r] = be_f16_to_f32(be_le16(w));
    memcpy(codes, w + 2, 32);
}

/* ---- tiles: one panel against N tokens ---- */

#define Q_TOKENS 4

struct q_tile {
    const int8_t *q[Q_TOKENS];
    const float *d[Q_TOKENS];
    const int16_t *s16[Q_TOKENS], *s32[Q_TOKENS];
};

/* a[t] = sums of the 32-bit lanes over groups g0..g0+n-1; 16-bit sums hold `safe` groups. */
ALWAYS void sum_groups(const int N, const struct panel *p, const struct q_tile *x, int g0, const int n,
                       const int safe, qw scale, qi a[Q_TOKENS])
{
    for (int g = g0; g < g0 + n; g += safe) {
        qw s[Q_TOKENS];
        for (int t = 0; t < N; t++)
            s[t] = q_mul8(q_load(p->code[g]), q_bcast(x->q[t] + 4 * g));
        for (int i = 1; i < safe; i++)
            for (int t = 0; t < N; t++)
                s[t] += q_mul8(q_load(p->code[g + i]), q_bcast(x->q[t] + 4 * (g + i)));
        for (int t = 0; t < N; t++)
            a[t] += q_mul16(s[t], scale);
    }
}

/* Σ pair · sums of activation codes, which come two by two. */
ALWAYS qi sum_pairs(const struct panel *p, const int16_t *s, const int n)
{
    qi m = {0};
    for (int k = 0; k < n; k++)
        m += q_mul16((qw)q_load(p->pair[k]), (qw)q_bcast(s + 2 * k));
    return m;
}

ALWAYS void tile_k4(const int N, const int safe, const struct panel *p, const struct q_tile *x,
                    qf acc[Q_TOKENS])
{
    qi a[Q_TOKENS] = {{0}};
    for (int k = 0; k < 8; k++)
        sum_groups(N, p, x, 8 * k, 8, safe, (qw)q_load(p->scale[k]), a);
    for (int t = 0; t < N; t++) {
        qf sum = q_loadf(p->d[0]) * q_float(a[t]),
           min = q_loadf(p->dmin) * q_float(sum_pairs(p, x->s32[t], 4));
        acc[t] += ((qf){0} + x->d[t][0]) * (sum - min);
    }
}

ALWAYS void tile_q4_k(const int N, int blocks, const struct panel *p, const struct q_tile *x,
                      qf acc[Q_TOKENS])
{
    tile_k4(N, 8, p, x, acc); /* 8 groups of 2 products up to 15 * 127 */
}

ALWAYS void tile_q5_k(const int N, int blocks, const struct panel *p, const struct q_tile *x,
                      qf acc[Q_TOKENS])
{
    tile_k4(N, 4, p, x, acc); /* 31 * 127 */
}

/* Codes are 32 too large: the excess is 32 Σ scale · sum of activations. */
ALWAYS void tile_q6_k(const int N, int blocks, const struct panel *p, const struct q_tile *x,
                      qf acc[Q_TOKENS])
{
    qi a[Q_TOKENS] = {{0}};
    for (int k = 0; k < 16; k++)
        sum_groups(N, p, x, 4 * k, 4, 2, (qw)q_load(p->scale[k]), a); /* 63 * 127 */
    for (int t = 0; t < N; t++) {
        qi sum = a[t] - (sum_pairs(p, x->s16[t], 8) << 5);
        acc[t] += (q_loadf(p->d[0]) * ((qf){0} + x->d[t][0])) * q_float(sum);
    }
}

/* Codes are 8 too large. */
ALWAYS void tile_q4_0(const int N, int blocks, const struct panel *p, const struct q_tile *x,
                      qf acc[Q_TOKENS])
{
    const qw one = (qw){0} + 1;
    for (int b = 0; b < blocks; b++) {
        qi a[Q_TOKENS] = {{0}};
        sum_groups(N, p, x, 8 * b, 8, 8, one, a);
        for (int t = 0; t < N; t++) {
            qi sum = a[t] - 8 * (int32_t)x->s32[t][b];
            acc[t] += (q_loadf(p->d[b]) * ((qf){0} + x->d[t][b])) * q_float(sum);
        }
    }
}

/* Signed codes: their signs go to the activations. A pair of products may be 2 * 128 * 127, so no 16-bit sum is safe. */
ALWAYS void tile_q8_0(const int N, int blocks, const struct panel *p, const struct q_tile *x,
                      qf acc[Q_TOKENS])
{
    const qw one = (qw){0} + 1;
    for (int b = 0; b < blocks; b++) {
        qi a[Q_TOKENS] = {{0}};
        for (int g = 8 * b; g < 8 * b + 8; g++) {
            qi w = q_load(p->code[g]), u = q_abs(w);
            for (int t = 0; t < N; t++)
                a[t] += q_mul16(q_mul8(u, q_sign(q_bcast(x->q[t] + 4 * g), w)), one);
        }
        for (int t = 0; t < N; t++)
            acc[t] += (q_loadf(p->d[b]) * ((qf){0} + x->d[t][b])) * q_float(a[t]);
    }
}

/* ---- the loops around the tiles ---- */

/* blocks: how many 32-blocks of the panel are there (a row of 32-blocks may end within it). */
typedef void tile_fn(const int N, int blocks, const struct panel *p, const struct q_tile *x,
                     qf acc[Q_TOKENS]);

/* Values i..i+255 of Q rows. */
ALWAYS void fill_panel(unpack_fn *unpack, const int block, const int bytes, struct panel *p,
                       const uint8_t *const rows[Q], int64_t i, int64_t n_in)
{
    _Alignas(64) uint8_t codes[Q][256];
    int n = n_in - i < 256 ? (int)(n_in - i) : 256;
    if (n < 256)
        memset(codes, 0, sizeof codes);
    for (int r = 0; r < Q; r++)
        for (int b = 0; b < n / block; b++)
            unpack(p, b, r, rows[r] + (i / block + b) * bytes, codes[r] + block * b);
    interleave(p, codes);
}

ALWAYS void run_tile(tile_fn *tile, const int block, const int N, const struct be_mm *m,
                     const struct panel *p, int64_t t, int64_t i, int64_t end, qf *acc)
{
    struct q_tile x;
    const struct be_x *a = &m->x;
    qf s[Q_TOKENS];
    for (int k = 0; k < N; k++) {
        x.q[k] = a->q + (t + k) * a->q_stride + i;
        x.d[k] = a->d + (t + k) * a->d_stride + i / block;
        x.s16[k] = a->s16 + (t + k) * a->s16_stride + i / 16;
        x.s32[k] = a->s32 + (t + k) * a->s32_stride + i / 32;
        s[k] = acc[k];
    }
    for (; i < end; i += 256, p++) {
        tile(N, end - i < 256 ? (int)(end - i) / 32 : 8, p, &x, s);
        for (int k = 0; k < N; k++) {
            x.q[k] += 256;
            x.d[k] += 256 / block;
            x.s16[k] += 16;
            x.s32[k] += 8;
        }
    }
    for (int k = 0; k < N; k++)
        acc[k] = s[k];
}

#define Q_GROUP 64 /* tokens for which a panel is unpacked */

/* Q rows from row r, tokens t0..t0+n-1. */
ALWAYS void panel_rows(unpack_fn *unpack, tile_fn *tile, const int block, const int bytes,
                       const struct be_mm *m, int64_t r, int64_t t0, int64_t n)
{
    struct panel p[PANELS];
    const uint8_t *rows[Q];
    qf acc[Q_GROUP];
    int64_t lanes = m->n_out - r < Q ? m->n_out - r : Q;
    for (int k = 0; k < Q; k++) /* lanes beyond the matrix repeat its last row */
        rows[k] = m->w + (size_t)(r + (k < lanes ? k : lanes - 1)) * m->row_bytes;
    memset(acc, 0, (size_t)n * sizeof acc[0]);
    for (int64_t i = 0; i < m->n_in; i += 256 * PANELS) {
        int64_t end = m->n_in - i < 256 * PANELS ? m->n_in : i + 256 * PANELS, t = 0;
        for (int64_t k = i; k < end; k += 256)
            fill_panel(unpack, block, bytes, &p[(k - i) / 256], rows, k, m->n_in);
        for (; t + Q_TOKENS <= n; t += Q_TOKENS)
            run_tile(tile, block, Q_TOKENS, m, p, t0 + t, i, end, acc + t);
        for (; t < n; t++)
            run_tile(tile, block, 1, m, p, t0 + t, i, end, acc + t);
    }
    for (int64_t t = 0; t < n; t++)
        memcpy(m->y + (t0 + t) * m->n_out + r, &acc[t], (size_t)lanes * sizeof(float));
}

ALWAYS void mm_panel(unpack_fn *unpack, tile_fn *tile, const int block, const int bytes,
                     const struct be_mm *m, int64_t r0, int64_t r1)
{
    for (int64_t t = 0; t < m->T; t += Q_GROUP)
        for (int64_t r = r0; r < r1; r += Q)
            panel_rows(unpack, tile, block, bytes, m, r, t, m->T - t < Q_GROUP ? m->T - t : Q_GROUP);
}

#include "k_gemv.h"

static void mm_q8_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q8_0(m, r0, r1);
    else
        mm_panel(unpack_q8_0, tile_q8_0, 32, 34, m, r0, r1);
}

static void mm_q4_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q4_0(m, r0, r1);
    else
        mm_panel(unpack_q4_0, tile_q4_0, 32, 18, m, r0, r1);
}

static void mm_q4_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q4_k(m, r0, r1);
    else
        mm_panel(unpack_q4_k, tile_q4_k, 256, 144, m, r0, r1);
}

static void mm_q5_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q5_k(m, r0, r1);
    else
        mm_panel(unpack_q5_k, tile_q5_k, 256, 176, m, r0, r1);
}

static void mm_q6_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q6_k(m, r0, r1);
    else
        mm_panel(unpack_q6_k, tile_q6_k, 256, 210, m, r0, r1);
}

#endif
