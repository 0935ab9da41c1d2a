/* What every socket needs of NNG beyond its interface: how its errors are told, and the one errno that it takes for another.
 *
 * A connection that is greeted after its peer has left fails with EPIPE, which NNG 1.5.2 reads as "this endpoint was closed":
 * the listener accepts nothing more and a dialer never dials again, although both go on connecting peers below; these peers,
 * and the listener, keep their descriptors even when the socket is closed. Later versions of the library take it for a peer
 * that has left. Here the greeting reports that to every version: sendmsg() of the program stands before the C library's
 * for NNG, and changes nothing else. Any thread. */
#ifndef VT_SOCK_NNG_H
#define VT_SOCK_NNG_H

#include "err.h"

/* Fails with `what path: the library's words for rv`. */
int vt_nng_fail(struct vt_err *err, int code, const char *what, const char *path, int rv);

#endif
