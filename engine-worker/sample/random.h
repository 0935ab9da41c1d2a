/* Random numbers without state: a pure function of (seed, position), so that a resumed or replayed request draws what the
 * undisturbed one would have drawn. Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", SC'11. */
#ifndef SAMPLE_RANDOM_H
#define SAMPLE_RANDOM_H

#include <stdint.h>

/* The four words of the block at counter {c0, c1, c2, c3} under key {k0, k1}. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* What a number is for: each use has its own stream. */
enum random_use { RANDOM_DRAW = 0, RANDOM_XTC = 1 };

/* Uniform in [0, 1) with 53 bits: number `position` of the stream of `seed` and `use`. */
double random_at(uint64_t seed, uint64_t position, enum random_use use);

#endif
