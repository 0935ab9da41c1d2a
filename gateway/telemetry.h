/* Telemetry: the latest figures of every child, from the frames that vitriold forwards. Counters go on over restarts of a
 * child: what a generation had counted at its end is added to what the next one says. One thread. */
#ifndef TELEMETRY_H
#define TELEMETRY_H

#include "frame.h"
#include "metrics.h"

#include <stdint.h>

struct telemetry;

struct telemetry *telemetry_new(void); /* NULL when memory is out */
void telemetry_free(struct telemetry *t);
/* T_ENGINE, T_STORE, T_CHILDREN; others are ignored. now: monotonic us. */
void telemetry_frame(struct telemetry *t, const struct vt_frame *f, uint64_t now);
/* Sum of a counter over children; of a gauge likewise (missing: 0). */
uint64_t telemetry_counter(const struct telemetry *t, unsigned num);
double telemetry_gauge(const struct telemetry *t, unsigned num);
/* enum vt_child_state as it was told last; -1: no such child was listed. */
int telemetry_child_state(const struct telemetry *t, const char *name);
/* Means over the last minute of work: tokens a second. */
double telemetry_prompt_rate(const struct telemetry *t);
double telemetry_predicted_rate(const struct telemetry *t);
/* Writes every known series except those of `llamacpp:` (compat) or only those. */
void telemetry_write(const struct telemetry *t, struct vt_metrics *m, bool compat);

#endif
