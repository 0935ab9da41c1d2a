/* Stands in for CUDA's header of the same name (emu.h): the part of it that the kernels use. Results are rounded once, to the nearest
 * even, as the device does. */
#ifndef EMU_CUDA_FP16_H
#define EMU_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
    uint16_t bits;
};
struct __half2 {
    __half x, y;
};

static inline float emu_half(uint16_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 1023, sign = (uint32_t)(h & 0x8000) << 16;
    if (e == 0)
        return sign ? -(float)m / (1 << 24) : (float)m / (1 << 24);
    return __uint_as_float(sign | (e == 31 ? 255 : e + 112) << 23 | m << 13);
}

static inline __half emu_round(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    int e = (int)(bits >> 52 & 2047) - 1023;
    if (v != v)
        return {0x7fff};
    if (e > 15)
        return {(uint16_t)(sign | 0x7c00)};
    int drop = e >= -14 ? 42 : 28 - e; /* bits of the double that a half has no room for */
    if (drop > 54)
        return {sign};
    uint64_t m = (bits & ((1ull << 52) - 1)) | 1ull << 52, rest = m & ((1ull << drop) - 1),
             middle = 1ull << (drop - 1);
    m >>= drop;
    m += rest > middle || (rest == middle && m % 2);
    return {(uint16_t)(sign |
                       (m + (e >= -14 ? (uint64_t)(e + 14) << 10 : 0)))}; /* a carry goes into the exponent */
}

static inline float __half2float(__half h)
{
    return emu_half(h.bits);
}
static inline __half __float2half_rn(float v)
{
    return emu_round(v);
}
static inline __half __ushort_as_half(unsigned short v)
{
    return {v};
}
static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}
static inline __half2 __floats2half2_rn(float a, float b)
{
    return {emu_round(a), emu_round(b)};
}
static inline __half2 __float2half2_rn(float v)
{
    return __floats2half2_rn(v, v);
}
static inline __half2 __low2half2(__half2 v)
{
    return {v.x, v.x};
}
static inline __half2 __high2half2(__half2 v)
{
    return {v.y, v.y};
}
static inline __half2 __lows2half2(__half2 a, __half2 b)
{
    return {a.x, b.x};
}
static inline float2 __half22float2(__half2 v)
{
    return {__half2float(v.x), __half2float(v.y)};
}
static inline __half2 __hmul2(__half2 a, __half2 b)
{
    return {emu_round((double)emu_half(a.x.bits) * emu_half(b.x.bits)),
            emu_round((double)emu_half(a.y.bits) * emu_half(b.y.bits))};
}
static inline __half2 __hsub2(__half2 a, __half2 b)
{
    return {emu_round((double)emu_half(a.x.bits) - emu_half(b.x.bits)),
            emu_round((double)emu_half(a.y.bits) - emu_half(b.y.bits))};
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return {emu_round((double)emu_half(a.x.bits) * emu_half(b.x.bits) + emu_half(c.x.bits)),
            emu_round((double)emu_half(a.y.bits) * emu_half(b.y.bits) + emu_half(c.y.bits))};
}

#endif
