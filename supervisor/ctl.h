/* Ctl: the control socket. Every verb answers within one turn of the loop; long work gets an operation number. Readers are
 * whoever the socket's mode lets in; to act takes root, the service user or the group vitriol-admin, by the kernel's
 * credentials, and none of our own children. */
#ifndef CTL_H
#define CTL_H

#include "sup.h"

int ctl_open(struct sup *s, struct vt_err *err);
/* The same without a socket, for ctl_answer alone. */
int ctl_new(struct sup *s, struct vt_err *err);
void ctl_close(struct sup *s);
int ctl_relisten(struct sup *s, struct vt_err *err);
/* Times that ctl or tele had to be made anew. */
uint64_t ctl_relistens(const struct sup *s);

/* One request, given as bytes, answered into e (begun and filled, not ended). For tests and the fuzz target too. */
struct ctl_caller {
    uid_t uid;
    gid_t gid;
    pid_t pid;
};
void ctl_answer(struct sup *s, const uint8_t *buf, size_t len, const struct ctl_caller *who,
                struct vt_enc *e);

#endif
