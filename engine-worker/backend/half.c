#include "backend.h"

#include <string.h>

float be_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff, bits;
    float f;
    if (exp == 0) {
        f = (float)man * 0x1p-24f; /* exact: zero and subnormals */
        return sign ? -f : f;
    }
    bits = sign | (exp == 31 ? 0xffu << 23 : (exp + 112) << 23) | man << 13;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t be_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t mag = bits & 0x7fffffff;
    if (mag > 0x7f800000) /* a NaN stays one, and quiet, as the hardware does it */
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000) /* rounds to 65536 or more */
        return sign | 0x7c00;
    if (mag < 0x38800000) { /* subnormal: add 0.5, so that the sum's last bits are the rounded code */
        float a;
        memcpy(&a, &mag, sizeof a);
        a += 0.5f;
        memcpy(&mag, &a, sizeof mag);
        return (uint16_t)(sign | (mag - 0x3f000000));
    }
    mag += 0xfff + (mag >> 13 & 1); /* to nearest, ties to even */
    return (uint16_t)(sign | (mag - 0x38000000) >> 13);
}
