/* The network: requests of the core over libcurl's multi interface, inside the program's poll loop. Nothing blocks.
 * Events: EV_REPLY, EV_STREAM_OPEN, EV_STREAM_DATA, EV_STREAM_END (core/event.h); their time is the sink's matter. One
 * thread. */
#ifndef OFF_NET_H
#define OFF_NET_H

#include "core/event.h"
#include "couple/coupling.h"

#include <poll.h>

struct net;

struct net *net_open(event_sink sink, void *arg, struct vt_err *err);
void net_close(struct net *n);
/* Where requests go from now on; running ones end without an event. The key is read now and kept in locked memory. */
int net_use(struct net *n, const struct coupling *c, struct vt_err *err);
/* POST of a chat request, answer as a stream. body is copied. */
void net_send(struct net *n, int64_t id, const char *body);
/* One short request of at most 2 s (60 s for slot actions); body NULL: GET. */
void net_ask(struct net *n, int64_t id, const char *path, const char *body);
void net_drop(struct net *n, int64_t id);

size_t net_poll(struct net *n, struct pollfd *fds, size_t max);
int net_timeout(const struct net *n);
void net_work(struct net *n, const struct pollfd *fds, size_t count);

#endif
