/* Links: the data links that vitriold mints between children, `d` (engine listens, gateway dials) and `k` (store listens,
 * engine dials, with a ring). A link belongs to one pair of generations; it is never repaired: when it ends and both
 * ends live and want it, another one is minted.
 *
 *     minted -> listening -> up -> ended
 * LINK_OPEN goes to the listener; after its LINK_STATE(listening) to the dialer; up when both have said so. */
#ifndef LINKS_H
#define LINKS_H

#include "sup.h"

int links_open(struct sup *s, struct vt_err *err);
void links_close(struct sup *s);
/* Mints what is wanted and not there. Called at every change of a child and once a second. */
void links_want(struct sup *s);
/* LINK_STATE of a child. */
void links_state(struct sup *s, struct child *c, const struct vt_frame *f);
/* The child's process is gone: its links end. */
void links_child_gone(struct sup *s, const struct child *c);
/* Id of the link of that kind that is up at this child, or 0. */
uint32_t links_up(const struct sup *s, char kind, const struct child *c);
/* For reports: the i-th link; false when there is none. */
struct link_view {
    uint32_t id;
    char kind;
    const char *listener, *dialer, *state;
};
bool links_at(const struct sup *s, unsigned i, struct link_view *v);

#endif
