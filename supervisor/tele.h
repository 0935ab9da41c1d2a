/* Tele: what vitriold publishes on `tele`, and passes on to the gateway: events, the children's telemetry, its own. */
#ifndef TELE_H
#define TELE_H

#include "events.h"
#include "sup.h"

int tele_open(struct sup *s, struct vt_err *err);
void tele_close(struct sup *s);
void tele_event(struct sup *s, const struct event *ev);
/* T_ENGINE or T_STORE of a child: published, and forwarded to the gateway. */
void tele_relay(struct sup *s, const struct vt_frame *f);
/* Once a second: T_CHILDREN on tele and to the gateway. */
void tele_children(struct sup *s);
/* T_MEM: level, sources, footprints. */
void tele_memory(struct sup *s);
/* T_ROUTES. */
void tele_routes(struct sup *s);
int tele_relisten(struct sup *s, struct vt_err *err);
uint64_t tele_relistens(const struct sup *s);

#endif
