/* CORS: which origins a browser may call us from. */
#ifndef CORS_H
#define CORS_H

#include "server.h"

/* allowed: "*" or origins separated by commas (http.cors_origins). Adds the headers of an ordinary answer. */
void cors_headers(struct http_req *r, const char *allowed);
/* Answers OPTIONS. */
void cors_preflight(struct http_req *r, const char *allowed);
bool cors_allowed(const char *allowed, const char *origin);

#endif
