/* HTTP server: libmicrohttpd without threads of its own, driven from the process' sd-event loop, on listening sockets that
 * somebody else made. It knows requests, answers and streams; nothing of APIs.
 *
 * A request lives from its header until its connection has taken the answer or broken off. Whoever answers later than in
 * the call that handed the request over claims it (http_claim) and is told exactly once when the client is gone; after that
 * call, or after its own http_reply or http_end, it must not touch the request again. Everything on the loop's thread. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "buf.h"
#include "err.h"
#include "log.h"

#include <stdint.h>
#include <systemd/sd-event.h>

struct http_server;
struct http_req;

struct http_ops {
    /* The header is there. May reply; otherwise the body is read. */
    void (*on_head)(void *arg, struct http_req *r);
    /* The body is there. Must reply, begin a stream or claim. */
    void (*on_request)(void *arg, struct http_req *r);
    /* An answer's status is known (for counting). */
    void (*on_status)(void *arg, struct http_req *r, unsigned status);
    /* The body (malloc'd JSON, NULL: none) of the answer to a request that is malformed, and so is none. */
    char *(*malformed)(void *arg, unsigned status, const char *why, size_t *len);
};

struct http_limits {
    size_t max_body;
    unsigned timeout_s;
    unsigned max_connections;
};

/* fds: listening sockets, kept open by the server until http_quiesce or http_free. */
int http_new(struct http_server **out, sd_event *ev, const int *fds, int n_fds, const struct http_limits *lim,
             const struct http_ops *ops, void *arg, struct vt_log *log, struct vt_err *err);
/* Closes the listening sockets (never shuts them down: others may share them); connections go on. */
void http_quiesce(struct http_server *s);
/* Requests that have no complete answer yet on the wire. */
unsigned http_open_requests(const struct http_server *s);
void http_each(struct http_server *s, void (*fn)(void *arg, struct http_req *r), void *arg);
void http_free(struct http_server *s);

/* ---- one request ---- */
const char *http_method(const struct http_req *r);
const char *http_path(const struct http_req *r); /* percent-decoded, without the query */
/* As the client wrote it, with its query; NULL: there was no memory for it. */
const char *http_target(const struct http_req *r);
const char *http_get_header(const struct http_req *r, const char *name); /* NULL when absent */
const char *http_query(const struct http_req *r, const char *name); /* NULL when absent, "" without value */
const char *http_body(const struct http_req *r, size_t *len);       /* valid until the answer begins */
char *http_take_body(struct http_req *r, size_t *len); /* malloc'd, NULL when empty: the caller's */
void http_free_body(struct http_req *r);               /* once it has been read */
/* A small number of the owner's, 0 at first (which route it took). */
void http_set_tag(struct http_req *r, int tag);
int http_tag(const struct http_req *r);

/* More header lines for the answer to come. Both strings are copied. */
void http_set_header(struct http_req *r, const char *name, const char *value);
/* Whole answer. Takes body (malloc'd; NULL for none) also on failure. */
void http_reply(struct http_req *r, unsigned status, const char *type, char *body, size_t len);

struct http_claim {
    /* The client went away, or the connection broke. */
    void (*gone)(void *arg);
    /* A stream's buffer became empty. */
    void (*drained)(void *arg);
    void *arg;
};
void http_claim(struct http_req *r, const struct http_claim *c);
/* A claimed (or just handed over) request is answered later by nobody: replies come from http_reply. */
bool http_answered(const struct http_req *r);

/* Streams: status 200 and header lines go out at once. */
void http_stream(struct http_req *r, const char *type);
bool http_streaming(const struct http_req *r);
void http_write(struct http_req *r, const void *p, size_t n);
size_t http_pending(const struct http_req *r);      /* bytes that the socket has not taken */
uint64_t http_last_write(const struct http_req *r); /* monotonic us of the last http_write */
void http_end(struct http_req *r);
/* Breaks the connection off without an end. */
void http_abort(struct http_req *r);

#endif
