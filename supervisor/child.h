/* Child: one process and its state. The only place where a child's state changes. */
#ifndef CHILD_H
#define CHILD_H

#include "sup.h"

/* Finds and opens its program; it stays down until child_want. */
int child_open(struct sup *s, struct child *c, enum child_role role, const char *name, struct vt_err *err);
void child_close(struct child *c);
/* It should run: started now, unless a timer of its own is running. */
void child_want(struct child *c);
/* Ends its work within deadline_ms and leaves; come_back: only to be started again. */
void child_leave(struct child *c, uint32_t deadline_ms, bool come_back, unsigned reason);
/* SIGKILL for a reason. hang: liveness was lost, evidence first. */
void child_kill(struct child *c, enum exit_class why, const char *detail);
void child_hang(struct child *c, enum exit_class why, const char *detail);
/* An operator: what was learned is forgotten, a waiting start happens now. */
void child_reset(struct child *c);
/* What the next generation executes; -1 and NULL path: it is not installed. */
int child_program(const struct child *c, const char **path);
/* Its process has ended or is about to, although its end has not come to the loop yet: a signal that nothing can stop is
 * pending, or the kernel takes it apart already. */
bool child_dying(const struct child *c);
/* Once a second. */
void child_tick(struct child *c);
/* Our clock was late: deadlines move. */
void child_guard(struct child *c, uint64_t extend);

/* From the lifeline. */
void child_hello(struct child *c);
void child_ready(struct child *c, const struct vt_frame *f);
void child_phase(struct child *c, const struct vt_frame *f);
void child_fatal(struct child *c, const struct vt_frame *f);

/* How far its generation came: what the next start is decided by. */
enum restart_life child_life(const struct child *c);
/* 0..1 of a load, 1 when ready. */
double child_load_ratio(const struct child *c);
uint64_t child_load_age(const struct child *c);

/* A frame to it: begin, fill, send. Without a lifeline nothing is sent (-1). */
struct vt_enc *child_begin(struct child *c, uint8_t type, uint64_t id);
int child_send(struct child *c);
/* slot < 0: none. */
int child_order(struct child *c, unsigned verb, uint64_t id, uint32_t deadline_ms, unsigned reason,
                int64_t slot);

#endif
