/* Lifeline: the socket between vitriold and one generation of a child, and the conversation on it. */
#ifndef LIFELINE_H
#define LIFELINE_H

#include "sup.h"

/* Listens for exactly that process. */
int lifeline_listen(struct child *c, struct vt_err *err);
/* Takes what is still in the queue (last words of a process that ended). */
void lifeline_drain(struct child *c);
void lifeline_close(struct child *c);

#endif
