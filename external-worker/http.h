/* HTTP client: requests to one server through libcurl's multi interface on the process' sd-event loop. Nothing waits; a
 * transfer whose receiver has no room is paused until it has. One thread. */
#ifndef EXT_HTTP_H
#define EXT_HTTP_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct http;
struct transfer;

struct transfer_ops {
    /* Status and content type, once, before the first byte. */
    void (*head)(void *arg, unsigned status, const char *type);
    /* All of it was taken, or nothing (false): it comes again after transfer_continue. */
    bool (*data)(void *arg, const char *p, size_t n);
    /* Once, last; the transfer is gone after it. err NULL: the answer was whole; VT_E_BOUNCING: nobody took the connection,
     * so that nothing was asked. */
    void (*end)(void *arg, const struct vt_err *err);
};

struct transfer_req {
    const char *method; /* "GET", "POST" */
    const char *path;   /* behind the base */
    char *body;         /* malloc'd, taken; NULL: none */
    size_t n_body;
    unsigned timeout_s; /* 0: none */
    bool counts;        /* its bytes are progress */
};

/* base: "http://host:port", without a slash at its end. bearer: NULL, or the key that every request carries. */
int http_new(struct http **out, sd_event *ev, const char *base, const char *bearer, struct vt_err *err);
void http_free(struct http *h); /* ends every transfer without a call */
int http_start(struct http *h, struct transfer **out, struct transfer_req *q, const struct transfer_ops *ops,
               void *arg, struct vt_err *err);
void http_cancel(struct transfer *t); /* no call follows */
void http_continue(struct transfer *t);
/* Bytes that came from the server so far in transfers that count: what progress is. */
uint64_t http_bytes(const struct http *h);

#endif
