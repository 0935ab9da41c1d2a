/* Upstream: the server behind this child: started from a command line, or only known by its address. */
#ifndef EXT_UPSTREAM_H
#define EXT_UPSTREAM_H

#include "config.h"
#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct upstream {
    pid_t pid;      /* 0: not ours, or not running */
    bool ours;      /* it is started here */
    char base[300]; /* http://host:port */
    uint64_t seen;  /* its work (time of CPU, memory, bytes read) when it was looked at last */
};

/* Where it is: external.url, or a free port of 127.0.0.1 for a command that says {port}. */
int upstream_where(struct upstream *u, const struct vt_config *cfg, struct vt_err *err);
/* external.command: words separated by blanks; {port}, {model}, {slots} and {ctx} are replaced. It gets our output and our
 * process group, and SIGKILL when we end. */
int upstream_start(struct upstream *u, const struct vt_config *cfg, struct vt_err *err);
/* Exactly its command line, for tests: words of out are malloc'd, NULL ends them. */
char **upstream_argv(const struct upstream *u, const struct vt_config *cfg, struct vt_err *err);
void upstream_argv_free(char **argv);
/* Its end: 1 and *status as of waitpid; 0: it runs, or it is not ours. */
int upstream_ended(struct upstream *u, int *status);
/* It has worked since the last call: its time of CPU, its memory or what it has read grew. */
bool upstream_worked(struct upstream *u);
/* SIGTERM, and SIGKILL after at most ms. */
void upstream_stop(struct upstream *u, unsigned ms);

#endif
