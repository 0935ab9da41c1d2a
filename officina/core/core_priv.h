/* What the files of the core share beyond the model. */
#ifndef OFF_CORE_PRIV_H
#define OFF_CORE_PRIV_H

#include "core/core.h"

struct core {
    int64_t next_request; /* ids of requests */
};

struct core *core_new(void);
void core_free(struct core *c);

/* Empties the conversation: items, turns, queue, tasks, touched, composer, sheet. */
void model_empty(struct model *m);
void call_free(struct call *c);
void turn_clear(struct turn *t);

#endif
