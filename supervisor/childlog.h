/* Childlog: what a child writes to stdout and stderr. The last 200 lines are kept for evidence; lines are forwarded to
 * the log, at most so many a second, the rest is counted and summarised. The child never waits: the pipe is always read
 * empty. */
#ifndef CHILDLOG_H
#define CHILDLOG_H

#include "log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHILDLOG_LINES 200
#define CHILDLOG_LINE  512
#define CHILDLOG_RATE  100 /* lines forwarded in a second */

struct childlog {
    int fd;                   /* our end of the pipe, -1: none */
    char part[CHILDLOG_LINE]; /* a line that has not ended yet */
    size_t part_len;
    bool cut;                    /* the rest of this line is dropped */
    char (*ring)[CHILDLOG_LINE]; /* owned */
    unsigned n;                  /* lines so far */
    unsigned in_second;
    uint64_t second, suppressed, suppressed_told;
};

int childlog_init(struct childlog *l); /* -1: no memory */
void childlog_fini(struct childlog *l);
/* Reads what is there, at most 64 KiB a call. 0: more may come, 1: the writers are gone. */
int childlog_read(struct childlog *l, struct vt_log *log, const char *child, uint64_t now);
/* Once a second: says how much was suppressed. */
void childlog_tick(struct childlog *l, struct vt_log *log, const char *child);
/* The last n lines into out, oldest first; returns the length. */
size_t childlog_tail(const struct childlog *l, unsigned n, char *out, size_t size);

#endif
