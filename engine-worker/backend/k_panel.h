/* Quantized weights times many tokens. A panel holds Q rows side by side, one row to a lane, unpacked once for all tokens: four
 * codes of each row to a 32-bit lane, so that a product with four broadcast activations needs no sum across lanes. */
#ifndef BE_K_PANEL_H
#define BE_K_PANEL_H

#include "k_gemv.h"
#include "k_quant.h"

/* 256 weights of Q rows. A 32-block type has a scale for each 32, a 256-block type one for all; the rest depends on the type. */
struct panel {
    qi code[64];
    qi scale[16]; /* of a sub-block, twice as 16 bits, since products come in pairs */
    qi pair[8];   /* 16-bit factors of two neighbouring sums of activation codes */
    qf d[8], dmin;
    qi bias; /* of the codes; types of k_coded.h */
};

#define PANELS                                                                                               \
    4 /* of a visit: about 12 KiB for 8 rows, so that panel and activations share the nearest cache */

/* a: four vectors whose 128-bit lanes hold 16 bytes of a row → four with four bytes of every row. */
#define TRANSPOSE4(V, LO32, HI32, LO64, HI64, a, v)                                                          \
    do {                                                                                                     \
        V b0 = LO32(a[0], a[1]), b1 = HI32(a[0], a[1]), b2 = LO32(a[2], a[3]), b3 = HI32(a[2], a[3]);        \
        v[0] = LO64(b0, b2);                                                                                 \
        v[1] = HI64(b0, b2);                                                                                 \
        v[2] = LO64(b1, b3);                                                                                 \
        v[3] = HI64(b1, b3);                                                                                 \
    } while (0)

#if Q >= 8
/* 16 bytes of each of eight rows; lane r is row r. */
ALWAYS void transpose8(const uint8_t *const row[8], size_t at, __m256i v[4])
{
    __m256i a[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        a[i] =
            _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(row[i] + at))),
                                    _mm_loadu_si128((const __m128i *)(row[i + 4] + at)), 1);
    TRANSPOSE4(__m256i, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64,
               _mm256_unpackhi_epi64, a, v);
}
#endif

/* 16 bytes of each of Q rows → four vectors with four bytes of every row. */
ALWAYS void transpose16(const uint8_t *const row[Q], size_t at, qi v[4])
{
#if Q == 16
    __m256i a[4], b[4];
    transpose8(row, at, a);
    transpose8(row + 8, at, b);
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = (qi)_mm512_inserti64x4(_mm512_castsi256_si512(a[i]), b[i], 1);
#elif Q == 8
    __m256i a[4];
    transpose8(row, at, a);
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = (qi)a[i];
#else
    __m128i a[4], b[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        a[i] = _mm_loadu_si128((const __m128i *)(row[i] + at));
    TRANSPOSE4(__m128i, _mm_unpacklo_epi32, _mm_unpackhi_epi32, _mm_unpacklo_epi64, _mm_unpackhi_epi64, a, b);
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = (qi)b[i];
#endif
}

/* The same for 32 bytes and eight vectors. */
ALWAYS void transpose32(const uint8_t *const row[Q], size_t at, qi v[8])
{
    transpose16(row, at, v);
    transpose16(row, at + 16, v + 4);
}

/* Half precision in the low 16 bits of each lane. */
ALWAYS qf q_half(qi h)
{
    qi mag = h & 0x7fff;
    qf f = (qf)(mag << 13) * 0x1p112f; /* normals and subnormals; infinity and NaN get their exponent back */
    return (qf)((qi)f | ((mag > 0x7bff) & 0x7f800000) | (h & 0x8000) << 16);
}

ALWAYS qf row_halves(const uint8_t *const row[Q], size_t at)
{
#if Q == 8
    return (qf)halves(row, at);
#elif Q == 16
    return (qf)_mm512_insertf32x8(_mm512_castps256_ps512(halves(row, at)), halves(row + 8, at), 1);
#else
    qi h;
    for (int r = 0; r < Q; r++)
        h[r] = be_le16(row[r] + at);
    return q_half(h);
#endif
}

ALWAYS qi q_low(qi v)
{
    return v & 0x0f0f0f0f;
}

/* Logical shift: the sign bit belongs to the last byte's code. */
ALWAYS qi q_shr(qi v, int n)
{
    typedef uint32_t qu __attribute__((vector_size(4 * Q)));
    return (qi)((qu)v >> n);
}

/* Byte j of each lane as two equal 16-bit numbers, or bytes j and j + 1 as two. */
ALWAYS qi q_twice(qi v, int j)
{
    qi b = q_shr(v, 8 * j) & 0xff;
    return b | b << 16;
}

ALWAYS qi q_two(qi v, int j)
{
    qi b = q_shr(v, 8 * j);
    return (b & 0xff) | (b & 0xff00) << 8;
}

/* The same with signs. */
ALWAYS qi q_twice_signed(qi v, int j)
{
    qi b = (v << (24 - 8 * j)) >> 24;
    return (b & 0xffff) | b << 16;
}

ALWAYS qi q_two_signed(qi v, int j)
{
    qi lo = (v << (24 - 8 * j)) >> 24, hi = (v << (16 - 8 * j)) >> 24;
    return (lo & 0xffff) | hi << 16;
}

/* Fills a panel from the block of each row. b: which 32 of the panel, 0 for a block of 256. */
typedef void fill_fn(struct panel *p, int b, const uint8_t *const row[Q]);

ALWAYS void fill_k4_scales(struct panel *p, const uint8_t *const row[Q])
{
    qi v[4], scale[2], min[2];
    transpose16(row, 0, v); /* d and dmin; 12 bytes of 6-bit numbers */
    p->d[0] = q_half(v[0]);
    p->dmin = q_half(q_shr(v[0], 16));
    scale[0] = v[1] & 0x3f3f3f3f;
    min[0] = v[2] & 0x3f3f3f3f;
    scale[1] = q_low(v[3]) | (q_shr(v[1], 6) & 0x03030303) << 4;
    min[1] = q_low(q_shr(v[3], 4)) | (q_shr(v[2], 6) & 0x03030303) << 4;
    for (int k = 0; k < 8; k++)
        p->scale[k] = q_twice(scale[k / 4], k % 4);
    for (int k = 0; k < 4; k++)
        p->pair[k] = q_two(min[k / 2], 2 * (k % 2));
}

static void fill_q4_k(struct panel *p, int b, const uint8_t *const row[Q])
{
    fill_k4_scales(p, row);
    for (int c = 0; c < 4; c++) {
        qi v[8];
        transpose32(row, 16 + 32 * (size_t)c, v);
        UNROLL
        for (int g = 0; g < 8; g++) {
            p->code[16 * c + g] = q_low(v[g]);
            p->code[16 * c + 8 + g] = q_low(q_shr(v[g], 4));
        }
    }
}

static void fill_q5_k(struct panel *p, int b, const uint8_t *const row[Q])
{
    qi high[8];
    fill_k4_scales(p, row);
    transpose32(row, 16, high);
    for (int c = 0; c < 4; c++) {
        qi v[8];
        transpose32(row, 48 + 32 * (size_t)c, v);
        UNROLL
        for (int g = 0; g < 8; g++) {
            qi h = q_shr(high[g], 2 * c);
            p->code[16 * c + g] = q_low(v[g]) | (h & 0x01010101) << 4;
            p->code[16 * c + 8 + g] = q_low(q_shr(v[g], 4)) | (h & 0x02020202) << 3;
        }
    }
}

static void fill_q6_k(struct panel *p, int b, const uint8_t *const row[Q])
{
    qi scale[4];
    transpose16(row, 192, scale);
    p->d[0] = row_halves(row, 208);
    for (int k = 0; k < 16; k++)
        p->scale[k] = q_twice_signed(scale[k / 4], k % 4);
    for (int k = 0; k < 8; k++)
        p->pair[k] = q_two_signed(scale[k / 2], 2 * (k % 2));
    UNROLL
    for (int h = 0; h < 2; h++) {
        qi lo[8], up[8], high[8];
        transpose32(row, 64 * (size_t)h, lo);
        transpose32(row, 64 * (size_t)h + 32, up);
        transpose32(row, 128 + 32 * (size_t)h, high);
        UNROLL
        for (int g = 0; g < 8; g++) {
            qi *c = &p->code[32 * h + g];
            c[0] = q_low(lo[g]) | (high[g] & 0x03030303) << 4;
            c[8] = q_low(up[g]) | (high[g] & 0x0c0c0c0c) << 2;
            c[16] = q_low(q_shr(lo[g], 4)) | (high[g] & 0x30303030);
            c[24] = q_low(q_shr(up[g], 4)) | (q_shr(high[g], 2) & 0x30303030);
        }
    }
}

static void fill_q4_0(struct panel *p, int b, const uint8_t *const row[Q])
{
    qi v[4];
    transpose16(row, 2, v);
    p->d[b] = row_halves(row, 0);
    UNROLL
    for (int g = 0; g < 4; g++) {
        p->code[8 * b + g] = q_low(v[g]);
        p->code[8 * b + 4 + g] = q_low(q_shr(v[g], 4));
    }
}

static void fill_q8_0(struct panel *p, int b, const uint8_t *const row[Q])
{
    transpose32(row, 2, &p->code[8 * b]);
    p->d[b] = row_halves(row, 0);
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
        UNROLL
        for (int t = 0; t < N; t++)
            s[t] = q_mul8(p->code[g], q_bcast(x->q[t] + 4 * g));
        UNROLL
        for (int i = 1; i < safe; i++) {
            qi w = p->code[g + i];
            UNROLL
            for (int t = 0; t < N; t++) {
                s[t] += q_mul8(w, q_bcast(x->q[t] + 4 * (g + i)));
                PIN(s[t]);
            }
        }
        UNROLL
        for (int t = 0; t < N; t++) {
            a[t] += q_mul16(s[t], scale);
            PIN(a[t]);
        }
    }
}

/* Σ pair · sums of activation codes, which come two by two. */
ALWAYS qi sum_pairs(const struct panel *p, const int16_t *s, const int n)
{
    qi m = {0};
    UNROLL
    for (int k = 0; k < n; k++)
        m += q_mul16((qw)p->pair[k], (qw)q_bcast(s + 2 * k));
    return m;
}

ALWAYS void tile_k4(const int N, const int safe, const struct panel *p, const struct q_tile *x,
                    qf acc[Q_TOKENS])
{
    qi a[Q_TOKENS] = {{0}};
    for (int k = 0; k < 8; k++)
        sum_groups(N, p, x, 8 * k, 8, safe, (qw)p->scale[k], a);
    UNROLL
    for (int t = 0; t < N; t++) {
        qf sum = p->d[0] * q_float(a[t]), min = p->dmin * q_float(sum_pairs(p, x->s32[t], 4));
        acc[t] += q_setf(x->d[t][0]) * (sum - min);
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
        sum_groups(N, p, x, 4 * k, 4, 2, (qw)p->scale[k], a); /* 63 * 127 */
    UNROLL
    for (int t = 0; t < N; t++) {
        qi sum = a[t] - (sum_pairs(p, x->s16[t], 8) << 5);
        acc[t] += (p->d[0] * q_setf(x->d[t][0])) * q_float(sum);
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
        UNROLL
        for (int t = 0; t < N; t++) {
            qi sum = a[t] - 8 * (int32_t)x->s32[t][b];
            acc[t] += (p->d[b] * q_setf(x->d[t][b])) * q_float(sum);
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
            qi w = p->code[g], u = q_abs(w);
            UNROLL
            for (int t = 0; t < N; t++) {
                a[t] += q_mul16(q_mul8(u, q_sign(q_bcast(x->q[t] + 4 * g), w)), one);
                PIN(a[t]);
            }
        }
        UNROLL
        for (int t = 0; t < N; t++)
            acc[t] += (p->d[b] * q_setf(x->d[t][b])) * q_float(a[t]);
    }
}

/* ---- the loops around the tiles ---- */

/* blocks: how many 32-blocks of the panel are there (a row of 32-blocks may end within it). */
typedef void tile_fn(const int N, int blocks, const struct panel *p, const struct q_tile *x,
                     qf acc[Q_TOKENS]);

/* Values i..i+255 of Q rows. */
ALWAYS void fill_panel(fill_fn *fill, const int block, const int bytes, struct panel *p,
                       const uint8_t *const rows[Q], int64_t i, int64_t n_in)
{
    int n = n_in - i < 256 ? (int)(n_in - i) : 256;
    for (int b = 0; b < n / block; b++) {
        const uint8_t *at[Q];
        for (int r = 0; r < Q; r++)
            at[r] = rows[r] + (i / block + b) * bytes;
        fill(p, b, at);
    }
}

ALWAYS void run_tile(tile_fn *tile, const int block, const int N, const struct be_mm *m,
                     const struct panel *p, int64_t t, int64_t i, int64_t end, qf *acc)
{
    struct q_tile x;
    const struct be_x *a = &m->x;
    const int unit = block < 256 ? 32 : 256; /* activations that share a scale */
    qf s[Q_TOKENS];
    UNROLL
    for (int k = 0; k < N; k++) {
        x.q[k] = a->q + (t + k) * a->q_stride + i;
        x.d[k] = a->d + (t + k) * a->d_stride + i / unit;
        x.s16[k] = a->s16 + (t + k) * a->s16_stride + i / 16;
        x.s32[k] = a->s32 + (t + k) * a->s32_stride + i / 32;
        s[k] = acc[k];
    }
    for (; i < end; i += 256, p++) {
        tile(N, end - i < 256 ? (int)(end - i) / 32 : 8, p, &x, s);
        UNROLL
        for (int k = 0; k < N; k++) {
            x.q[k] += 256;
            x.d[k] += 256 / unit;
            x.s16[k] += 16;
            x.s32[k] += 8;
        }
    }
    UNROLL
    for (int k = 0; k < N; k++)
        acc[k] = s[k];
}

/* Whole vectors by a plain store: a copy of a size that only the run knows is a call for each. */
ALWAYS void store_rows(const struct be_mm *m, int64_t r, int64_t lanes, int64_t t0, int64_t n, const qf *acc)
{
    float *y = m->y + t0 * m->n_out + r;
    if (lanes == Q)
        for (int64_t t = 0; t < n; t++)
            memcpy(y + t * m->n_out, &acc[t], sizeof *acc);
    else
        for (int64_t t = 0; t < n; t++)
            memcpy(y + t * m->n_out, &acc[t], (size_t)lanes * sizeof(float));
}

#define Q_GROUP 64 /* tokens for which a panel is unpacked */

/* Q rows from row r, tokens t0..t0+n-1. */
ALWAYS void panel_rows(fill_fn *fill, tile_fn *tile, const int block, const int bytes, const struct be_mm *m,
                       int64_t r, int64_t t0, int64_t n)
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
            fill_panel(fill, block, bytes, &p[(k - i) / 256], rows, k, m->n_in);
        for (; t + Q_TOKENS <= n; t += Q_TOKENS)
            run_tile(tile, block, Q_TOKENS, m, p, t0 + t, i, end, acc + t);
        if (n - t == 3)
            run_tile(tile, block, 3, m, p, t0 + t, i, end, acc + t);
        else if (n - t == 2)
            run_tile(tile, block, 2, m, p, t0 + t, i, end, acc + t);
        else if (n - t == 1)
            run_tile(tile, block, 1, m, p, t0 + t, i, end, acc + t);
    }
    store_rows(m, r, lanes, t0, n, acc);
}

ALWAYS void mm_panel(fill_fn *fill, tile_fn *tile, const int block, const int bytes, const struct be_mm *m,
                     int64_t r0, int64_t r1)
{
    for (int64_t t = 0; t < m->T; t += Q_GROUP)
        for (int64_t r = r0; r < r1; r += Q)
            panel_rows(fill, tile, block, bytes, m, r, t, m->T - t < Q_GROUP ? m->T - t : Q_GROUP);
}

static void mm_q8_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q8_0(m, r0, r1);
    else
        mm_panel(fill_q8_0, tile_q8_0, 32, 34, m, r0, r1);
}

static void mm_q4_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q4_0(m, r0, r1);
    else
        mm_panel(fill_q4_0, tile_q4_0, 32, 18, m, r0, r1);
}

static void mm_q4_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q4_k(m, r0, r1);
    else
        mm_panel(fill_q4_k, tile_q4_k, 256, 144, m, r0, r1);
}

static void mm_q5_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q5_k(m, r0, r1);
    else
        mm_panel(fill_q5_k, tile_q5_k, 256, 176, m, r0, r1);
}

static void mm_q6_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    if (m->T < GEMV_BELOW)
        gemv_q6_k(m, r0, r1);
    else
        mm_panel(fill_q6_k, tile_q6_k, 256, 210, m, r0, r1);
}

#endif
