/* Between the files of the router. */
#ifndef ROUTER_PRIV_H
#define ROUTER_PRIV_H

#include "router.h"

/* router.c: ends and waits of a job. A job may be freed by whoever is told its end. */
void job_finish(struct job *j, enum job_why why, const struct api_err *e);
void job_fail(struct job *j, const struct api_err *e);
void job_fail_interrupted(struct job *j, const char *why);
void job_wait(struct job *j);
void job_wait_until(struct job *j, uint64_t ms);
void router_pump(struct router *r);
void router_send_cancel(struct router *r, struct vt_link *l, uint64_t handle, uint8_t why);
void job_submit(struct job *j, struct engine *e);

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
