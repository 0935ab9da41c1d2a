/* Routes: what the gateway must know of the engines. ROUTES is sent whole at each change; INTERRUPTED when an engine's
 * link ends with the engine; HOLD while an engine that was ready before comes back. */
#ifndef ROUTES_H
#define ROUTES_H

#include "sup.h"

/* Something changed: sent at the end of this turn of the loop, once. */
void routes_changed(struct sup *s);
/* Sends what is due now (the gateway has just been welcomed). */
void routes_resend(struct sup *s);
/* An engine that had a data link is gone. */
void routes_interrupted(struct sup *s, const struct child *engine, uint32_t link);
/* epoch and list into a frame. */
void routes_put(struct sup *s, struct vt_enc *e, unsigned key_epoch, unsigned key_list);
int routes_open(struct sup *s, struct vt_err *err);
void routes_close(struct sup *s);
uint64_t routes_epoch(const struct sup *s);
/* Expected milliseconds until the child serves: measured start times, progress of the load, remaining backoff. */
uint32_t routes_retry_ms(const struct sup *s, const struct child *c);

#endif
