/* Hold: keeps the HTTP listening sockets over the lives of a vitriold, and decides whether it is started again. For the
 * launcher, which does in the foreground what the service manager does for a unit. One thread.
 *
 * A vitriold that dies by a signal or by its own fault comes back after 0.2 s, then twice that each time, until one has
 * lived for 30 s; five quick deaths in a row end it. An end in order, or with a code that says what to mend, is final. */
#ifndef HOLD_H
#define HOLD_H

#include "sup.h"

#include <stdbool.h>

#define HOLD_DEATHS  5
#define HOLD_LIVE_US VT_SEC(30)

struct hold {
    struct http_listen http;
    unsigned deaths; /* quick ones in a row */
};

/* VT_E_UNAVAILABLE when another vitriold runs in run_dir, or the port is taken. */
int hold_open(struct hold *h, const struct vt_config *cfg, const char *run_dir, struct vt_err *err);
/* In the child, right before exec: the sockets become the inherited ones. -1: errno says why. */
int hold_pass(const struct hold *h);
/* vitriold ended with *code (128 + signal) after lived_us. True: start it again after *delay_us; false: end with *code. Says
 * which on stderr. */
bool hold_again(struct hold *h, int *code, pid_t pid, uint64_t lived_us, uint64_t *delay_us);
void hold_close(struct hold *h);

#endif
