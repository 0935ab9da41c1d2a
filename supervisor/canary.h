/* Canary: proof that `ctl` and `tele` can hear. Every few seconds vitriold is its own client over a fresh raw connection:
 * it speaks the library's framing by hand and waits for a whole reply on ctl, for a published frame on tele. A connect, or
 * even a finished protocol handshake, is no proof: a deaf listener completes it. Non-blocking; one loop. */
#ifndef CANARY_H
#define CANARY_H

#include "sup.h"

enum canary_kind { CANARY_CTL, CANARY_TELE };

struct canary;

/* heard: called with the outcome of each round. */
typedef void (*canary_fn)(struct sup *s, enum canary_kind kind, bool heard);

int canary_open(struct canary **out, struct sup *s, enum canary_kind kind, const char *path, canary_fn heard,
                struct vt_err *err);
void canary_close(struct canary *c);

#endif
