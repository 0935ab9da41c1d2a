/* Seal: a 64-bit checksum that a GPU computes at the speed of its memory: a sum, over the words of 8 bytes, of each word mixed
 * with its place and with a salt. The order of the sum does not matter. Against accidents, not against an enemy; the mixing is
 * that of MurmurHash3's end (Appleby, public domain). */
#ifndef BE_SEAL_H
#define BE_SEAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SEAL_FN static __host__ __device__ __forceinline__
#else
#define SEAL_FN static inline
#endif

SEAL_FN uint64_t seal_word(uint64_t word, uint64_t place, uint64_t salt)
{
    uint64_t x = word ^ ((place + 1) * 0x9e3779b97f4a7c15u + salt);
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 32;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 29);
}

/* bytes: a multiple of 8. */
static inline uint64_t seal_of(const void *p, size_t bytes, uint64_t salt)
{
    const uint8_t *at = (const uint8_t *)p;
    uint64_t sum = 0, word;
    for (size_t i = 0; i < bytes / sizeof word; i++) {
        memcpy(&word, at + i * sizeof word, sizeof word);
        sum += seal_word(word, i, salt);
    }
    return sum;
}

#endif
