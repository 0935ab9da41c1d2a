/* Dispatch: from a request to the function that answers it, with everything that is checked on the way: CORS, the state of
 * the server, the key, path and method. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include "../gateway.h"

extern const struct http_ops dispatch_ops; /* for http_new; arg is the gateway */

/* Name of an endpoint number (a request's tag) for metrics: low in number, never what a client made up. */
const char *dispatch_endpoint(unsigned tag);

#endif
