/* Proxy: requests for an external engine, whole, over its data link, and the answers back as they come.
 *
 * A stream that its server leaves in the middle never ends silently: an event that was cut is closed, an error event and
 * `[DONE]` follow. What has not begun is a plain 503 with Retry-After; a request that no engine has seen waits for one as
 * long as others do. Nothing is sent twice: a server's own generation cannot be resumed. The loop's thread. */
#ifndef PROXY_H
#define PROXY_H

#include "../gateway.h"

struct proxy;

/* The model is served by another server: nothing of it is known here. */
bool proxy_wanted(const struct gateway *gw);
/* Paths that are relayed. */
bool proxy_takes(const char *path);
/* A target that stays below the server's address and path whoever resolves it. */
bool proxy_path_safe(const char *target);
void proxy_start(struct gateway *gw, struct http_req *r);
void proxy_frame(struct gateway *gw, const struct vt_link *l, const struct vt_frame *f);
void proxy_link_down(struct gateway *gw, const struct vt_link *l);
/* Several times a second, and when an engine may have come. */
void proxy_pump(struct gateway *gw);
void proxy_fail_all(struct gateway *gw, const char *why);
unsigned proxy_open(const struct gateway *gw);

#endif
