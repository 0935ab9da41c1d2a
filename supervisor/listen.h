/* Listen: the HTTP listening sockets, handed over by whoever started us or bound here. Bind or die: no other port, no
 * sharing. vitriold never accepts on them; every gateway generation inherits them. */
#ifndef LISTEN_H
#define LISTEN_H

#include "sup.h"

/* Takes over descriptors named "http", else binds http.listen. VT_E_UNAVAILABLE names the port's owner. */
int listen_open(struct http_listen *h, const struct vt_config *cfg, struct vt_err *err);
void listen_close(struct http_listen *h);
/* Who listens on ADDRESS:PORT (as configured): the pid, 0 when nobody or not visible. comm gets its name. */
pid_t listen_owner(const char *address, char *comm, size_t size);

/* Inodes of the sockets that listen on the address's port, at most max; cheap, unlike listen_owner. */
unsigned listen_inodes(const char *address, uint64_t *out, unsigned max);

#endif
