/* The worker's side of snapshots: the shadow git repository of one project root, and what is ordered of it. Blocks (git); one order at
 * a time, in the worker's thread. */
#ifndef OFF_SNAP_SHADOW_H
#define OFF_SNAP_SHADOW_H

#include "snap/snap.h"
#include "snap/tree.h"
#include "util/json.h"

enum order_kind {
    ORDER_TAKE,
    ORDER_PLAN,
    ORDER_RESTORE,
    ORDER_REDO,
    ORDER_DIFF,
    ORDER_LOOK,
    ORDER_TIDY,
    ORDER_END
};

/* What is to be done and, when it is done, the event that tells it. */
struct order {
    struct order *next;
    enum order_kind kind;
    size_t turn, n;
    int64_t number; /* of a rewind */
    uint64_t died;  /* of a turn that a death ended; its key and first tree are turns[0] */
    enum snap_when when;
    struct snap_turn *turns; /* own copies */
    char *title, *session, **cover;
    struct event e;
    struct text name, text;
    struct text touched; /* a second event, of SNAP_AFTER */
};

/* Trees of the turn that runs, as this process has taken them; of the worker alone. */
struct current {
    size_t turn;
    char first[TREE_ID + 1], before[TREE_ID + 1];
};

struct shadow {
    struct root root;
    char *root_path, *home;
    char *why_not; /* this folder is not covered at all; NULL: it is */
    uint64_t most; /* of snap_options */
    struct current cur;
    char late[TREE_ID + 1], late_key[128]; /* what a turn left that a death ended, and which turn */
    char kept[TREE_ID + 1];                /* the tree that was referred to last */
    json_t *touched;                       /* path → {sign, added, removed} */
};

/* -1 with err when the root cannot be opened; shadow_close is due in any case. */
int shadow_open(struct shadow *s, const struct snap_options *o, struct vt_err *err);
void shadow_close(struct shadow *s);
/* A restore that a death broke off. The journal holds what was to be done; what is done already is passed over. */
int shadow_complete(struct shadow *s, const char *session, struct vt_err *err);
/* Does what is ordered; the event to tell is in o then. */
void shadow_do(struct shadow *s, struct order *o);

#endif
