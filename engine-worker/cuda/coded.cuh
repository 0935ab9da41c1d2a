/* Coded weights: the types that have no kernels of their own. One kernel of each kind takes all of them: it opens pieces as int8 codes
 * with a scale and a minimum for each 16 (blocks.cuh), whatever the type, and switches by the type where it does. What opens a block
 * gives codes and 128: so tensor cores take them.
 *
 * Every plane has plane_of(type, k) bytes for 256 values, those of a row one behind the other; pieces are the row's 32 values in their
 * order. Blocks are the file's but for the order of their parts, which lie where aligned loads can read them (weights.cu):
 *
 *   type      plane 0                                  1                    2
 *   Q4_1      nibbles [16] a piece                                          d, m f16
 *   Q5_0      nibbles                                  fifth bits [4]       d f16
 *   Q5_1      nibbles                                  fifth bits [4]       d, m f16
 *   IQ4_NL    nibbles                                                       d f16
 *   MXFP4     nibbles                                                       e8m0 [1]
 *   NVFP4     nibbles of 16 values [8]                                      ue4m3 [2]
 *   Q8_1      codes [32]                                                    d f16
 *   Q1_0      bits [4]                                                      d f16 for four pieces
 *   Q2_0      two bits [8]                                                  d f16 for two
 *   Q2_K      scales, minima [16], two bits [64]       d, m f16
 *   Q3_K      the file's block and two bytes
 *   IQ4_XS    nibbles [128]                            d f16, scales [6]
 *   IQ3_S     indices [64], signs [32], ninth bits [8], scales [4], d f16, two bytes
 *   IQ3_XXS   indices [64], signs and scales [32]      d f16, two bytes
 *   IQ2_XXS   indices, signs and scales [64]           d f16, two bytes
 *   IQ2_XS    indices and signs [64]                   scales [8], d f16, two bytes
 *   IQ2_S     indices [32], signs [32], high bits [8], scales [8]; d f16, two bytes
 *   IQ1_S     indices [32], high bits and scales [16]  d f16, two bytes
 *   IQ1_M     indices [32], high bits [16]             scales and d [8]
 *   TQ1_0     five digits a byte [48]                  four [4], d f16, two bytes
 *   TQ2_0     two bits [64]                            d f16, two bytes
 *   Q8_K      codes [256]                              d f32
 *
 * Where codes are indices of points, plane 3 is the list of points, once for the weight (backend/grids.h). */
#ifndef CODED_CUH
#define CODED_CUH

#include "blocks.cuh"

/* The planes of a block of 256 values, in whatever memory. */
struct block256 {
    const uint8_t *p[4];
};

static __device__ __forceinline__ uint32_t u16_at(const uint8_t *p)
{
    return *(const uint16_t *)p;
}
static __device__ __forceinline__ uint32_t u32_at(const uint8_t *p)
{
    return *(const uint32_t *)p;
}

/* The lowest four bits, one to a byte. */
static __device__ __forceinline__ uint32_t bits_apart(uint32_t b)
{
    return (b & 15) * 0x00204081u & 0x01010101u;
}
/* Four codes, none of them above 127, less k; and 128, like all that follows. */
static __device__ __forceinline__ int less(uint32_t v, uint32_t k)
{
    return (int)(v + (128 - k) * 0x01010101u);
}
/* Four magnitudes, none of them 0; bit i of signs: negative. */
static __device__ __forceinline__ int with_signs(uint32_t v, uint32_t signs)
{
    uint32_t one = bits_apart(signs);
    return (int)((v + 0x80808080u - one) ^ one * 255); /* 128 - v is ~(v + 127) */
}
/* Seven signs are stored; the eighth makes the number of negatives even. */
static __device__ __forceinline__ uint32_t even_signs(uint32_t s)
{
    s &= 127;
    return s | (uint32_t)(__popc(s) & 1) << 7;
}

static __device__ __forceinline__ void one_scale(struct piece &o, float d)
{
    o.d[0] = o.d[1] = d;
}

/* Low nibbles are the first 16 values. */
static __device__ __forceinline__ void open_nibbles(const uint8_t *p, uint32_t *c)
{
    const uint4 v = *(const uint4 *)p;
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[i] = w[i] & 0x0f0f0f0fu;
        c[4 + i] = w[i] >> 4 & 0x0f0f0f0fu;
    }
}

/* A table of 16 bytes. */
struct table16 {
    uint32_t v[4];
};
/* What the four lowest nibbles of v stand for. */
static __device__ __forceinline__ uint32_t look_up(const struct table16 &t, uint32_t v)
{
    uint32_t at = v & 0x7777u;
    return __byte_perm(__byte_perm(t.v[0], t.v[1], at), __byte_perm(t.v[2], t.v[3], at),
                       0x3210u | (v & 0x8888u) >> 1);
}
/* The low nibbles of a word, and the high ones. */
static __device__ __forceinline__ void look_up_word(const struct table16 &t, uint32_t v, int *low, int *high)
{
    uint32_t a = look_up(t, v), b = look_up(t, v >> 16);
    *low = (int)__byte_perm(a, b, 0x6420);
    *high = (int)__byte_perm(a, b, 0x7531);
}
static __device__ __forceinline__ void open_table(const struct table16 &t, const uint8_t *p, struct piece &o)
{
    const uint4 v = *(const uint4 *)p;
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        look_up_word(t, w[i], &o.c[i], &o.c[4 + i]);
}
/* -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113; and 128 */
static __device__ __forceinline__ struct table16 iq4_codes()
{
    return {{0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u}};
}
/* 0, 1, 2, 3, 4, 6, 8, 12 and their negatives; and 128 */
static __device__ __forceinline__ struct table16 fp4_codes()
{
    return {{0x83828180u, 0x8c888684u, 0x7d7e7f80u, 0x74787a7cu}};
}

template <uint32_t TYPE>
static __device__ __forceinline__ void open_block(const struct block256 &b, int j, struct piece &o);

#define OPEN(type)                                                                                           \
    template <>                                                                                              \
    __device__ __forceinline__ void open_block<type>(const struct block256 &b, int j, struct piece &o)

/* ---- blocks of 32 and a few odd sizes ---- */

/* d and m of piece j. */
static __device__ __forceinline__ void scale_and_min(const uint8_t *p, struct piece &o)
{
    float2 d = __half22float2(*(const __half2 *)p);
    one_scale(o, d.x);
    o.m[0] = o.m[1] = d.y;
}
static __device__ __forceinline__ void fifth_bits(uint32_t high, uint32_t *c)
{
#pragma unroll
    for (int k = 0; k < 8; k++)
        c[k] |= bits_apart(high >> (4 * k)) << 4;
}

OPEN(GT_Q4_1)
{
    uint32_t c[8];
    open_nibbles(b.p[0] + 16 * j, c);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = less(c[k], 0);
    scale_and_min(b.p[2] + 4 * j, o);
}

OPEN(GT_Q5_0)
{
    uint32_t c[8];
    open_nibbles(b.p[0] + 16 * j, c);
    fifth_bits(u32_at(b.p[1] + 4 * j), c);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = less(c[k], 16);
    one_scale(o, f16_at(b.p[2] + 2 * j));
}

OPEN(GT_Q5_1)
{
    uint32_t c[8];
    open_nibbles(b.p[0] + 16 * j, c);
    fifth_bits(u32_at(b.p[1] + 4 * j), c);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = less(c[k], 0);
    scale_and_min(b.p[2] + 4 * j, o);
}

OPEN(GT_IQ4_NL)
{
    open_table(iq4_codes(), b.p[0] + 16 * j, o);
    one_scale(o, f16_at(b.p[2] + 2 * j));
}

/* Half of 2^(e - 127), down to the subnormals: the codes are doubled. */
OPEN(GT_MXFP4)
{
    uint32_t e = b.p[2][j], bits = e < 2 ? 0x200000u << e : (e - 1) << 23;
    open_table(fp4_codes(), b.p[0] + 16 * j, o);
    one_scale(o, __uint_as_float(e == 255 ? 0x7fc00000u : bits));
}

/* Half of what four bits of exponent and three of mantissa stand for. */
static __device__ __forceinline__ float ue4m3_half(uint32_t e)
{
    uint32_t exp = e >> 3 & 15, man = e & 7;
    if ((e & 127) == 127)
        return 0;
    return exp == 0 ? (float)man * 0x1p-10f : (float)((8 + man) << exp) * 0x1p-11f;
}

OPEN(GT_NVFP4)
{
    const struct table16 t = fp4_codes();
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const uint2 v = *(const uint2 *)(b.p[0] + 16 * j + 8 * g);
        look_up_word(t, v.x, &o.c[4 * g], &o.c[4 * g + 2]);
        look_up_word(t, v.y, &o.c[4 * g + 1], &o.c[4 * g + 3]);
        o.d[g] = ue4m3_half(b.p[2][2 * j + g]);
    }
}

static __device__ __forceinline__ void open_bytes(const uint8_t *p, struct piece &o)
{
    const uint4 v = *(const uint4 *)p, w = *(const uint4 *)(p + 16);
    const uint32_t c[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = (int)(c[k] ^ 0x80808080u);
}

OPEN(GT_Q8_1)
{
    open_bytes(b.p[0] + 32 * j, o);
    one_scale(o, f16_at(b.p[2] + 2 * j));
}

OPEN(GT_Q1_0)
{
    uint32_t v = u32_at(b.p[0] + 4 * j);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = less(bits_apart(v >> (4 * k)) << 1, 1);
    one_scale(o, f16_at(b.p[2] + j / 4 * 2));
}

OPEN(GT_Q2_0)
{
    const uint2 v = *(const uint2 *)(b.p[0] + 8 * j);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t q = (k < 4 ? v.x : v.y) >> (8 * (k % 4)) & 255;
        o.c[k] = less((q | q << 6 | q << 12 | q << 18) & 0x03030303u, 1);
    }
    one_scale(o, f16_at(b.p[2] + j / 2 * 2));
}

/* ---- blocks of 256 ---- */

/* Two bits of each byte: halves of 128 values, whose 32 bytes hold four values each. */
static __device__ __forceinline__ void open_pairs(const uint8_t *p, int j, uint32_t *c)
{
    int shift = 2 * (j % 4);
    const uint4 v = *(const uint4 *)(p + j / 4 * 32), w = *(const uint4 *)(p + j / 4 * 32 + 16);
    const uint32_t q[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
    for (int k = 0; k < 8; k++)
        c[k] = q[k] >> shift & 0x03030303u;
}

OPEN(GT_Q2_K)
{
    uint32_t s = u16_at(b.p[0] + 2 * j);
    float2 d = __half22float2(*(const __half2 *)b.p[1]);
    uint32_t c[8];
    open_pairs(b.p[0] + 16, j, c);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = less(c[k], 0);
    o.d[0] = d.x * (float)(s & 15);
    o.d[1] = d.x * (float)(s >> 8 & 15);
    o.m[0] = -d.y * (float)(s >> 4 & 15);
    o.m[1] = -d.y * (float)(s >> 12);
}

/* Scale k: four bits in a nibble, two more in a byte that four share. */
static __device__ __forceinline__ float q3_scale(const uint8_t *s, int k)
{
    int low = s[k % 8] >> (k < 8 ? 0 : 4) & 15, high = s[8 + k % 4] >> (k / 4 * 2) & 3;
    return (float)((low | high << 4) - 32);
}

OPEN(GT_Q3_K)
{
    uint32_t c[8];
    const uint4 v = *(const uint4 *)b.p[0], w = *(const uint4 *)(b.p[0] + 16);
    const uint32_t high[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
    open_pairs(b.p[0] + 32, j, c);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = less(c[k] | (high[k] >> j & 0x01010101u) << 2, 4);
    float d = f16_at(b.p[0] + 108);
    o.d[0] = d * q3_scale(b.p[0] + 96, 2 * j);
    o.d[1] = d * q3_scale(b.p[0] + 96, 2 * j + 1);
}

OPEN(GT_IQ4_XS)
{
    const uint2 head = *(const uint2 *)b.p[1]; /* d, high bits of the scales; low ones */
    uint32_t low = head.y >> (4 * j) & 15, high = head.x >> (16 + 2 * j) & 3;
    open_table(iq4_codes(), b.p[0] + 16 * j, o);
    one_scale(o, f16_at(b.p[1]) * (float)((int)(low | high << 4) - 32));
}

OPEN(GT_Q8_K)
{
    open_bytes(b.p[0] + 32 * j, o);
    one_scale(o, __uint_as_float(u32_at(b.p[1])));
}

/* Digit n of the five of base 3 in a byte, for four bytes, less one: the byte is a fraction of 256, rounded up. */
static __device__ __forceinline__ int trits(uint32_t v, int n)
{
    const uint32_t mask = 0x00ff00ffu, pow3 = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
    uint32_t even = ((v & mask) * pow3 & mask) * 3 >> 8 & mask,
             odd = ((v >> 8 & mask) * pow3 & mask) * 3 >> 8 & mask;
    return less(even | odd << 8, 1);
}

OPEN(GT_TQ1_0)
{
#pragma unroll
    for (int g = 0; g < 2; g++) {
        int i = 2 * j + g;
        if (i == 15) { /* the last 16 values: the digits of four bytes */
            for (int k = 0; k < 4; k++)
                o.c[4 + k] = trits(u32_at(b.p[1]), k);
            continue;
        }
        const uint4 v = *(const uint4 *)(b.p[0] + (i < 10 ? i % 2 * 16 : 32));
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
        int n = i < 10 ? i / 2 : i - 10;
#pragma unroll
        for (int k = 0; k < 4; k++)
            o.c[4 * g + k] = trits(w[k], n);
    }
    one_scale(o, f16_at(b.p[1] + 4));
}

OPEN(GT_TQ2_0)
{
    uint32_t c[8];
    open_pairs(b.p[0], j, c);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] = less(c[k], 1);
    one_scale(o, f16_at(b.p[1]));
}

/* ---- points ---- */

/* Point i of eight magnitudes as values l of four of a piece. */
static __device__ __forceinline__ void eight_with_signs(struct piece &o, int l, const uint8_t *points,
                                                        uint32_t i, uint32_t signs)
{
    const uint2 v = __ldg((const uint2 *)points + i);
    o.c[2 * l] = with_signs(v.x, signs);
    o.c[2 * l + 1] = with_signs(v.y, signs >> 4);
}

/* d times odd numbers: the scales of both groups are nibbles of a byte. */
static __device__ __forceinline__ void odd_scales(struct piece &o, float d, uint32_t s)
{
    o.d[0] = d * (float)(2 * (s & 15) + 1);
    o.d[1] = d * (float)(2 * (s >> 4 & 15) + 1);
}

OPEN(GT_IQ2_XXS)
{
    const uint2 v = *(const uint2 *)(b.p[0] + 8 * j);
#pragma unroll
    for (int l = 0; l < 4; l++)
        eight_with_signs(o, l, b.p[3], v.x >> (8 * l) & 255, even_signs(v.y >> (7 * l)));
    one_scale(o, f16_at(b.p[1]) * 0.125f * (float)(2 * (v.y >> 28) + 1));
}

OPEN(GT_IQ2_XS)
{
    const uint2 v = *(const uint2 *)(b.p[0] + 8 * j);
#pragma unroll
    for (int l = 0; l < 4; l++) {
        uint32_t w = (l < 2 ? v.x : v.y) >> (16 * (l % 2)) & 0xffff;
        eight_with_signs(o, l, b.p[3], w & 511, even_signs(w >> 9));
    }
    odd_scales(o, f16_at(b.p[1] + 8) * 0.125f, b.p[1][j]);
}

OPEN(GT_IQ2_S)
{
    uint32_t low = u32_at(b.p[0] + 4 * j), signs = u32_at(b.p[0] + 32 + 4 * j), high = b.p[0][64 + j];
#pragma unroll
    for (int l = 0; l < 4; l++)
        eight_with_signs(o, l, b.p[3], (low >> (8 * l) & 255) | (high >> (2 * l) & 3) << 8, signs >> (8 * l));
    odd_scales(o, f16_at(b.p[1]) * 0.125f, b.p[0][72 + j]);
}

OPEN(GT_IQ3_XXS)
{
    const uint2 v = *(const uint2 *)(b.p[0] + 8 * j);
    uint32_t a = u32_at(b.p[0] + 64 + 4 * j);
#pragma unroll
    for (int l = 0; l < 8; l++) {
        uint32_t i = (l < 4 ? v.x : v.y) >> (8 * (l % 4)) & 255;
        o.c[l] = with_signs(__ldg((const uint32_t *)b.p[3] + i), even_signs(a >> (l / 2 * 7)) >> (l % 2 * 4));
    }
    one_scale(o, f16_at(b.p[1]) * 0.25f * (float)(2 * (a >> 28) + 1));
}

OPEN(GT_IQ3_S)
{
    const uint2 v = *(const uint2 *)(b.p[0] + 8 * j);
    uint32_t signs = u32_at(b.p[0] + 64 + 4 * j), high = b.p[0][96 + j],
             scale = b.p[0][104 + j / 2] >> (j % 2 * 4) & 15;
#pragma unroll
    for (int l = 0; l < 8; l++) {
        uint32_t i = ((l < 4 ? v.x : v.y) >> (8 * (l % 4)) & 255) | (high >> l & 1) << 8;
        o.c[l] = with_signs(__ldg((const uint32_t *)b.p[3] + i), signs >> (4 * l));
    }
    one_scale(o, f16_at(b.p[0] + 108) * (float)(2 * scale + 1));
}

/* Points are eight times their values and 10, and an eighth is added to or taken from each value. */
static __device__ __forceinline__ void eight_shifted(struct piece &o, int l, const uint8_t *points,
                                                     uint32_t i, bool down)
{
    const uint2 v = __ldg((const uint2 *)points + i);
    o.c[2 * l] = less(v.x, down ? 11 : 9);
    o.c[2 * l + 1] = less(v.y, down ? 11 : 9);
}

OPEN(GT_IQ1_S)
{
    uint32_t low = u32_at(b.p[0] + 4 * j), high = u16_at(b.p[0] + 32 + 2 * j);
#pragma unroll
    for (int l = 0; l < 4; l++)
        eight_shifted(o, l, b.p[3], (low >> (8 * l) & 255) | (high >> (3 * l) & 7) << 8, high >> 15);
    one_scale(o, f16_at(b.p[1]) * 0.125f * (float)(2 * (high >> 12 & 7) + 1));
}

/* The four highest bits of the scales' words are d. */
OPEN(GT_IQ1_M)
{
    const uint2 s = *(const uint2 *)b.p[1];
    uint32_t low = u32_at(b.p[0] + 4 * j), high = u16_at(b.p[0] + 32 + 2 * j),
             scales = u16_at(b.p[1] + j / 2 * 2) >> (j % 2 * 6);
    uint32_t bits = (s.x >> 12 & 15) | (s.x >> 28) << 4 | (s.y >> 12 & 15) << 8 | (s.y >> 28) << 12;
#pragma unroll
    for (int l = 0; l < 4; l++) {
        uint32_t n = high >> (4 * l) & 15;
        eight_shifted(o, l, b.p[3], (low >> (8 * l) & 255) | (n & 7) << 8, n >> 3);
    }
    float d = __half2float(__ushort_as_half((unsigned short)bits)) * 0.125f;
    o.d[0] = d * (float)(2 * (scales & 7) + 1);
    o.d[1] = d * (float)(2 * (scales >> 3 & 7) + 1);
}
#undef OPEN

/* Piece j of a block of a type, its codes and 128. at.of<TYPE>(): the block. */
template <typename At>
static __device__ __forceinline__ void open_coded(uint32_t type, const At &at, int j, struct piece &o)
{
    o.m[0] = o.m[1] = 0;
    switch (type) {
#define OPEN_CASE(t)                                                                                         \
    case t: open_block<t>(at.template of<t>(), j, o); break;
        CU_CODED_TYPES(OPEN_CASE)
#undef OPEN_CASE
    }
}

/* The block of piece p of a row, as the planes have it. */
struct in_planes {
    const struct cu_weight &w;
    int64_t first; /* piece of the weight that begins the block */

    template <uint32_t TYPE> __device__ __forceinline__ struct block256 of() const
    {
        struct block256 b;
#pragma unroll
        for (int k = 0; k < 3; k++)
            b.p[k] = w.plane[k] + first * plane_of(TYPE, k) / 8;
        b.p[3] = w.plane[3];
        return b;
    }
};

template <>
__device__ __forceinline__ void load_piece<CU_CODED>(const struct cu_weight &w, int64_t row, int p,
                                                     struct piece &o)
{
    struct in_planes at = {w, row * (w.n_in / 32) + p / 8 * 8};
    open_coded(w.type, at, p % 8, o);
#pragma unroll
    for (int k = 0; k < 8; k++)
        o.c[k] ^= (int)0x80808080u;
    halves_of_32(o.at, p);
}

#endif
