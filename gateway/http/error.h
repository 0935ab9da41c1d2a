/* Error objects: what a client is told, as status, type, message and the field that is at fault. */
#ifndef HTTP_ERROR_H
#define HTTP_ERROR_H

#include "err.h"
#include "server.h"

#include <jansson.h>
#include <stdint.h>

struct api_err {
    int status;     /* 0: no error */
    char param[64]; /* "" = null */
    char message[512];
    const char *type;        /* NULL: the usual one of the status */
    int64_t n_prompt, n_ctx; /* exceed_context_size_error only */
    uint32_t retry_ms;       /* 429, 503: when to come again; 0 = 1 s */
    const char *state;       /* of /health: why nothing is served; NULL: not told */
    bool eta;                /* retry_ms is when a restart will be over */
};

/* Fills e and returns -1. param may be NULL. */
int api_fail(struct api_err *e, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* prompt does not fit into the window. */
int api_fail_window(struct api_err *e, const char *param, int64_t n_prompt, int64_t n_ctx);
/* An error of an engine or of our own, by its code. */
void api_from_err(struct api_err *e, const struct vt_err *err, uint32_t retry_ms);

/* {"error":{…}}, NULL when memory is out. */
json_t *api_error_json(const struct api_err *e);
/* Sends it, with Retry-After where it belongs. */
void api_error_reply(struct http_req *r, const struct api_err *e);
/* Sends v (stolen, may be NULL: out of memory) as JSON. */
void api_reply_json(struct http_req *r, unsigned status, json_t *v);

/* Sends text (malloc'd, taken; NULL: out of memory) that is JSON already. */
void api_reply_text(struct http_req *r, char *text);

#endif
