#include "series.h"

static const struct vt_series_row rows[] = {
#define SERIES(id, num, name, kind, help) {num, name, kind, help},
#include "series.def"
#undef SERIES
};

const struct vt_series_row *vt_series_rows(size_t *n)
{
    *n = sizeof rows / sizeof rows[0];
    return rows;
}

const struct vt_series_row *vt_series_row(unsigned num)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].num == num)
            return &rows[i];
    }
    return NULL;
}
