#include "core/core.h"

#include "core/core_priv.h"

#include <stdlib.h>

struct core *core_new(void)
{
    return mem_new(sizeof(struct core));
}

void core_free(struct core *c)
{
    free(c);
}

void core_step(struct model *m, const struct event *e, struct effects *fx)
{
    m->now = e->at;
    switch (e->kind) {
    case EV_MODE: m->mode = e->n == MODE_PLAN ? MODE_PLAN : MODE_BUILD; break;
    case EV_QUIT: effect_add(fx, FX_QUIT, 0, NULL, NULL)->n = e->n; break;
    default: break;
    }
}

uint64_t core_deadline(const struct model *m)
{
    return 0;
}
