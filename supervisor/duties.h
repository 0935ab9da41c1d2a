/* Duties: what the main loop must have done lately to deserve its keep-alive ping, and what it tells the service manager.
 * WATCHDOG=1 is sent by the loop itself, only while every duty ran within its limit; a stalled one is named in the log. */
#ifndef DUTIES_H
#define DUTIES_H

#include "sup.h"

enum duty { DUTY_CHILDREN, DUTY_MEMORY, DUTY_CTL, DUTY_TELE, DUTY_COUNT };

int duties_open(struct sup *s, struct vt_err *err);
void duties_close(struct sup *s);
void duty_done(struct sup *s, enum duty d);
/* Once a second: the ping, STATUS=, and EXTEND_TIMEOUT_USEC while draining. */
void duties_tick(struct sup *s);
/* Sends one state to the service manager; nothing happens where there is none. */
void duties_notify(const char *state);
const char *duty_name(enum duty d);
/* The name of the duty that is overdue, or NULL. */
const char *duties_overdue(const struct sup *s);
/* One line for people: what is up. */
void duties_status(const struct sup *s, char *out, size_t size);

#endif
