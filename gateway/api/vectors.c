#include "vectors.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { MAX_ABS_SCALE = 32760 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are sent as they lie");

static double length_of(const float *v, size_t n, int p)
{
    double sum = 0, most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)v[i]));
    if (p == 0 || most == 0)
        return most / MAX_ABS_SCALE;
    for (size_t i = 0; i < n; i++) /* by the largest, so that no power overflows */
        sum += pow(fabs((double)v[i]) / most, p);
    return most * pow(sum, 1.0 / p);
}

void vector_normalize(float *v, size_t n, int p)
{
    double len = p < 0 ? 1 : length_of(v, n, p);
    for (size_t i = 0; p >= 0 && len > 0 && i < n; i++)
        v[i] = (float)((double)v[i] / len);
}

void vector_json(struct buf *out, const float *v, size_t n)
{
    char number[32];
    buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        int len = snprintf(number, sizeof number, i > 0 ? ",%.9g" : "%.9g", (double)v[i]);
        buf_add(out, number, (size_t)len);
    }
    buf_puts(out, "]");
}

void vector_base64(struct buf *out, const float *v, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = (const uint8_t *)v;
    const size_t bytes = n * sizeof *v;
    buf_puts(out, "\"");
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t have = bytes - i < 3 ? bytes - i : 3;
        const uint32_t x = (uint32_t)p[i] << 16 | (have > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                           (have > 2 ? (uint32_t)p[i + 2] : 0);
        const char four[4] = {digit[x >> 18], digit[x >> 12 & 63], have > 1 ? digit[x >> 6 & 63] : '=',
                              have > 2 ? digit[x & 63] : '='};
        buf_add(out, four, sizeof four);
    }
    buf_puts(out, "\"");
}
