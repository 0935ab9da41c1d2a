/* Listen: the HTTP listening sockets, handed over by whoever started us or bound here. Bind or die: no other port, no
 * sharing. vitriold never accepts on them; every gateway generation inherits them. */
#ifndef LISTEN_H
#define LISTEN_H

#include "sup.h"

/* Takes over descriptors named "http", else binds http.listen. VT_E_UNAVAILABLE names the port's owner. */
int listen_open(struct http_listen *h, const struct vt_config *cfg, struct vt_err *err);
void listen_close(struct http_listen *h);
/* Who listens on ADDRESS:PORT (as configured): the pid, 0 when nobody or not visible. comm gets its name. inode: of the
 * socket, 0 when nobody. */
pid_t listen_owner(const char *address, char *comm, size_t size, uint64_t *inode);

#endif
