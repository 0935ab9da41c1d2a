/* Aside: a thread that does a piece of work while its owner does another; asleep otherwise. */
#ifndef ASIDE_H
#define ASIDE_H

#include "err.h"

struct aside;

int aside_new(struct aside **out, struct vt_err *err);
void aside_free(struct aside *a); /* NULL is fine; nothing may be running */
/* Runs fn(arg) on the thread; what it touches is its own until aside_wait. One piece at a time. */
void aside_start(struct aside *a, void (*fn)(void *arg), void *arg);
void aside_wait(struct aside *a); /* also when nothing was started */

#endif
