/* Ops: long operations with a number: bounce, drain, stop, start, export, and what is asked of the store. A caller gets the number at once and asks for
 * its outcome; the last 64 are kept. */
#ifndef OPS_H
#define OPS_H

#include "sup.h"

#define OPS_KEPT 64

enum op_state { OP_RUNNING, OP_OK, OP_FAILED };

struct op {
    uint64_t id;
    char verb[16];
    char child[SUP_NAME_MAX];
    enum op_state state;
    int code;       /* why it failed */
    uint64_t limit; /* us after which it is given up; 0: when its child is gone */
    uint64_t began, ended;
    uint64_t tokens, bytes, saved, skipped, failed; /* of an export; the last three count slots */
    char text[256];
};

int ops_open(struct sup *s, struct vt_err *err);
void ops_close(struct sup *s);
/* Each returns the operation's number, or 0 with the reason. The gate runs before a running child is touched. */
uint64_t ops_bounce(struct sup *s, struct child *c, struct vt_err *err);
/* ms: time for its work to end instead of the configured one; 0: that one. */
uint64_t ops_bounce_within(struct sup *s, struct child *c, uint32_t ms, struct vt_err *err);
/* A bounce that is draining gets this long from now on. */
void ops_hurry(struct sup *s, struct child *c, uint32_t ms);
uint64_t ops_drain(struct sup *s, struct child *c, struct vt_err *err); /* it stays down */
uint64_t ops_stop(struct sup *s, struct child *c, struct vt_err *err);  /* the same, hurried */
uint64_t ops_start(struct sup *s, struct child *c, struct vt_err *err);
uint64_t ops_export(struct sup *s, struct child *c, int64_t slot, struct vt_err *err); /* slot < 0: all */
const struct op *ops_get(const struct sup *s, uint64_t id);
const char *op_state_name(enum op_state st);

/* An operation whose work another module does; it ends by ops_end, at its limit, or with its child. */
uint64_t ops_begin(struct sup *s, const char *verb, const struct child *c, uint64_t limit_us);
void ops_end(struct sup *s, uint64_t id, int code, const char *text); /* code 0: well */

/* Called as things happen. */
void ops_child_changed(struct sup *s, struct child *c);
void ops_child_gone(struct sup *s, const struct child *c);
void ops_order_done(struct sup *s, const struct child *c, const struct vt_frame *f);
void ops_tick(struct sup *s);

/* Everything ends in order: routes closed, engines drain, gateway ends what is left, store flushes; then the loop ends.
 * hurry: deadlines shrink to what a kill needs. */
void ops_shutdown(struct sup *s, bool hurry);

#endif
