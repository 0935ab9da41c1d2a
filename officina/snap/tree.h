/* Trees of the shadow repository: taking one, comparing two, and what a rewind would do. Blocks (git); one
 * thread at a time. */
#ifndef OFF_SNAP_TREE_H
#define OFF_SNAP_TREE_H

#include "snap/git.h"
#include "snap/snap.h"
#include "tools/root.h"

#include <stdbool.h>

enum { TREE_MAX_FILES = 60000, TREE_MAX_FILE = 16 << 20, TREE_ID = 64 };
#define TREE_MAX_NEW (UINT64_C(1) << 30)

struct taken {
    char id[TREE_ID + 1];
    char *partial;       /* why it does not cover everything, one sentence; NULL: it does */
    struct text ignored; /* names that the ignore rules leave out, ", " between, the first few */
};

/* cover: paths that are taken whatever the ignore rules say (NULL-terminated; may be NULL). */
int tree_take(const struct git *g, const struct root *r, char *const *cover, struct taken *t,
              struct vt_err *err);
void taken_free(struct taken *t);

struct blob {
    unsigned mode; /* 0: not there; 0100644, 0100755, 0120000 */
    char id[TREE_ID + 1];
};

struct tree_change {
    char *path;
    struct blob old, new;
};

struct tree_changes {
    struct tree_change *v; /* by path */
    size_t n, cap;
};

/* old or new NULL: nothing is compared. */
int tree_compare(const struct git *g, const char *old, const char *new, struct tree_changes *c,
                 struct vt_err *err);
void tree_changes_free(struct tree_changes *c);
bool blob_same(const struct blob *a, const struct blob *b);
int blob_read(const struct git *g, const struct blob *b, struct text *out, struct vt_err *err);

enum plan_way { PLAN_RESTORE, PLAN_KEEP, PLAN_CONFLICT };

struct plan_item {
    char *path;
    enum plan_way way;
    struct blob now, then; /* what stands there, and what stood there before the key */
};

struct plan {
    struct plan_item *v; /* by path */
    size_t n, cap;
};

/* turns: from the key's to the newest; now: a tree taken just now. */
int plan_make(const struct git *g, const struct snap_turn *turns, size_t n, const char *now, struct plan *p,
              struct vt_err *err);
void plan_free(struct plan *p);
/* Puts the PLAN_RESTORE items back (way: now → then). What does not hold `now` any more is left and named in
 * `left`. */
int plan_apply(const struct git *g, const struct root *r, const struct plan *p, struct text *left,
               struct vt_err *err);

/* The journal of a restore: written before, removed after. */
int plan_save(const struct plan *p, const char *file, struct vt_err *err);
int plan_load(struct plan *p, const char *file, struct vt_err *err); /* 1: loaded, 0: no such file */
/* now and then changed places: the way back. */
void plan_turn_round(struct plan *p);

#endif
