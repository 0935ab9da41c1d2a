#include "pace.h"

#include <assert.h>

#define MOST (1u << 16) /* far beyond what anybody asks for */

uint32_t pace_length(struct pace *p, uint32_t most)
{
    if (p->rest > 0) {
        p->rest--;
        return 0;
    }
    uint32_t n = p->length ? p->length : PACE_FIRST;
    return n < most ? n : most;
}

uint32_t pace_agreement(const struct pace *p, uint32_t least)
{
    uint32_t n = least;
    for (uint32_t rest = p->again; rest > 2; rest /= 2)
        n++;
    return n;
}

void pace_told(struct pace *p, uint32_t n, uint32_t right)
{
    assert(n > 0 && right <= n);
    if (right == n) {
        uint32_t had = p->length > n ? p->length : n;
        p->length = had < MOST ? 2 * had : MOST;
        p->again = 0;
    } else if (right > 0) {
        p->length = right;
        p->again = 0;
    } else {
        p->length = 1;
        p->again = p->again == 0 ? 1 : p->again < PACE_REST ? 2 * p->again : PACE_REST;
        p->rest = p->again;
    }
}
