#include "error.h"

#include "../stream/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char media_type[] = "application/json; charset=utf-8";

static const char *usual_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    case 504: return "timeout_error";
    default: return "invalid_request_error";
    }
}

int api_fail(struct api_err *e, int status, const char *param, const char *fmt, ...)
{
    va_list ap;
    *e = (struct api_err){.status = status};
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return -1;
}

int api_fail_window(struct api_err *e, const char *param, int64_t n_prompt, int64_t n_ctx)
{
    api_fail(e, 400, param,
             "request (%lld tokens) exceeds the available context size (%lld tokens), try increasing it",
             (long long)n_prompt, (long long)n_ctx);
    e->type = "exceed_context_size_error";
    e->n_prompt = n_prompt;
    e->n_ctx = n_ctx;
    return -1;
}

static int status_of(int code)
{
    switch (code) {
    case VT_E_QUEUE_FULL: return 429;
    case VT_E_WINDOW:
    case VT_E_PARAM:
    case VT_E_QUARANTINED:
    case VT_E_GRAMMAR:
    case VT_E_NO_SLOT:
    case VT_E_NOT_FOUND:
    case VT_E_CORRUPT:
    case VT_E_LAYOUT:
    case VT_E_CLOBBER: return 400;
    case VT_E_NO_MODEL: return 404;
    case VT_E_CAPABILITY: return 501;
    case VT_E_DEADLINE: return 504;
    case VT_E_DRAINING:
    case VT_E_LOADING:
    case VT_E_MEM_PRESSURE:
    case VT_E_NO_ENGINE:
    case VT_E_BOUNCING:
    case VT_E_INTERRUPTED:
    case VT_E_INTERRUPTED_FINAL:
    case VT_E_DEVICE_MEM:
    case VT_E_DEVICE_LOST:
    case VT_E_HUNG:
    case VT_E_STAGE_LOST:
    case VT_E_BUSY: return 503;
    default: return 500;
    }
}

void api_from_err(struct api_err *e, const struct vt_err *err, uint32_t retry_ms)
{
    api_fail(e, status_of(err->code), NULL, "%s", err->text[0] ? err->text : "internal error");
    e->retry_ms = retry_ms;
    if (err->code == VT_E_WINDOW)
        e->type = "exceed_context_size_error";
}

/* The message may quote what a client sent, cut anywhere: it goes through the hold-back like all text. */
static json_t *clean(const char *text)
{
    struct utf8_hold h = {0};
    struct buf b = {0};
    utf8_feed(&h, (const uint8_t *)text, strlen(text), &b);
    json_t *s = json_stringn(b.p ? b.p : "", b.n);
    buf_fini(&b);
    return s;
}

json_t *api_error_json(const struct api_err *e)
{
    json_t *o = json_object();
    const char *type = e->type ? e->type : usual_type(e->status);
    json_object_set_new(o, "code", json_integer(e->status));
    json_object_set_new(o, "message", clean(e->message));
    json_object_set_new(o, "type", json_string(type));
    json_object_set_new(o, "param", e->param[0] ? clean(e->param) : json_null());
    if (e->n_ctx > 0) {
        json_object_set_new(o, "n_prompt_tokens", json_integer(e->n_prompt));
        json_object_set_new(o, "n_ctx", json_integer(e->n_ctx));
    }
    if (e->state)
        json_object_set_new(o, "state", json_string(e->state));
    if (e->eta)
        json_object_set_new(o, "bounce_eta_s", json_real((double)e->retry_ms / 1000));
    json_t *top = json_object();
    if (json_object_set_new(top, "error", o)) {
        json_decref(top);
        return NULL;
    }
    return top;
}

/* Clients of the Messages API look for a type at the top, and for their own words when a prompt is too long. */
static void as_message(json_t *o, const struct api_err *e)
{
    json_object_set_new(o, "type", json_string("error"));
    if (e->n_ctx > 0)
        json_object_set_new(json_object_get(o, "error"), "message",
                            json_sprintf("prompt is too long: %lld tokens > %lld maximum; %s",
                                         (long long)e->n_prompt, (long long)e->n_ctx, e->message));
}

void api_error_reply(struct http_req *r, const struct api_err *e)
{
    if (e->status == 429 || e->status == 503) {
        char text[24];
        uint32_t ms = e->retry_ms ? e->retry_ms : 1000;
        uint32_t s = (ms + 999) / 1000;
        snprintf(text, sizeof text, "%u", s < 1 ? 1 : s > 600 ? 600 : s);
        http_set_header(r, "Retry-After", text);
        snprintf(text, sizeof text, "%u", ms > 600000 ? 600000 : ms);
        http_set_header(r, "retry-after-ms", text);
    }
    if (e->status == 401)
        http_set_header(r, "WWW-Authenticate", "Bearer");
    json_t *o = api_error_json(e);
    if (strncmp(http_path(r), "/v1/messages", 12) == 0)
        as_message(o, e);
    api_reply_json(r, (unsigned)e->status, o);
}

static void reply(struct http_req *r, unsigned status, char *text)
{
    if (!text) {
        static const char oom[] =
            "{\"error\":{\"code\":500,\"message\":\"out of memory\",\"type\":\"server_error\","
            "\"param\":null}}";
        status = 500;
        text = strdup(oom);
    }
    http_reply(r, status, media_type, text, text ? strlen(text) : 0);
}

void api_reply_json(struct http_req *r, unsigned status, json_t *v)
{
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(v);
    reply(r, status, text);
}

void api_reply_text(struct http_req *r, char *text)
{
    reply(r, 200, text);
}
