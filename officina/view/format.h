/* Numbers and times as the screen writes them. Each writes into a small buffer that it returns. Pure. */
#ifndef OFF_FORMAT_H
#define OFF_FORMAT_H

#include <stddef.h>
#include <stdint.h>

struct word {
    char s[32];
};

/* 812, 1.2k, 131.1k, 1.84M; a negative number is unknown: –. */
struct word fmt_count(int64_t n);
/* The same without a digit behind the point where it stands for thousands: 12k, 201k. */
struct word fmt_short(int64_t n);
/* 11.3; unknown: –. */
struct word fmt_speed(double v);
/* mm:ss, or h:mm:ss. */
struct word fmt_clock(uint64_t us);
/* 0.0s, 12.3s, 2:04. */
struct word fmt_took(uint64_t us);
/* "4 s", "2 min", "3 h". */
struct word fmt_span(uint64_t us);
/* hh:mm of a wall clock in local time. */
struct word fmt_hour(uint64_t us);

#endif
