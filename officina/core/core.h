/* The core: model + event → model + effects. Pure: no handle, no clock, no random source; the same events give the same
 * model and the same effects. One thread.
 *
 * The program around it, after each step: stores what is dirty in one transaction, then does the effects, then draws. */
#ifndef OFF_CORE_H
#define OFF_CORE_H

#include "core/effect.h"
#include "core/event.h"

/* Changes m by e and appends to fx what is to be done. Every event is legal in every state; one that has no meaning
 * now (an answer to a call that waits no longer) does nothing. */
void core_step(struct model *m, const struct event *e, struct effects *fx);
/* The time at which the core wants a TICK; 0: at no certain time. */
uint64_t core_deadline(const struct model *m);

#endif
