#include "internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct job {
    uint32_t *ids;
    float *values;
    const float *x;
    int64_t n;
};

#define STEP 64 /* values that are looked at together */

/* Whether one of them is above low, or not finite. */
static bool any_of(const float *x, float low)
{
    int any = 0;
    for (int i = 0; i < STEP; i++)
        any |= !(x[i] <= low) | !(x[i] >= -FLT_MAX);
    return any;
}

/* Behind those that are as large: ids come in their order. */
static void insert(float *values, uint32_t *ids, int have, float v, uint32_t id)
{
    int at = have;
    while (at > 0 && values[at - 1] < v)
        at--;
    memmove(values + at + 1, values + at, (size_t)(have - at) * sizeof *values);
    memmove(ids + at + 1, ids + at, (size_t)(have - at) * sizeof *ids);
    values[at] = v;
    ids[at] = id;
}

static void one_row(void *arg, int64_t t)
{
    const struct job *j = arg;
    const float *x = j->x + t * j->n;
    float *values = j->values + t * BE_BEST;
    uint32_t *ids = j->ids + t * BE_BEST;
    int have = 0;
    for (int64_t from = 0; from < j->n; from += STEP) {
        int64_t end = from + STEP < j->n ? from + STEP : j->n;
        if (have == BE_BEST && end - from == STEP && !any_of(x + from, values[BE_BEST - 1]))
            continue;
        for (int64_t i = from; i < end; i++) {
            if (!isfinite(x[i])) {
                values[0] = x[i];
                ids[0] = (uint32_t)i;
                return;
            }
            if (have < BE_BEST)
                insert(values, ids, have++, x[i], (uint32_t)i);
            else if (x[i] > values[BE_BEST - 1])
                insert(values, ids, BE_BEST - 1, x[i], (uint32_t)i);
        }
    }
}

void cpu_best(struct be *b, uint32_t *ids, float *values, void *room, const float *x, int64_t T, int64_t n)
{
    struct job j = {.ids = ids, .values = values, .x = x, .n = n};
    (void)room;
    be_pool_run(b->pool, one_row, &j, T);
}

size_t be_best_room(int64_t n)
{
    size_t floats = 0;
    while (n > BE_BEST_SEGMENT) {
        n = (n + BE_BEST_SEGMENT - 1) / BE_BEST_SEGMENT * BE_BEST;
        floats += 2 * (size_t)n;
    }
    return floats;
}
