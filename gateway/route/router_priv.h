/* Between the files of the router. */
#ifndef ROUTER_PRIV_H
#define ROUTER_PRIV_H

#include "router.h"

/* engines.c */
struct engine *router_engine_of(struct router *r, const struct vt_link *l);
struct engine *router_engine_named(struct router *r, const char *name);
bool engine_takes(const struct engine *e);      /* a request sent now would be served */
bool engine_comes_back(const struct engine *e); /* by itself */
void router_match_links(struct router *r);
uint32_t router_retry_ms(const struct router *r); /* until something is ready, as far as known */
void router_parse_route(struct router *r, const msgpack_object_array *row, struct engine *e);

/* asks.c */
void router_asks_frame(struct router *r, const struct vt_link *l, const struct vt_frame *f);
void router_asks_fail(struct router *r, const struct vt_link *l, const struct api_err *e); /* l NULL: all */
void router_asks_tick(struct router *r, uint64_t now);

#endif
