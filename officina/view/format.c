#include "view/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define UNKNOWN_WORD ((struct word){"–"})

struct word fmt_count(int64_t n)
{
    struct word w;
    if (n < 0)
        return UNKNOWN_WORD;
    if (n < 1000)
        snprintf(w.s, sizeof w.s, "%" PRId64, n);
    else if (n < 1000000)
        snprintf(w.s, sizeof w.s, "%" PRId64 ".%" PRId64 "k", n / 1000, n % 1000 / 100);
    else
        snprintf(w.s, sizeof w.s, "%" PRId64 ".%02" PRId64 "M", n / 1000000, n % 1000000 / 10000);
    return w;
}

struct word fmt_short(int64_t n)
{
    struct word w;
    if (n < 0)
        return UNKNOWN_WORD;
    if (n < 10000 && n >= 1000)
        return fmt_count(n);
    if (n >= 1000000)
        return fmt_count(n);
    snprintf(w.s, sizeof w.s, "%" PRId64 "%s", n < 1000 ? n : n / 1000, n < 1000 ? "" : "k");
    return w;
}

struct word fmt_speed(double v)
{
    struct word w;
    if (!(v >= 0))
        return UNKNOWN_WORD;
    snprintf(w.s, sizeof w.s, v < 100 ? "%.1f" : "%.0f", v < 1e7 ? v : 1e7);
    return w;
}

struct word fmt_clock(uint64_t us)
{
    struct word w;
    uint64_t s = us / 1000000;
    if (s < 3600)
        snprintf(w.s, sizeof w.s, "%02u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    else
        snprintf(w.s, sizeof w.s, "%" PRIu64 ":%02u:%02u", s / 3600, (unsigned)(s / 60 % 60),
                 (unsigned)(s % 60));
    return w;
}

struct word fmt_took(uint64_t us)
{
    struct word w;
    if (us >= 60000000)
        return fmt_clock(us);
    snprintf(w.s, sizeof w.s, "%u.%us", (unsigned)(us / 1000000), (unsigned)(us / 100000 % 10));
    return w;
}

struct word fmt_span(uint64_t us)
{
    struct word w;
    uint64_t s = (us + 500000) / 1000000;
    if (s < 100)
        snprintf(w.s, sizeof w.s, "%u s", (unsigned)s);
    else if (s < 5400)
        snprintf(w.s, sizeof w.s, "%u min", (unsigned)((s + 30) / 60));
    else
        snprintf(w.s, sizeof w.s, "%" PRIu64 " h", (s + 1800) / 3600);
    return w;
}

struct word fmt_hour(uint64_t us)
{
    struct word w = {""};
    time_t t = (time_t)(us / 1000000);
    struct tm tm;
    if (localtime_r(&t, &tm))
        strftime(w.s, sizeof w.s, "%H:%M", &tm);
    return w;
}
