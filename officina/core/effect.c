#include "core/effect.h"

#include "util/text.h"

#include <stdlib.h>

struct effect *effect_add(struct effects *fx, enum effect_kind kind, int64_t id, const char *name,
                          const char *text)
{
    fx->v = mem_room(fx->v, fx->n, &fx->cap, sizeof *fx->v);
    struct effect *e = &fx->v[fx->n++];
    *e = (struct effect){.kind = kind, .id = id, .name = mem_dup(name), .text = mem_dup(text)};
    return e;
}

void effects_clear(struct effects *fx)
{
    for (size_t i = 0; i < fx->n; i++) {
        free(fx->v[i].name);
        free(fx->v[i].text);
    }
    free(fx->v);
    *fx = (struct effects){0};
}
