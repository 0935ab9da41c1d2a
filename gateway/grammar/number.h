/* Numbers between bounds, in decimal digits. */
#ifndef GRAMMAR_NUMBER_H
#define GRAMMAR_NUMBER_H

#include "builder.h"

enum { MULTIPLE_MAX = 100, PLACES_MAX = 3 };

/* Multiples of n (1..MULTIPLE_MAX) in lo..hi; INT64_MIN and INT64_MAX are no bounds. lo <= hi. */
void number_integers(struct grammar *g, uint32_t from, uint32_t to, int64_t lo, int64_t hi, uint32_t n);

struct number_bound {
    bool set, open; /* open: the bound itself is not in */
    double v;
};
/* Decimal fractions (no exponents) between bounds. where: for messages. */
void number_decimals(struct grammar *g, uint32_t from, uint32_t to, struct number_bound lo,
                     struct number_bound hi, const char *where);

/* Multiples of m / 10^places (places 1..PLACES_MAX, m divides 10^places): lo..hi count such steps; INT64_MIN and INT64_MAX are no
 * bounds. lo <= hi. Written without an exponent, with at most so many places. */
void number_steps(struct grammar *g, uint32_t from, uint32_t to, int64_t lo, int64_t hi, uint32_t m,
                  unsigned places);

#endif
