/* What the parts of child share: child.c (state, conversation, time), child_start.c, child_end.c. */
#ifndef CHILD_PRIV_H
#define CHILD_PRIV_H

#include "child.h"

#define CHILD_LEFT_POLL_US VT_SEC(1) /* what a generation left is looked for so often once it was given up */

/* The one way to another state. */
void child_change(struct child *c, enum child_event e);
void child_arm(struct child *c, uint64_t at); /* 0: off */
/* Wakes fn when fd can be read; the source is made once and follows the generations. */
int child_watch(struct child *c, sd_event_source **src, int fd, sd_event_io_handler_t fn);
void child_cause(struct child *c, enum exit_class why, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A generation that failed, or a start that did not happen: when is the next one? */
void child_schedule(struct child *c, enum child_event wait, enum child_event final);

/* child_start.c */
int child_find_program(struct child *c, struct vt_err *err);
void child_start(struct child *c);
/* Identity of the model's bytes, so that a change of the file is noticed. */
uint64_t child_payload_identity(const struct sup *s);

/* child_end.c */
/* Out-of-memory kills that may have been of it, so far. */
uint64_t child_oom_kills(const struct child *c);
void child_reap(struct child *c);
/* SIGKILL does not end it: nobody waits for it any longer. */
void child_give_up(struct child *c);
/* Nothing is there any more of what the last generation left. */
bool child_gone(const struct child *c);
int child_on_end(sd_event_source *src, int fd, uint32_t revents, void *arg);
int child_on_log(sd_event_source *src, int fd, uint32_t revents, void *arg);

#endif
