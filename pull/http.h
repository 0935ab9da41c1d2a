/* HTTP: one GET with libcurl, redirects followed, the headers of the last answer read, the body handed on as it comes.
 *
 * A secret (the hub's token) goes to the host of the first URL only, and only over TLS or to this machine. One thread. */
#ifndef PULL_HTTP_H
#define PULL_HTTP_H

#include "err.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_outcome {
    HTTP_OK,
    HTTP_RETRY,   /* the network or a busy server: the same may work later */
    HTTP_FATAL,   /* it will not */
    HTTP_STOPPED, /* the caller's flag was raised */
};

struct http {
    void *curl; /* CURL; kept for its connection */
    const volatile sig_atomic_t *stop;
    unsigned stall_s; /* without a byte for so long an answer counts as cut */
};

struct http_request {
    const char *url;
    const char *token;    /* NULL = none */
    uint64_t from;        /* first byte wanted */
    const char *if_range; /* the validator of what is there already; NULL = none */
};

/* Of the last answer; "" and -1 where it said nothing. */
struct http_reply {
    long status;
    int64_t length;                 /* of this body */
    int64_t range_from, range_size; /* of Content-Range: first byte, and of the whole file */
    char etag[160];                 /* with its quotes; only a strong one */
    char modified[64];
    char linked_sha[65]; /* the hub's name for the content, from any answer on the way */
    int64_t linked_size;
    int64_t retry_after_s;
    char hub_error[64]; /* X-Error-Code */
    bool unreachable;   /* no server of that address answered at all */
    bool led_on;        /* an answer before led to the last one */
};

struct http_sink {
    /* Before the first byte of a body, and for an empty one: 0 to go on. */
    int (*begin)(void *ctx, const struct http_reply *r, struct vt_err *err);
    int (*data)(void *ctx, const uint8_t *s, size_t n, struct vt_err *err);
    void (*tick)(void *ctx); /* a few times a second, data or not; may be NULL */
    void *ctx;
};

int http_init(struct http *h, const volatile sig_atomic_t *stop, struct vt_err *err);
void http_fini(struct http *h);
/* begin and data are called for statuses 200 and 206 only. Anything but HTTP_OK has filled err. */
enum http_outcome http_get(struct http *h, const struct http_request *q, const struct http_sink *sink,
                           struct http_reply *r, struct vt_err *err);

/* Reads one header line into r; a status line forgets what earlier answers said. */
void http_header(struct http_reply *r, const char *line, size_t n);

#endif
