/* Journal: whom the shield has marked, written before it marks, so that whoever
 * comes later can take it back: the next shield, or `vitriol-shield --undo`
 * after everything has died. An entry is undone only if the process is still
 * the one (pid and start time, of this boot) and has still the value that it
 * was given. */
#ifndef SHIELD_JOURNAL_H
#define SHIELD_JOURNAL_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct mark {
    pid_t pid;
    uint64_t start;
    int was, now;
    uint64_t at; /* when it was marked, clock ticks since boot */
};

struct journal {
    char path[512];
    char boot[40];
    int fd, lock;      /* -1: not open */
    bool fixed;        /* only looked at: changes stay in memory */
    struct mark *mark; /* owned */
    unsigned n, cap;
};

/* Reads what DIR/shield.journal holds of this boot; entries that make no sense
 * are dropped. It is made with the first entry. write: DIR is locked, for up to
 * two seconds of waiting (VT_E_BUSY); else nothing in DIR is changed. */
int journal_open(struct journal *j, const char *dir, const char *proc_root, bool write, struct vt_err *err);
void journal_close(struct journal *j);
int journal_add(struct journal *j, const struct mark *m, struct vt_err *err);
const struct mark *journal_find(const struct journal *j, pid_t pid, uint64_t start);
/* Writes it anew with the entries that keep says yes to; an empty one is
 * removed. */
void journal_keep(struct journal *j, bool (*keep)(void *arg, const struct mark *m), void *arg);

#endif
