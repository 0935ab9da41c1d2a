/* Gauges: a value in cells, and the history of a speed. n cells show 2n steps, rounded down, so a gauge is full only at 100 %.
 * Each cell has the colour of its place. Pure. */
#ifndef OFF_GAUGE_H
#define OFF_GAUGE_H

#include "view/glyph.h"
#include "view/rows.h"

#include <stdint.h>

enum gauge_worry { GAUGE_FULL_IS_WORRY, GAUGE_FULL_IS_GOOD, GAUGE_PLAIN };

/* value of `of` in n cells; a negative value or of <= 0 is unknown. notch: another value of the same scale that is marked,
 * negative: none. */
void gauge_put(struct row *r, int n, int64_t value, int64_t of, int64_t notch, enum gauge_worry worry,
               const struct glyph_set *g);
/* The newest samples in n cells, scaled by `most`; negative samples are none. */
void gauge_history(struct row *r, int n, const float *samples, int n_samples, double most,
                   const struct glyph_set *g);

#endif
