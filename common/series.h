/* Series: numbers and names of all metrics, from series.def. Frames carry the numbers, only the gateway
 * prints names. */
#ifndef VT_SERIES_H
#define VT_SERIES_H

#include <stddef.h>

enum vt_series {
#define SERIES(id, num, name, kind, help) VT_SERIES_##id = num,
#include "series.def"
#undef SERIES
};

struct vt_series_row {
    unsigned num;
    const char *name, *kind, *help;
};

/* All rows, ordered by number. */
const struct vt_series_row *vt_series_rows(size_t *n);
/* NULL when the number is unknown. */
const struct vt_series_row *vt_series_row(unsigned num);

#endif
