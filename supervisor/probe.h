/* Probe: runs vitriol-probe and brings its answer. One at a time; what does not end by its deadline is killed, and what does not even
 * die then keeps the next one from being started. Main thread. */
#ifndef SUP_PROBE_H
#define SUP_PROBE_H

#include "sup.h"

#include <jansson.h>

struct probe;

/* answer: borrowed; NULL: why says what went wrong. status: what the probe ended with, -1: it was killed, or cannot be understood. */
typedef void probe_done(struct sup *s, const json_t *answer, int status, const char *why);

int probe_open(struct probe **out, struct sup *s, probe_done *done, struct vt_err *err);
void probe_close(struct probe *p); /* NULL is fine; kills one that runs */
/* argv: after the program's name, NULL-terminated. -1: it cannot be started, and done is not called. */
int probe_start(struct probe *p, const char *const *argv, struct vt_err *err);
pid_t probe_pid(const struct probe *p); /* 0: none runs */

#endif
