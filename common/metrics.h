/* Metrics: writes the Prometheus text format 0.0.4 into memory. One writer, one thread. */
#ifndef VT_METRICS_H
#define VT_METRICS_H

#include <stddef.h>
#include <stdint.h>

struct vt_metrics {
    char *text; /* owned; NUL-terminated */
    size_t len, cap;
    int failed; /* memory ran out: the text is not to be used */
};

void vt_metrics_init(struct vt_metrics *m);
void vt_metrics_fini(struct vt_metrics *m);
/* HELP and TYPE lines; type: "counter" or "gauge". */
void vt_metrics_family(struct vt_metrics *m, const char *name, const char *type, const char *help);
/* One sample. labels: NULL or NULL-terminated pairs of (name, value); values are escaped. Not-a-number becomes 0. */
void vt_metrics_sample(struct vt_metrics *m, const char *name, const char *const *labels, double value);
/* Counters beyond 2^53 stay exact. */
void vt_metrics_count(struct vt_metrics *m, const char *name, const char *const *labels, uint64_t value);

#endif
