/* Quantized weights times one token, straight from the file's layout: eight rows at a time, so that their sums across lanes are
 * folded together into one vector with a row to a lane. 256-bit vectors also where wider ones exist: reading the weights from
 * memory is what takes the time. Without AVX2 one token goes through the panels like many. */
#ifndef BE_K_GEMV_H
#define BE_K_GEMV_H

#include "k_quant.h"

#if defined(__AVX2__)

#define GEMV_BELOW 3 /* tokens from which unpacking a panel is faster */
#define GEMV_MOST  4 /* tokens at once, of types whose codes cost more than a product with them */

/* Sums of the lanes of eight vectors. */
ALWAYS __m256i fold4(__m256i a, __m256i b, __m256i c, __m256i d)
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}

/* The same for the low and the high four lanes apart. */
ALWAYS void fold8_apart(const __m256i v[8], __m256i *low, __m256i *high)
{
    __m256i a = fold4(v[0], v[1], v[2], v[3]), b = fold4(v[4], v[5], v[6], v[7]);
    *low = _mm256_permute2x128_si256(a, b, 0x20);
    *high = _mm256_permute2x128_si256(a, b, 0x31);
}

ALWAYS __m256i fold8(const __m256i v[8])
{
    __m256i low, high;
    fold8_apart(v, &low, &high);
    return _mm256_add_epi32(low, high);
}

/* The same for eight vectors of four lanes. */
ALWAYS __m256i fold8_half(const __m128i v[8])
{
    __m256i w[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        w[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(v[i]), v[i + 4], 1);
    return fold4(w[0], w[1], w[2], w[3]);
}

/* Halves at the same place of eight rows. */
ALWAYS __m256 halves(const uint8_t *const w[8], size_t at)
{
    return _mm256_cvtph_ps(_mm_set_epi16((short)be_le16(w[7] + at), (short)be_le16(w[6] + at),
                                         (short)be_le16(w[5] + at), (short)be_le16(w[4] + at),
                                         (short)be_le16(w[3] + at), (short)be_le16(w[2] + at),
                                         (short)be_le16(w[1] + at), (short)be_le16(w[0] + at)));
}

ALWAYS __m256i load256(const void *p)
{
    return _mm256_loadu_si256(p);
}

ALWAYS __m256i nibbles(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

/* ---- one block of one row: integer sums in eight lanes ---- */

ALWAYS __m256i row_q8_0(const uint8_t *w, const int8_t *q)
{
    __m256i v = load256(w + 2), x = load256(q);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(x, v)),
                             _mm256_set1_epi16(1));
}

ALWAYS __m256i row_q4_0(const uint8_t *w, const int8_t *q)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(w + 2));
    __m256i u = nibbles(_mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, load256(q)), _mm256_set1_epi16(1));
}

/* Scales of a Q4_K or Q5_K block as 16-bit numbers in the low half, minima in the high half. */
ALWAYS __m256i k4_scales(const uint8_t *s)
{
    uint64_t ab, c;
    memcpy(&ab, s, 8);
    uint32_t last;
    memcpy(&last, s + 8, 4);
    c = (uint64_t)last | (uint64_t)(last >> 4) << 32;
    uint64_t low = ab & 0x3f3f3f3f3f3f3f3fu,
             high = (c & 0x0f0f0f0f0f0f0f0fu) | (ab >> 6 & 0x0303030303030303u) << 4;
    __m128i v = _mm_unpacklo_epi32(_mm_cvtsi64_si128((int64_t)low), _mm_cvtsi64_si128((int64_t)high));
    return _mm256_cvtepu8_epi16(v);
}

/* 16-bit lane k of the low half to all lanes. */
ALWAYS __m256i spread(__m256i both, int k)
{
    return _mm256_shuffle_epi8(both, _mm256_set1_epi16((short)((2 * k + 1) << 8 | 2 * k)));
}

ALWAYS __m256i row_k45(const uint8_t *w, const uint8_t *qs, const uint8_t *high, const int8_t *q,
                       const int16_t *s32, __m128i *min)
{
    __m256i sm = k4_scales(w + 4), sum = _mm256_setzero_si256();
    __m256i sc = _mm256_permute2x128_si256(sm, sm, 0), fifth = high != NULL ? load256(high) : sum;
    *min = _mm_madd_epi16(_mm256_extracti128_si256(sm, 1), _mm_loadu_si128((const __m128i *)s32));
    UNROLL
    for (int c = 0; c < 4; c++) {
        __m256i v = load256(qs + 32 * c), lo = nibbles(v), hi = nibbles(_mm256_srli_epi16(v, 4));
        if (high != NULL) {
            const __m256i bit = _mm256_set1_epi8(16);
            lo = _mm256_or_si256(lo, _mm256_and_si256(c < 2 ? _mm256_slli_epi16(fifth, 4 - 2 * c)
                                                            : _mm256_srli_epi16(fifth, 2 * c - 4),
                                                      bit));
            hi = _mm256_or_si256(hi, _mm256_and_si256(c < 2 ? _mm256_slli_epi16(fifth, 3 - 2 * c)
                                                            : _mm256_srli_epi16(fifth, 2 * c - 3),
                                                      bit));
        }
        lo = _mm256_maddubs_epi16(lo, load256(q + 64 * c));
        hi = _mm256_maddubs_epi16(hi, load256(q + 64 * c + 32));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(lo, spread(sc, 2 * c)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(hi, spread(sc, 2 * c + 1)));
    }
    return sum;
}

/* Two neighbouring scales of 16, one to each half. */
ALWAYS __m256i q6_scales(__m128i sc, int k)
{
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(
        sc, _mm_set_epi64x((int64_t)0x0101010101010101u * (k + 1), (int64_t)0x0101010101010101u * k)));
}

ALWAYS __m256i row_q6_k(const uint8_t *w, const int8_t *q, const int16_t *s16)
{
    const __m256i two = _mm256_set1_epi8(0x30);
    __m128i sc = _mm_loadu_si128((const __m128i *)(w + 192));
    __m256i sum = _mm256_setzero_si256();
    UNROLL
    for (int h = 0; h < 2; h++) {
        __m256i a = load256(w + 64 * h), b = load256(w + 64 * h + 32), t = load256(w + 128 + 32 * h), u[4];
        u[0] = _mm256_or_si256(nibbles(a), _mm256_and_si256(_mm256_slli_epi16(t, 4), two));
        u[1] = _mm256_or_si256(nibbles(b), _mm256_and_si256(_mm256_slli_epi16(t, 2), two));
        u[2] = _mm256_or_si256(nibbles(_mm256_srli_epi16(a, 4)), _mm256_and_si256(t, two));
        u[3] =
            _mm256_or_si256(nibbles(_mm256_srli_epi16(b, 4)), _mm256_and_si256(_mm256_srli_epi16(t, 2), two));
        UNROLL
        for (int g = 0; g < 4; g++)
            sum = _mm256_add_epi32(
                sum, _mm256_madd_epi16(_mm256_maddubs_epi16(u[g], load256(q + 128 * h + 32 * g)),
                                       q6_scales(sc, 8 * h + 2 * g)));
    }
    __m256i excess = _mm256_madd_epi16(_mm256_cvtepi8_epi16(sc), load256(s16)); /* codes are 32 too large */
    return _mm256_sub_epi32(sum, _mm256_slli_epi32(excess, 5));
}

/* ---- one block of eight rows: acc and its products with block b of token t ---- */

ALWAYS __m256 block32(const bool q4_0, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                      __m256 acc)
{
    const int8_t *q = x->q + t * x->q_stride + 32 * b;
    __m256i v[8];
    UNROLL
    for (int r = 0; r < 8; r++)
        v[r] = q4_0 ? row_q4_0(w[r], q) : row_q8_0(w[r], q);
    __m256i sum = fold8(v);
    if (q4_0)
        sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(8 * x->s32[t * x->s32_stride + b]));
    __m256 d = _mm256_mul_ps(halves(w, 0), _mm256_set1_ps(x->d[t * x->d_stride + b]));
    return _mm256_add_ps(acc, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sum)));
}

ALWAYS void block_q8_0(const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                       __m256 *acc)
{
    *acc = block32(false, w, x, t, b, *acc);
}

ALWAYS void block_q4_0(const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                       __m256 *acc)
{
    *acc = block32(true, w, x, t, b, *acc);
}

ALWAYS __m256 block_k45(const bool q5, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                        __m256 acc)
{
    const int8_t *q = x->q + t * x->q_stride + 256 * b;
    const int16_t *s32 = x->s32 + t * x->s32_stride + 8 * b;
    __m256i v[8];
    __m128i m[8];
    UNROLL
    for (int r = 0; r < 8; r++)
        v[r] = q5 ? row_k45(w[r], w[r] + 48, w[r] + 16, q, s32, &m[r])
                  : row_k45(w[r], w[r] + 16, NULL, q, s32, &m[r]);
    __m256 sum = _mm256_mul_ps(halves(w, 0), _mm256_cvtepi32_ps(fold8(v)));
    __m256 min = _mm256_mul_ps(halves(w, 2), _mm256_cvtepi32_ps(fold8_half(m)));
    return _mm256_add_ps(acc,
                         _mm256_mul_ps(_mm256_set1_ps(x->d[t * x->d_stride + b]), _mm256_sub_ps(sum, min)));
}

ALWAYS void block_q4_k(const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                       __m256 *acc)
{
    *acc = block_k45(false, w, x, t, b, *acc);
}

ALWAYS void block_q5_k(const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                       __m256 *acc)
{
    *acc = block_k45(true, w, x, t, b, *acc);
}

ALWAYS void block_q6_k(const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                       __m256 *acc)
{
    const int8_t *q = x->q + t * x->q_stride + 256 * b;
    __m256i v[8];
    UNROLL
    for (int r = 0; r < 8; r++)
        v[r] = row_q6_k(w[r], q, x->s16 + t * x->s16_stride + 16 * b);
    __m256 d = _mm256_mul_ps(halves(w, 208), _mm256_set1_ps(x->d[t * x->d_stride + b]));
    *acc = _mm256_add_ps(*acc, _mm256_mul_ps(d, _mm256_cvtepi32_ps(fold8(v))));
}

/* ---- the loops around the blocks, for the types of k_coded.h as well ---- */

/* acc of N tokens from t on. */
typedef void gemv_block(const int N, const uint8_t *const w[8], const struct be_x *x, int64_t t, int64_t b,
                        __m256 *acc);

/* The processor's own prefetching loses itself in eight short streams: the next eight rows, which lie in one piece, are asked
 * for while these are computed. An address, not a pointer: it may lie behind the matrix. */
ALWAYS void prefetch(size_t at, int bytes)
{
    for (int k = 0; k < bytes; k += 64)
        __builtin_prefetch((const void *)(at + (size_t)k), 0, 3);
}

/* Rows r0..r1-1 times N tokens at once; lanes beyond the matrix repeat its last row. */
ALWAYS void gemv(gemv_block *some, const int N, const int block, const int bytes, const struct be_mm *m,
                 int64_t r0, int64_t r1)
{
    for (int64_t r = r0; r < r1; r += 8) {
        int64_t lanes = r1 - r < 8 ? r1 - r : 8;
        for (int64_t t = 0; t < m->T; t += N) {
            const uint8_t *w[8];
            __m256 acc[GEMV_MOST];
            UNROLL
            for (int n = 0; n < N; n++)
                acc[n] = _mm256_setzero_ps();
            UNROLL
            for (int k = 0; k < 8; k++)
                w[k] = m->w + (size_t)(r + (k < lanes ? k : lanes - 1)) * m->row_bytes;
            size_t ahead = (size_t)w[0] + 8 * m->row_bytes;
            for (int64_t b = 0; b < m->n_in / block; b++) {
                prefetch(ahead, 8 * bytes);
                ahead += 8 * (size_t)bytes;
                some(N, w, &m->x, t, b, acc);
                UNROLL
                for (int k = 0; k < 8; k++)
                    w[k] += bytes;
            }
            UNROLL
            for (int n = 0; n < N; n++)
                memcpy(m->y + (t + n) * m->n_out + r, &acc[n], (size_t)lanes * sizeof(float));
        }
    }
}

static void gemv_q8_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    gemv(block_q8_0, 1, 32, 34, m, r0, r1);
}

static void gemv_q4_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    gemv(block_q4_0, 1, 32, 18, m, r0, r1);
}

static void gemv_q4_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    gemv(block_q4_k, 1, 256, 144, m, r0, r1);
}

static void gemv_q5_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    gemv(block_q5_k, 1, 256, 176, m, r0, r1);
}

static void gemv_q6_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    gemv(block_q6_k, 1, 256, 210, m, r0, r1);
}

#else

#define GEMV_BELOW 0

#define gemv_q8_0(m, r0, r1) ((void)0)
#define gemv_q4_0(m, r0, r1) ((void)0)
#define gemv_q4_k(m, r0, r1) ((void)0)
#define gemv_q5_k(m, r0, r1) ((void)0)
#define gemv_q6_k(m, r0, r1) ((void)0)

#endif

#endif
