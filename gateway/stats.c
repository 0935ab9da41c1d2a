#include "stats.h"

#include <stdio.h>
#include <string.h>

static const double ttft[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                              1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
static const double itl[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                             0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
static const double phase[] = {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,
                               15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
static const double tokens[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
static const unsigned codes[STATS_CODES] = {200, 400, 401, 403, 404, 405, 408, 413, 429, 500, 501, 503, 504};

#define HIST(edges) ((struct hist){.le = edges, .n = sizeof edges / sizeof edges[0]})

void stats_init(struct stats *s)
{
    memset(s, 0, sizeof *s);
    s->ttft = HIST(ttft);
    s->itl = HIST(itl);
    s->duration = HIST(phase);
    s->queue = HIST(phase);
    s->prefill = HIST(phase);
    s->decode = HIST(phase);
    s->prompt = HIST(tokens);
    s->generated = HIST(tokens);
}

void hist_add(struct hist *h, double v)
{
    unsigned i = 0;
    while (i < h->n && v > h->le[i])
        i++;
    if (i < h->n)
        h->count[i]++;
    h->total++;
    h->sum += v;
}

void hist_write(const struct hist *h, struct vt_metrics *m, const char *name, const char *help)
{
    char series[128], le[32];
    const char *const labels[] = {"le", le, NULL};
    uint64_t below = 0;
    vt_metrics_family(m, name, "histogram", help);
    snprintf(series, sizeof series, "%s_bucket", name);
    for (unsigned i = 0; i < h->n; i++) {
        below += h->count[i];
        snprintf(le, sizeof le, "%g", h->le[i]);
        vt_metrics_count(m, series, labels, below);
    }
    snprintf(le, sizeof le, "+Inf");
    vt_metrics_count(m, series, labels, h->total);
    snprintf(series, sizeof series, "%s_sum", name);
    vt_metrics_sample(m, series, NULL, h->sum);
    snprintf(series, sizeof series, "%s_count", name);
    vt_metrics_count(m, series, NULL, h->total);
}

const char *stats_end_name(enum stats_end e)
{
    static const char *const names[END_COUNT] = {"stop",      "length", "tool_calls",
                                                 "cancelled", "error",  "rejected"};
    return names[e];
}

unsigned stats_code(unsigned i)
{
    return codes[i];
}

void stats_response(struct stats *s, unsigned endpoint, unsigned status)
{
    for (unsigned i = 0; i < STATS_CODES; i++)
        if (codes[i] == status)
            s->responses[endpoint % STATS_ENDPOINTS][i]++;
}
