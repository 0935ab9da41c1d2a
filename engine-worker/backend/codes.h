/* Blocks of every quantized weight type as integers: the one place that knows the layouts of the file format. Dequantization, the
 * plain C matmul and the vector kernels of types without a decoder of their own all read this form; decoders are tested against it.
 *
 * Codes, scales and minima are exact, and a scale times a code has at most 24 significant bits together with d: a value is rounded
 * at most once before a minimum is added, so it does not depend on the order in which the factors are multiplied. */
#ifndef CODES_H
#define CODES_H

#include <stdint.h>

/* How the values of a block follow from its codes, and how its matmul ends (x: activation codes, dx: their scale):
 *
 *   form        value i                                      block of a row times a token
 *   S32         d[i / 16] * c                                 (d * dx) * Σ c x            for every 32 values
 *   M32         d[i / 16] * c + m                             dx * (d * Σ c x + m * Σ x)  for every 32 values
 *   H32         d[i / 16] * c, halves of 32 may differ        dx * (d * Σ c x + d' * Σ' c x)
 *   S256        d[0] * (scale[i / 16] * c)                    (d * dx) * Σ scale Σ c x
 *   M256        d[0] * (scale[i / 16] * c) - m * min[i / 16]  dx * (d * Σ scale Σ c x - m * Σ min Σ x) */
enum be_form { BE_FLOAT, BE_S32, BE_M32, BE_H32, BE_S256, BE_M256 };

struct be_codes {
    int8_t c[256];
    int16_t scale[16], min[16]; /* of every 16 values; S256 and M256 alone (min: M256) */
    float d[16], m;
};

/* One block. What the form does not name is not written. */
typedef void be_unpack_fn(const uint8_t *block, struct be_codes *o);

/* NULL when the type is not a quantized one that is known. */
be_unpack_fn *be_unpack(uint32_t type);

/* The 16 values of IQ4_NL and IQ4_XS, and twice those of E2M1 (MXFP4, NVFP4). */
extern const int8_t be_iq4_codes[16], be_fp4_codes[16];

/* Half the value of a scale, since the E2M1 codes are doubled. */
float be_e8m0_half(uint8_t e);
float be_ue4m3_half(uint8_t e);

#endif
