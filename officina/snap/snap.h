/* Snapshots and rewind: what the program expects of them (section "Rewind" of docs/OFFICINA.md).
 *
 * A shadow git repository in the state folder, one for each project root. Git runs as a child with fixed
 * arguments and a cleaned environment; results are events: EV_SNAP, EV_REWIND_PLAN, EV_REWIND_DONE, EV_DIFF,
 * EV_GIT, EV_TOUCHED. One operation at a time, the others wait in order. Runs in the program's thread and
 * never blocks it. */
#ifndef OFF_SNAP_H
#define OFF_SNAP_H

#include "core/event.h"
#include "err.h"

#include <poll.h>

struct snap_turn { /* what of a turn matters here; strings may be NULL */
    const char *key, *tree_user, *tree_before, *tree_after;
};

struct snap_options {
    const char *root, *home, *session;
    event_sink sink;
    void *arg;
    /* Bytes that the shadow repository may hold; 0: 4 GiB, and what is younger than an hour is spared. */
    uint64_t most;
};

struct snap;

/* Completes a restore that a death broke off (journal in the state folder). */
struct snap *snap_open(const struct snap_options *o, struct vt_err *err);
void snap_close(struct snap *s);
void snap_session(struct snap *s, const char *session);
/* A path that a file tool is about to write: covered even when ignored. */
void snap_cover(struct snap *s, const char *path);
void snap_take(struct snap *s, size_t turn, enum snap_when when);
/* What a turn left that a death ended: what was changed up to DIED (wall clock, microseconds) and a few seconds more is its own,
 * what was changed later is the user's and stays in the tree as it was before. → EV_SNAP with SNAP_LATE. died 0: not known,
 * nothing is done. */
void snap_take_late(struct snap *s, size_t turn, const char *key, const char *before, uint64_t died);
#define SNAP_DIED_US 3000000
/* turns: from the one to go back before up to the newest. */
void snap_plan(struct snap *s, size_t turn, const struct snap_turn *turns, size_t n);
/* number: of this rewind within the conversation, for snap_redo(). */
void snap_restore(struct snap *s, size_t turn, const struct snap_turn *turns, size_t n, int64_t number);
void snap_redo(struct snap *s, int64_t number);
/* What the turns changed, as whole files before and after. title: for the sheet. */
void snap_diff(struct snap *s, const char *title, const struct snap_turn *turns, size_t n);
/* Branch and counts of the user's own repository, for the panel → EV_GIT. */
void snap_look(struct snap *s);

/* Packs the shadow repository and holds it within its bound; by itself once, when nothing was to be done for a while. */
void snap_tidy(struct snap *s);

/* Something was ordered whose event has not been given yet. */
int snap_busy(const struct snap *s);
size_t snap_poll(struct snap *s, struct pollfd *fds, size_t max);
int snap_timeout(const struct snap *s);
void snap_work(struct snap *s, const struct pollfd *fds, size_t n);

#endif
