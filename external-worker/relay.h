/* Relay: requests of the gateway's data link to the server and its answers back, byte for byte; and the one-token decode
 * that proves the server. A step is progress of the server: bytes of an answer, or counters of tokens that grow. */
#ifndef RELAY_H
#define RELAY_H

#include "http.h"

#include "link.h"

#include <stdbool.h>

struct relay;

/* model: "" takes the first that the server names. metrics: path, "" : none. timeout_s: of a decode. */
int relay_new(struct relay **out, struct http *h, const char *model, const char *metrics, unsigned timeout_s,
              struct vt_err *err);
void relay_free(struct relay *r);

void relay_link_down(struct relay *r, struct vt_link *l); /* its requests are cancelled at the server */
void relay_frame(struct relay *r, struct vt_link *l, const struct vt_frame *f);
void relay_close(struct relay *r); /* nothing new */
void relay_fail_all(struct relay *r, const char *why);
/* What had no room is tried again. */
void relay_tick(struct relay *r);

/* Asks for one token; done is called once, later. -1: one is under way already. */
int relay_decode(struct relay *r, void (*done)(void *arg, const struct vt_err *err), void *arg);
/* Reads the counters, when there are any. */
void relay_gauge(struct relay *r);
uint64_t relay_steps(const struct relay *r);
unsigned relay_in_flight(const struct relay *r);
const char *relay_model(const struct relay *r);

#endif
