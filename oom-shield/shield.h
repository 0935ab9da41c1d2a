/* Shield: makes the kernel's out-of-memory killer prefer others: a service without privileges cannot lower its own
 * oom_score_adj, but may raise that of its user's other processes. new = max(current, floor), never an increment, so that
 * doing it twice changes nothing. One thread. */
#ifndef SHIELD_SHIELD_H
#define SHIELD_SHIELD_H

#include "journal.h"
#include "rules.h"

#include <stdio.h>

struct shield {
    struct rules rules;
    struct journal journal;
    char proc_root[256];
    bool scope_cgroup;     /* the engine lives under a limit of its own: marking others would help nothing */
    bool oomd;             /* systemd-oomd was seen: it does not ask for scores */
    unsigned by[VERDICTS]; /* of the last scan */
    unsigned failed;       /* could not be written */
    unsigned restored, not_restored;
};

/* dir: where the journal is kept. Takes over the marks of a dead one. write: as journal_open's; needed to mark and to undo. */
int shield_open(struct shield *s, const char *dir, const char *proc_root, bool write, struct vt_err *err);
void shield_close(struct shield *s);
/* One look at all processes. mark: also raises. each: told of every process, may be NULL. */
int shield_scan(struct shield *s, bool mark, void (*each)(void *arg, const struct task *t, enum verdict v),
                void *arg, struct vt_err *err);
/* Takes everything back. */
void shield_undo(struct shield *s);
unsigned shield_marked(const struct shield *s);
void shield_report(const struct shield *s, FILE *out);

#endif
