/* One request: reading it, answering it. */
#include "server_priv.h"

#include <stdlib.h>
#include <string.h>

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct http_req *r = arg;
    if (r->broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t have = r->out.n - r->out_at;
    if (have == 0) {
        if (r->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        http_sleep(r);
        return 0;
    }
    size_t n = have < max ? have : max;
    memcpy(buf, r->out.p + r->out_at, n);
    r->out_at += n;
    if (r->out_at == r->out.n) {
        r->out_at = 0;
        buf_clear(&r->out);
        buf_trim(&r->out, HTTP_OUT_KEEP);
        if (r->claimed && r->claim.drained)
            r->claim.drained(r->claim.arg);
    }
    return (ssize_t)n;
}

void http_set_header(struct http_req *r, const char *name, const char *value)
{
    if (r->n_head == sizeof r->head / sizeof r->head[0])
        return;
    char *n = strdup(name), *v = strdup(value);
    if (!n || !v) {
        free(n);
        free(v);
        return;
    }
    r->head[r->n_head].name = n;
    r->head[r->n_head++].value = v;
}

static void apply_headers(struct http_req *r)
{
    for (unsigned i = 0; i < r->n_head; i++)
        MHD_add_response_header(r->resp, r->head[i].name, r->head[i].value);
}

static void answer(struct http_req *r, unsigned status, const char *type, enum req_state state)
{
    if (type)
        MHD_add_response_header(r->resp, "Content-Type", type);
    apply_headers(r);
    r->status = status;
    r->state = state;
    r->s->ops->on_status(r->s->arg, r, status);
    http_free_body(r);
    http_wake(r);
}

void http_reply(struct http_req *r, unsigned status, const char *type, char *body, size_t len)
{
    if (r->resp || r->broken) {
        free(body);
        return;
    }
    r->claimed = false;
    r->resp =
        MHD_create_response_from_buffer(len, body, body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!r->resp) {
        free(body);
        http_abort(r);
        return;
    }
    answer(r, status, type, R_REPLY);
}

void http_stream(struct http_req *r, const char *type)
{
    if (r->resp || r->broken)
        return;
    r->resp = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, HTTP_OUT_KEEP, on_read, r, NULL);
    if (!r->resp) {
        http_abort(r);
        return;
    }
    http_set_header(r, "Cache-Control", "no-cache");
    http_set_header(r, "X-Accel-Buffering", "no");
    r->last_write = vt_mono(&r->s->clock);
    answer(r, MHD_HTTP_OK, type, R_STREAM);
}

void http_write(struct http_req *r, const void *p, size_t n)
{
    if (r->state != R_STREAM || r->ended || r->broken || n == 0)
        return;
    buf_add(&r->out, p, n);
    if (r->out.failed) {
        http_abort(r);
        return;
    }
    r->last_write = vt_mono(&r->s->clock);
    http_wake(r);
}

void http_end(struct http_req *r)
{
    r->claimed = false;
    r->ended = true;
    http_wake(r);
}

void http_abort(struct http_req *r)
{
    r->broken = true; /* whoever claimed it is told when the connection is closed */
    http_wake(r);
}

void http_claim(struct http_req *r, const struct http_claim *c)
{
    r->claim = *c;
    r->claimed = true;
    if (r->conn && r->conn->hung)
        http_arm(r->conn, 0); /* it had gone before */
}

bool http_answered(const struct http_req *r)
{
    return r->resp != NULL || r->broken;
}

bool http_streaming(const struct http_req *r)
{
    return r->state == R_STREAM;
}

size_t http_pending(const struct http_req *r)
{
    return r->out.n - r->out_at;
}

uint64_t http_last_write(const struct http_req *r)
{
    return r->last_write;
}

/* ---- reading ---- */

const char *http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_path(const struct http_req *r)
{
    return r->path;
}

const char *http_target(const struct http_req *r)
{
    return r->target;
}

const char *http_get_header(const struct http_req *r, const char *name)
{
    return MHD_lookup_connection_value(r->c, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_req *r, const char *name)
{
    const char *v = NULL;
    size_t n = 0;
    if (MHD_lookup_connection_value_n(r->c, MHD_GET_ARGUMENT_KIND, name, strlen(name), &v, &n) != MHD_YES)
        return NULL;
    return v ? v : "";
}

const char *http_body(const struct http_req *r, size_t *len)
{
    if (r->too_large) {
        *len = SIZE_MAX;
        return NULL;
    }
    *len = r->body.n;
    return r->body.p;
}

char *http_take_body(struct http_req *r, size_t *len)
{
    char *p = r->body.p;
    *len = r->body.n;
    r->body = (struct buf){0};
    return p;
}

void http_free_body(struct http_req *r)
{
    buf_fini(&r->body);
}

void http_set_tag(struct http_req *r, int tag)
{
    r->tag = tag;
}

int http_tag(const struct http_req *r)
{
    return r->tag;
}
