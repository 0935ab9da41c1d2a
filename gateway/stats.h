/* Stats: what the gateway counts of its own work, for /metrics and GW_STATS. One thread. */
#ifndef STATS_H
#define STATS_H

#include "metrics.h"

#include <stdint.h>

enum { STATS_BUCKETS = 25 };

struct hist {
    const double *le; /* ascending, n of them */
    unsigned n;
    uint64_t count[STATS_BUCKETS], total;
    double sum;
};

enum stats_end { END_STOP, END_LENGTH, END_TOOL_CALLS, END_CANCELLED, END_ERROR, END_REJECTED, END_COUNT };

enum { STATS_ENDPOINTS = 40, STATS_CODES = 20 };

struct stats {
    struct hist ttft, itl, duration, queue, prefill, decode, prompt, generated;
    uint64_t ended[END_COUNT];
    uint64_t prompt_tokens, cached_tokens, generated_tokens, pings;
    uint64_t responses[STATS_ENDPOINTS][STATS_CODES]; /* by endpoint number and status */
};

void stats_init(struct stats *s);
void hist_add(struct hist *h, double v);
void hist_write(const struct hist *h, struct vt_metrics *m, const char *name, const char *help);
const char *stats_end_name(enum stats_end e);
/* Counts an answer; endpoint < STATS_ENDPOINTS. */
void stats_response(struct stats *s, unsigned endpoint, unsigned status);
/* The status that column i counts, 0 when it counts none. */
unsigned stats_code(unsigned i);

#endif
