/* Blocks of the types of k_coded.h as vectors of codes (AVX2). A code is unsigned: the type's bias is added, so that a product with
 * signed activations is one instruction; only codes that need all eight bits stay signed. */
#ifndef BE_K_DECODE_H
#define BE_K_DECODE_H

#include "grids.h"
#include "k_gemv.h"

#if defined(__AVX2__)

ALWAYS __m256i both(__m128i v)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(v), v, 1);
}

ALWAYS __m128i load128(const void *p)
{
    return _mm_loadu_si128(p);
}

ALWAYS __m128i load64(const void *p)
{
    return _mm_loadl_epi64(p);
}

ALWAYS uint32_t le32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Sixteen bytes of nibbles: the low ones, then the high ones. */
ALWAYS __m256i nibbles32(const uint8_t *p)
{
    __m128i v = load128(p);
    return nibbles(_mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1));
}

/* Bit j of 32 to byte j: 255 when set. */
ALWAYS __m256i bit_mask(uint32_t word)
{
    const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    const __m256i rep = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)word), rep);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bits), bits);
}

/* ---- blocks of 32 ---- */

ALWAYS __m256i fifth(__m256i v, const uint8_t *qh)
{
    return _mm256_or_si256(v, _mm256_and_si256(bit_mask(le32(qh)), _mm256_set1_epi8(16)));
}

/* Half the E2M1 values doubled, plus 12. */
ALWAYS __m256i fp4_codes(__m256i v)
{
    return _mm256_shuffle_epi8(both(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)),
                               v);
}

ALWAYS __m256i iq4_codes(__m256i v)
{
    return _mm256_shuffle_epi8(both(load128(be_iq4_codes)), v);
}

/* Sixteen bytes, eight for each 16 codes: low nibbles first, then high ones. */
ALWAYS __m256i nvfp4_codes(const uint8_t *p)
{
    __m128i v = load128(p), n = _mm_set1_epi8(15);
    __m128i lo = _mm_and_si128(v, n), hi = _mm_and_si128(_mm_srli_epi16(v, 4), n);
    v = _mm_unpacklo_epi64(lo, hi);
    return _mm256_shuffle_epi8(
        both(load128(be_fp4_codes)),
        _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_unpackhi_epi64(lo, hi), 1));
}

/* Eight bytes of four times two bits. */
ALWAYS __m256i quarters(const uint8_t *p)
{
    __m256i v = _mm256_cvtepu8_epi32(load64(p));
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 12));
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 6));
    return _mm256_and_si256(v, _mm256_set1_epi8(3));
}

/* Codes 32 k to 32 k + 31 of a block. */
ALWAYS __m256i codes_32(const uint32_t ty, const uint8_t *w, const int k)
{
    switch (ty) {
    case GT_Q4_1: return nibbles32(w + 4);
    case GT_Q5_0: return fifth(nibbles32(w + 6), w + 2);
    case GT_Q5_1: return fifth(nibbles32(w + 8), w + 4);
    case GT_Q8_1: return load256(w + 4);
    case GT_Q1_0: return _mm256_and_si256(bit_mask(le32(w + 2 + 4 * k)), _mm256_set1_epi8(2));
    case GT_Q2_0: return quarters(w + 2 + 8 * k);
    case GT_MXFP4: return fp4_codes(nibbles32(w + 1));
    case GT_NVFP4: return nvfp4_codes(w + 4 + 16 * k);
    default: return iq4_codes(nibbles32(w + 2));
    }
}

/* ---- blocks of 256 ---- */

/* Scales of every 16 as 16-bit numbers, those of the first halves of each 32 in the low half of the vector, so that spread(sc, k)
 * is what the 32 products of sub-block k need; minima alike. sign: a byte for every 8 codes. point: indices into a grid, of types
 * that store them in two parts; trit: the bytes of TQ1_0 whose top digit is that of sub-block k; over (IQ1_S): by how much points
 * exceed codes, times the scale. */
struct block_256 {
    __m256i sc, min, over;
    _Alignas(32) uint32_t sign[8];
    _Alignas(32) uint16_t point[64];
    __m256i trit[8];
};

/* Sixteen bytes in order → 16-bit numbers in that order of halves. */
ALWAYS __m128i halves_apart(__m128i v)
{
    return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
}

ALWAYS __m256i q3_scales(const uint8_t *s)
{
    const uint64_t two = 0x0303030303030303u, four = 0x0f0f0f0f0f0f0f0fu;
    uint64_t a, t = le32(s + 8);
    memcpy(&a, s, sizeof a);
    uint64_t low = (a & four) | ((t | t << 30) & two) << 4,
             high = (a >> 4 & four) | ((t >> 4 | t << 26) & two) << 4;
    __m128i v = _mm_set_epi64x((int64_t)high, (int64_t)low);
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(halves_apart(v)), _mm256_set1_epi16(32));
}

/* Eight nibbles, one for each 32. */
ALWAYS __m128i nibble_scales(const uint8_t *s)
{
    uint32_t v = le32(s);
    __m128i even = _mm_cvtsi32_si128((int32_t)(v & 0x0f0f0f0f)),
            odd = _mm_cvtsi32_si128((int32_t)(v >> 4 & 0x0f0f0f0f));
    return _mm_cvtepu8_epi16(_mm_unpacklo_epi8(even, odd));
}

ALWAYS __m256i iq4_scales(const uint8_t *w)
{
    const __m128i up = _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1);
    __m128i high = _mm_srli_epi16(_mm_mullo_epi16(_mm_set1_epi16((short)be_le16(w + 2)), up), 14);
    __m128i v = _mm_or_si128(nibble_scales(w + 4), _mm_slli_epi16(high, 4));
    return both(_mm_sub_epi16(v, _mm_set1_epi16(32)));
}

ALWAYS __m256i odd_numbers(__m256i v)
{
    return _mm256_add_epi16(_mm256_add_epi16(v, v), _mm256_set1_epi16(1));
}

/* Nibbles of eight bytes: a scale for each 16. */
ALWAYS __m256i iq2_scales(const uint8_t *s)
{
    __m128i v = load64(s), n = _mm_set1_epi8(15);
    v = _mm_unpacklo_epi64(_mm_and_si128(v, n), _mm_and_si128(_mm_srli_epi16(v, 4), n));
    return odd_numbers(_mm256_cvtepu8_epi16(v));
}

/* Seven signs in each byte; the eighth makes the number of negatives even. */
ALWAYS __m256i eighth_sign(__m256i s)
{
    const __m256i odd =
        both(_mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i half =
        _mm256_xor_si256(s, _mm256_srli_epi16(s, 4)); /* its low nibble has the parity of the byte */
    return _mm256_or_si256(s, _mm256_shuffle_epi8(odd, nibbles(half)));
}

/* Into memory indeed: single words are loaded from there, which is cheaper than taking them out of a register. */
ALWAYS void put_signs(struct block_256 *o, __m256i v)
{
    _mm256_store_si256((__m256i *)o->sign, v);
    __asm__("" : "+m"(o->sign));
}

ALWAYS void put_points(struct block_256 *o, const int at, __m256i v)
{
    _mm256_store_si256((__m256i *)(o->point + at), v);
    __asm__("" : "+m"(o->point));
}

/* Eight words of four times seven signs and a scale of four bits. Two sevens move apart by adding the upper one once more. */
ALWAYS void signs_and_scales(__m256i a, struct block_256 *o)
{
    __m256i high = _mm256_and_si256(_mm256_slli_epi32(a, 2), _mm256_set1_epi32(0x3fff0000));
    __m256i s = _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi32(0x3fff)), high);
    s = _mm256_add_epi16(s, _mm256_and_si256(s, _mm256_set1_epi16(0x3f80)));
    put_signs(o, eighth_sign(s));
    __m256i sc = _mm256_or_si256(_mm256_srli_epi32(a, 27), _mm256_set1_epi32(1)); /* odd numbers */
    o->sc = _mm256_permute4x64_epi64(_mm256_packs_epi32(sc, sc), 0x88);
}

ALWAYS void signs_iq2_xxs(const uint8_t *w, struct block_256 *o)
{
    __m256 a = _mm256_castsi256_ps(load256(w + 2)), b = _mm256_castsi256_ps(load256(w + 34));
    signs_and_scales(_mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8), o);
}

ALWAYS void signs_iq2_xs(const uint8_t *w, struct block_256 *o)
{
    __m256i a = _mm256_srli_epi16(load256(w + 2), 9), b = _mm256_srli_epi16(load256(w + 34), 9);
    put_signs(o, eighth_sign(_mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8)));
}

/* Sixteen indices from their low bytes and from words whose bits, moved up by a factor, are the high ones. */
ALWAYS void merge_points(struct block_256 *o, const int at, const uint8_t *low, __m256i high, __m256i up,
                         const int mask)
{
    high = _mm256_and_si256(_mm256_mullo_epi16(high, up), _mm256_set1_epi16((short)mask));
    put_points(o, at, _mm256_or_si256(_mm256_cvtepu8_epi16(load128(low)), high));
}

/* Bytes of eight, each to the low halves of n words; the first words are those of byte `at`. */
ALWAYS __m256i bytes_to_words(const uint8_t *p, const int at, const int n)
{
    char i[32];
    for (int k = 0; k < 16; k++) {
        i[2 * k] = (char)(at + k / n);
        i[2 * k + 1] = -128;
    }
    return _mm256_shuffle_epi8(both(load64(p)), load256(i));
}

ALWAYS void points_iq3_s(const uint8_t *w, struct block_256 *o)
{
    const __m256i up = both(_mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2));
    UNROLL
    for (int i = 0; i < 4; i++)
        merge_points(o, 16 * i, w + 2 + 16 * i, bytes_to_words(w + 66, 2 * i, 8), up, 256);
}

ALWAYS void points_iq2_s(const uint8_t *w, struct block_256 *o)
{
    const __m256i up = _mm256_set1_epi64x(0x0004001000400100);
    UNROLL
    for (int i = 0; i < 2; i++)
        merge_points(o, 16 * i, w + 2 + 16 * i, bytes_to_words(w + 66, 4 * i, 4), up, 768);
}

ALWAYS void points_iq2_xs(const uint8_t *w, struct block_256 *o)
{
    const __m256i nine = _mm256_set1_epi16(511);
    put_points(o, 0, _mm256_and_si256(load256(w + 2), nine));
    put_points(o, 16, _mm256_and_si256(load256(w + 34), nine));
}

/* Three bits for each index, four of them in a word; the last ones lie too high for a factor. */
ALWAYS void points_iq1_s(const uint8_t *w, struct block_256 *o)
{
    const __m256i up = _mm256_set1_epi64x(0x0001000400200100),
                  last = _mm256_set1_epi64x((int64_t)0xffff000000000000u);
    const __m256i each =
        _mm256_set_epi64x(0x0706070607060706, 0x0504050405040504, 0x0302030203020302, 0x0100010001000100);
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i h = _mm256_shuffle_epi8(both(load64(w + 34 + 8 * i)), each);
        h = _mm256_blendv_epi8(h, _mm256_srli_epi16(h, 1), last);
        merge_points(o, 16 * i, w + 2 + 16 * i, h, up, 1792);
    }
}

ALWAYS void points_iq1_m(const uint8_t *w, struct block_256 *o)
{
    const __m256i up = _mm256_set1_epi32(0x00100100);
    UNROLL
    for (int i = 0; i < 2; i++)
        merge_points(o, 16 * i, w + 16 * i, bytes_to_words(w + 32 + 8 * i, 0, 2), up, 1792);
}

ALWAYS __m256i times3(__m256i v)
{
    return _mm256_add_epi8(v, _mm256_add_epi8(v, v));
}

/* A byte is a fraction of 256 with five digits of base 3 behind the point: times 3^n brings digit n to the front. */
ALWAYS void open_tq1_0(const uint8_t *w, struct block_256 *o)
{
    const __m128i up = _mm_setr_epi8(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27),
                  low = _mm_set1_epi16(255);
    __m128i b = load128(w + 32), last = _mm_set1_epi32((int32_t)le32(w + 48));
    o->trit[0] = load256(w);
    UNROLL
    for (int k = 1; k < 5; k++)
        o->trit[k] = times3(o->trit[k - 1]);
    __m128i b3 = _mm_add_epi8(b, _mm_add_epi8(b, b));
    o->trit[5] = _mm256_inserti128_si256(_mm256_castsi128_si256(b), b3, 1);
    o->trit[6] = times3(times3(o->trit[5]));
    __m256i fifth = times3(times3(o->trit[6]));
    last =
        _mm_packus_epi16(_mm_and_si128(_mm_mullo_epi16(_mm_cvtepu8_epi16(last), _mm_cvtepu8_epi16(up)), low),
                         _mm_and_si128(_mm_mullo_epi16(_mm_unpackhi_epi8(last, _mm_setzero_si128()),
                                                       _mm_unpackhi_epi8(up, _mm_setzero_si128())),
                                       low));
    o->trit[7] = _mm256_inserti128_si256(fifth, last, 1);
}

/* The digit in front: three times the byte, divided by 256. */
ALWAYS __m256i top_trit(__m256i v)
{
    const __m256i one = _mm256_set1_epi8(1);
    return _mm256_add_epi8(_mm256_min_epu8(_mm256_subs_epu8(v, _mm256_set1_epi8(85)), one),
                           _mm256_min_epu8(_mm256_subs_epu8(v, _mm256_set1_epi8((char)170)), one));
}

/* Three bits for each 16, four of them in a word. */
ALWAYS __m256i iq1_m_scales(const uint8_t *s)
{
    const __m256i dup = both(_mm_setr_epi8(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7));
    const __m256i up =
        _mm256_set_epi64x(0x0010040000100400, 0x0010040000100400, 0x0080200000802000, 0x0080200000802000);
    __m256i v = _mm256_shuffle_epi8(both(load64(s)), dup);
    return odd_numbers(_mm256_srli_epi16(_mm256_mullo_epi16(v, up), 13));
}

/* What all codes of a block share. */
ALWAYS void open_256(const uint32_t ty, const uint8_t *w, struct block_256 *o)
{
    const __m128i four = _mm_set1_epi8(15);
    switch (ty) {
    case GT_Q2_K: {
        __m128i s = halves_apart(load128(w));
        o->sc = _mm256_cvtepu8_epi16(_mm_and_si128(s, four));
        o->min = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(s, 4), four));
        break;
    }
    case GT_Q3_K: o->sc = q3_scales(w + 96); break;
    case GT_IQ4_XS: o->sc = iq4_scales(w); break;
    case GT_IQ2_XXS: signs_iq2_xxs(w, o); break;
    case GT_IQ2_XS:
        o->sc = iq2_scales(w + 66);
        signs_iq2_xs(w, o);
        points_iq2_xs(w, o);
        break;
    case GT_IQ2_S:
        o->sc = iq2_scales(w + 74);
        memcpy(o->sign, w + 34, 32);
        points_iq2_s(w, o);
        break;
    case GT_IQ3_XXS: signs_and_scales(load256(w + 66), o); break;
    case GT_IQ3_S:
        o->sc = odd_numbers(both(nibble_scales(w + 106)));
        memcpy(o->sign, w + 74, 32);
        points_iq3_s(w, o);
        break;
    case GT_IQ1_S:
        o->sc = odd_numbers(both(_mm_and_si128(_mm_srli_epi16(load128(w + 34), 12), _mm_set1_epi16(7))));
        o->over = _mm256_mullo_epi16(
            o->sc,
            both(_mm_add_epi16(_mm_srli_epi16(_mm_and_si128(load128(w + 34), _mm_set1_epi16(-32768)), 14),
                               _mm_set1_epi16(9))));
        points_iq1_s(w, o);
        break;
    case GT_IQ1_M:
        o->sc = iq1_m_scales(w + 48);
        points_iq1_m(w, o);
        break;
    case GT_TQ1_0:
        o->sc = _mm256_set1_epi16(1);
        open_tq1_0(w, o);
        break;
    default: o->sc = _mm256_set1_epi16(1); break;
    }
}

/* Plane k of bytes of four times two bits. */
ALWAYS __m256i two_bits(const uint8_t *qs, const int k)
{
    return _mm256_and_si256(_mm256_srli_epi16(load256(qs + 32 * (k / 4)), 2 * (k % 4)), _mm256_set1_epi8(3));
}

ALWAYS __m256i q3_codes(const uint8_t *w, const int k)
{
    __m256i h = load256(w), four = _mm256_set1_epi8(4);
    h = _mm256_and_si256(k < 2 ? _mm256_slli_epi16(h, 2 - k) : _mm256_srli_epi16(h, k - 2), four);
    return _mm256_or_si256(two_bits(w + 32, k), h);
}

/* Points are loaded one by one, and what bounds that is how many loads a processor keeps in flight: indices come in one load for
 * several, and a load that fills the vector and a blend stand for an insertion. */
ALWAYS uint64_t in_register(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    __asm__("" : "+r"(v)); /* compilers like to load parts of it again */
    return v;
}

/* Four points of eight coordinates by the lowest four indices of n bits. */
ALWAYS __m256i points8(const uint64_t *grid, uint64_t i, const int n)
{
    const uint64_t mask = ((uint64_t)1 << n) - 1;
    __m256i ab = _mm256_blend_epi32(_mm256_set1_epi64x((int64_t)grid[i & mask]),
                                    _mm256_set1_epi64x((int64_t)grid[i >> n & mask]), 0xcc);
    __m256i cd = _mm256_blend_epi32(_mm256_set1_epi64x((int64_t)grid[i >> 2 * n & mask]),
                                    _mm256_set1_epi64x((int64_t)grid[i >> 3 * n & mask]), 0xcc);
    return _mm256_blend_epi32(ab, cd, 0xf0);
}

/* Four points of four coordinates, in both halves. */
ALWAYS __m256i points4(const uint32_t *grid, uint64_t i, const int n)
{
    const uint64_t mask = ((uint64_t)1 << n) - 1;
    __m256i ab = _mm256_blend_epi32(_mm256_set1_epi32((int)grid[i & mask]),
                                    _mm256_set1_epi32((int)grid[i >> n & mask]), 0xaa);
    __m256i cd = _mm256_blend_epi32(_mm256_set1_epi32((int)grid[i >> 2 * n & mask]),
                                    _mm256_set1_epi32((int)grid[i >> 3 * n & mask]), 0xaa);
    return _mm256_blend_epi32(ab, cd, 0xcc);
}

/* Eight times the values, plus 10. */
ALWAYS __m256i iq1_points(const struct block_256 *o, const int k)
{
    return points8(be_grid_iq1s, in_register(o->point + 4 * k), 16);
}

/* Eight times the values and the shift of 1 or -1, plus 9. */
ALWAYS __m256i iq1_s_codes(const uint8_t *w, const struct block_256 *o, const int k)
{
    return _mm256_sub_epi8(iq1_points(o, k), _mm256_set1_epi8((char)(w[35 + 2 * k] >> 6 & 2)));
}

ALWAYS __m256i iq1_m_codes(const uint8_t *w, const struct block_256 *o, const int k)
{
    const __m256i rep = _mm256_set_epi64x(0x0101010101010101, 0x0101010101010101, 0, 0);
    const __m256i bits = _mm256_set_epi64x((int64_t)0x8080808080808080u, 0x0808080808080808,
                                           (int64_t)0x8080808080808080u, 0x0808080808080808);
    __m256i down = _mm256_shuffle_epi8(_mm256_set1_epi16((short)be_le16(w + 32 + 2 * k)), rep);
    return _mm256_sub_epi8(iq1_points(o, k),
                           _mm256_min_epu8(_mm256_and_si256(down, bits), _mm256_set1_epi8(2)));
}

/* Grids whose points are magnitudes; the signs are in block_256.sign. */
ALWAYS bool has_signs(const uint32_t ty)
{
    return ty == GT_IQ2_XXS || ty == GT_IQ2_XS || ty == GT_IQ2_S || ty == GT_IQ3_XXS || ty == GT_IQ3_S;
}

ALWAYS __m256i magnitudes(const uint32_t ty, const uint8_t *w, const struct block_256 *o, const int k)
{
    uint64_t i = ty == GT_IQ2_XXS || ty == GT_IQ3_XXS ? in_register(w + 2 + 8 * k)
                 : ty == GT_IQ3_S                     ? in_register(o->point + 8 * k)
                                                      : in_register(o->point + 4 * k);
    switch (ty) {
    case GT_IQ2_XXS: return points8(be_grid_iq2xxs, i, 8);
    case GT_IQ2_XS: return points8(be_grid_iq2xs, i, 16);
    case GT_IQ2_S: return points8(be_grid_iq2s, i, 16);
    case GT_IQ3_XXS:
        return _mm256_blend_epi32(points4(be_grid_iq3xxs, i, 8), points4(be_grid_iq3xxs, i >> 32, 8), 0xf0);
    default:
        return _mm256_blend_epi32(points4(be_grid_iq3s, i, 16),
                                  points4(be_grid_iq3s, in_register(o->point + 8 * k + 4), 16), 0xf0);
    }
}

/* -x where a bit of the word is set. */
ALWAYS __m256i sign_where(__m256i x, const uint32_t *word)
{
#if defined(__AVX512VL__)
    return _mm256_mask_sub_epi8(x, *word, _mm256_setzero_si256(), x);
#else
    const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201u),
                  up = _mm256_set1_epi64x(0x01406070787c7e7f);
    const __m256i rep = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)*word), rep), bits);
    return _mm256_sign_epi8(x, _mm256_add_epi8(v, up)); /* a set bit becomes negative, none positive */
#endif
}

/* Sub-block k of 32. */
ALWAYS __m256i codes_256(const uint32_t ty, const int bias, const uint8_t *w, const struct block_256 *o,
                         const int k)
{
    switch (ty) {
    case GT_Q2_K: return two_bits(w + 16, k);
    case GT_Q3_K: return q3_codes(w, k);
    case GT_Q8_K: return load256(w + 4 + 32 * k);
    case GT_IQ4_XS: return iq4_codes(nibbles32(w + 8 + 16 * k));
    case GT_IQ1_S: return iq1_s_codes(w, o, k);
    case GT_IQ1_M: return iq1_m_codes(w, o, k);
    case GT_TQ1_0: return top_trit(o->trit[k]);
    case GT_TQ2_0: return two_bits(w, k);
    default: {
        __m256i neg = bit_mask(o->sign[k]), mag = magnitudes(ty, w, o, k);
        return _mm256_sub_epi8(_mm256_xor_si256(mag, neg),
                               _mm256_sub_epi8(neg, _mm256_set1_epi8((char)bias)));
    }
    }
}

/* ---- scales of eight rows ---- */

ALWAYS __m256 e8m0_halves(const uint8_t *const w[8])
{
    const __m256i one = _mm256_set1_epi32(1);
    __m256i e = _mm256_set_epi32(w[7][0], w[6][0], w[5][0], w[4][0], w[3][0], w[2][0], w[1][0], w[0][0]);
    __m256i f = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23),
            tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    f = _mm256_blendv_epi8(tiny, f, _mm256_cmpgt_epi32(e, one));
    f = _mm256_blendv_epi8(f, _mm256_set1_epi32(0x7fc00000), _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)));
    return _mm256_castsi256_ps(f);
}

/* The half is spread over the top nibbles of four words. */
ALWAYS __m256 iq1_m_halves(const uint8_t *const w[8])
{
    uint16_t h[8];
    for (int r = 0; r < 8; r++) {
        uint64_t s;
        memcpy(&s, w[r] + 48, sizeof s);
        h[r] = (uint16_t)((s >> 12 & 0xf) | (s >> 24 & 0xf0) | (s >> 36 & 0xf00) | (s >> 48 & 0xf000));
    }
    return _mm256_cvtph_ps(load128(h));
}

/* Byte s of the first four: four bits of exponent and three of mantissa, put where a float has them; its NaN is read as 0. Half
 * the value, since the codes are doubled. */
ALWAYS __m256 ue4m3_halves(const uint8_t *const w[8], const int s)
{
    const __m256i nan = _mm256_set1_epi32(127);
    __m256i e = _mm256_and_si256(
        _mm256_set_epi32(w[7][s], w[6][s], w[5][s], w[4][s], w[3][s], w[2][s], w[1][s], w[0][s]), nan);
    e = _mm256_andnot_si256(_mm256_cmpeq_epi32(e, nan), _mm256_slli_epi32(e, 20));
    return _mm256_mul_ps(_mm256_castsi256_ps(e), _mm256_set1_ps(0x1p119f));
}

ALWAYS __m256 floats(const uint8_t *const w[8])
{
    return _mm256_castsi256_ps(_mm256_set_epi32((int)le32(w[7]), (int)le32(w[6]), (int)le32(w[5]),
                                                (int)le32(w[4]), (int)le32(w[3]), (int)le32(w[2]),
                                                (int)le32(w[1]), (int)le32(w[0])));
}

/* Of a block, or of its s-th 16 values. */
ALWAYS __m256 scales8(const uint32_t ty, const uint8_t *const w[8], const int s)
{
    const __m256 eighth = _mm256_set1_ps(0.125f);
    switch (ty) {
    case GT_MXFP4: return e8m0_halves(w);
    case GT_NVFP4: return ue4m3_halves(w, s);
    case GT_Q8_K: return floats(w);
    case GT_TQ1_0: return halves(w, 52);
    case GT_IQ1_M: return _mm256_mul_ps(iq1_m_halves(w), eighth);
    case GT_Q2_K: return halves(w, 80);
    case GT_Q3_K: return halves(w, 108);
    case GT_TQ2_0: return halves(w, 64);
    case GT_IQ3_XXS: return _mm256_mul_ps(halves(w, 0), _mm256_set1_ps(0.25f));
    case GT_IQ2_XXS:
    case GT_IQ2_XS:
    case GT_IQ2_S:
    case GT_IQ1_S: return _mm256_mul_ps(halves(w, 0), eighth);
    default: return halves(w, 0);
    }
}

ALWAYS __m256 mins8(const uint32_t ty, const uint8_t *const w[8])
{
    return halves(w, ty == GT_Q2_K ? 82 : 2);
}

#endif

#endif
