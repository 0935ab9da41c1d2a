#include "proxy.h"

#include "../http/sse.h"
#include "../route/router_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CREDIT = 1 << 20, PART = 1 << 20, REPLY_MAX = 64 << 20, TAIL = 16 };

enum state { WAITING, SENDING, SENT, STREAMING };

struct relayed {
    struct gateway *gw;
    struct http_req *http;
    enum state state;
    char method[8], target[VT_PROXY_PATH_MAX];
    bool done_due; /* its streams end with [DONE] */
    char *body;    /* owned; gone once an answer begins */
    size_t n_body, sent;
    struct vt_link *link;
    uint64_t handle, created_us, not_before;
    unsigned status;
    char type[128];
    struct buf reply;    /* of an answer that is no stream */
    char tail[TAIL + 1]; /* last bytes of a stream */
    uint64_t owed;       /* bytes that the client took and no credit was given for */
    struct relayed *prev, *next;
};

bool proxy_wanted(const struct gateway *gw)
{
    return vt_config_str(gw->cfg, VT_CFG_ENGINE_KIND)[0] == 'e';
}

bool proxy_takes(const char *path)
{
    static const char *const exact[] = {"/chat/completions", "/completions",    "/completion", "/tokenize",
                                        "/detokenize",       "/apply-template", "/embedding",  "/embeddings",
                                        "/rerank",           "/infill"};
    if (strcmp(path, "/v1/models") == 0 || strcmp(path, "/v1/health") == 0)
        return false;
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        if (strcmp(path, exact[i]) == 0)
            return true;
    return strncmp(path, "/v1/", 4) == 0;
}

static int hex(char c)
{
    if (!isxdigit((unsigned char)c))
        return -1;
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

/* One layer of %XX; false: there was a NUL below it. */
static bool decode(char *s)
{
    char *to = s;
    for (const char *p = s; *p; p++) {
        int high = *p == '%' ? hex(p[1]) : -1, low = high >= 0 ? hex(p[2]) : -1;
        if (low >= 0)
            p += 2;
        *to = low >= 0 ? (char)(16 * high + low) : *p;
        if (!*to++)
            return false;
    }
    *to = '\0';
    return true;
}

static bool climbs(const char *path)
{
    for (const char *p = path; *p; p += *p != '\0') {
        size_t n = strcspn(p, "/\\");
        if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return true;
        p += n;
    }
    return false;
}

bool proxy_path_safe(const char *target)
{
    char path[VT_PROXY_PATH_MAX];
    size_t n = strcspn(target, "?");
    if (target[0] != '/' || n >= sizeof path || strchr(target, '#'))
        return false;
    snprintf(path, sizeof path, "%.*s", (int)n, target);
    /* twice: some servers decode what proxies before them have left */
    return !climbs(path) && decode(path) && !climbs(path) && decode(path) && !climbs(path);
}

unsigned proxy_open(const struct gateway *gw)
{
    unsigned n = 0;
    for (const struct relayed *p = gw->relayed; p; p = p->next)
        n++;
    return n;
}

static void drop(struct relayed *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        p->gw->relayed = p->next;
    if (p->next)
        p->next->prev = p->prev;
    free(p->body);
    buf_fini(&p->reply);
    free(p);
}

/* ---- ends ---- */

static bool at_event_end(const struct relayed *p)
{
    size_t n = strlen(p->tail);
    return n >= 2 && strcmp(p->tail + n - 2, "\n\n") == 0;
}

static void end_badly(struct relayed *p, const struct api_err *e)
{
    struct buf out = {0};
    json_t *v = api_error_json(e);
    if (p->tail[0] && !at_event_end(p))
        buf_add(&out, "\n\n", 2); /* the event that was cut */
    sse_json(&out, NULL, v);
    sse_text(&out, "[DONE]");
    json_decref(v);
    if (out.failed)
        http_abort(p->http);
    else
        http_write(p->http, out.p, out.n);
    buf_fini(&out);
    http_end(p->http);
}

static void fail(struct relayed *p, const struct api_err *e)
{
    if (p->state == STREAMING)
        end_badly(p, e);
    else
        api_error_reply(p->http, e);
    drop(p);
}

static void fail_interrupted(struct relayed *p, const char *why)
{
    struct api_err e;
    api_fail(&e, 503, NULL, "the request was interrupted: %s", why);
    e.retry_ms = router_retry_ms(&p->gw->router);
    p->gw->router.interrupted_total++;
    fail(p, &e);
}

/* ---- to the engine ---- */

static void send_parts(struct relayed *p)
{
    while (p->state == SENDING) {
        size_t n = p->n_body - p->sent < PART ? p->n_body - p->sent : PART;
        bool first = p->sent == 0, more = p->sent + n < p->n_body;
        struct vt_enc *e = vt_link_begin(p->link, first ? VT_F_PROXY : VT_F_PROXY_MORE, p->handle);
        if (first) {
            vt_enc_str(e, VT_PROXY_METHOD, p->method);
            vt_enc_str(e, VT_PROXY_PATH, p->target);
            if (n > 0)
                vt_enc_bin(e, VT_PROXY_BODY, p->body, n);
            vt_enc_u64(e, VT_PROXY_MORE, more);
            vt_enc_u64(e, VT_PROXY_CREDIT, CREDIT);
        } else {
            vt_enc_bin(e, VT_PROXY_MORE_BODY, p->body + p->sent, n);
            vt_enc_u64(e, VT_PROXY_MORE_MORE, more);
        }
        if (vt_link_send(p->link, NULL) < 0)
            return; /* the queue is full: the next pump */
        p->sent += n;
        if (!more) {
            p->state = SENT;
        }
    }
}

static void give_credit(struct relayed *p, uint64_t n)
{
    p->owed += n;
    if (p->owed < CREDIT / 4 || !p->link)
        return;
    vt_enc_u64(vt_link_begin(p->link, VT_F_CREDIT, p->handle), VT_CREDIT_ADD, p->owed);
    if (vt_link_send(p->link, NULL) == 0)
        p->owed = 0;
}

static void on_gone(void *arg)
{
    struct relayed *p = arg;
    struct router *r = &p->gw->router;
    struct vt_link *l = p->link;
    uint64_t handle = p->handle;
    drop(p); /* first: a cancel that cannot be sent ends the link with all that is on it */
    if (l)
        router_send_cancel(r, l, handle, 1);
}

static void on_drained(void *arg)
{
    struct relayed *p = arg;
    if (p->state == STREAMING)
        give_credit(p, 0);
}

/* The APIs that promise it; those of others end as they end. */
static bool ends_with_done(const char *path)
{
    return strcmp(path, "/v1/chat/completions") == 0 || strcmp(path, "/chat/completions") == 0 ||
           strcmp(path, "/v1/completions") == 0;
}

void proxy_start(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    struct relayed *p = NULL;
    const char *target = http_target(r);
    if (!target)
        api_fail(&e, 500, NULL, "out of memory");
    else if (strlen(target) >= VT_PROXY_PATH_MAX)
        api_fail(&e, 414, NULL, "the request's target is longer than %d bytes", VT_PROXY_PATH_MAX - 1);
    else if (!proxy_path_safe(target))
        api_fail(&e, 400, NULL, "the request's path has a segment . or .., or a byte that no path has");
    else if (router_admit(&gw->router, 1 + proxy_open(gw), &e) == 0 && (p = calloc(1, sizeof *p)) == NULL)
        api_fail(&e, 500, NULL, "out of memory");
    if (!p) {
        api_error_reply(r, &e);
        return;
    }
    *p = (struct relayed){.gw = gw, .http = r, .created_us = vt_mono(&gw->clock), .next = gw->relayed};
    snprintf(p->method, sizeof p->method, "%s", http_method(r));
    snprintf(p->target, sizeof p->target, "%s", target);
    p->done_due = ends_with_done(http_path(r)) && strcmp(p->method, "POST") == 0;
    p->body = http_take_body(r, &p->n_body);
    if (p->next)
        p->next->prev = p;
    gw->relayed = p;
    http_claim(r, &(struct http_claim){.gone = on_gone, .drained = on_drained, .arg = p});
    proxy_pump(gw);
}

void proxy_pump(struct gateway *gw)
{
    const struct engine *e = router_ready(&gw->router);
    uint64_t now = vt_mono(&gw->clock);
    struct relayed *next;
    for (struct relayed *p = gw->relayed; p; p = next) {
        next = p->next;
        if (p->state == WAITING && e && now >= p->not_before) {
            p->link = e->link;
            p->handle = gw->router.next_handle++;
            p->state = SENDING;
        }
        if (p->state == SENDING)
            send_parts(p);
        else if (p->state == WAITING && now - p->created_us > VT_SEC(gw->router.rules.hold_s)) {
            struct api_err why;
            router_unavailable(&gw->router, &why);
            fail(p, &why);
        } else if (p->state == STREAMING && p->owed > 0 && http_pending(p->http) == 0)
            give_credit(p, 0);
    }
}

/* ---- from the engine ---- */

static struct relayed *find(struct gateway *gw, const struct vt_link *l, uint64_t id)
{
    for (struct relayed *p = gw->relayed; p; p = p->next)
        if (p->link == l && p->handle == id)
            return p;
    return NULL;
}

static void on_head(struct relayed *p, const struct vt_frame *f)
{
    p->status = (unsigned)vt_frame_u64(f, VT_PROXY_HEAD_STATUS, 502);
    vt_frame_str(f, VT_PROXY_HEAD_TYPE, p->type, sizeof p->type);
    free(p->body);
    p->body = NULL;
    if (p->status != 200 || strncmp(p->type, "text/event-stream", 17) != 0)
        return;
    p->state = STREAMING;
    http_stream(p->http, "text/event-stream");
}

static void keep_tail(struct relayed *p, const char *bytes, size_t n)
{
    char both[2 * TAIL + 1];
    size_t take = n < TAIL ? n : TAIL;
    int have = snprintf(both, sizeof both, "%s", p->tail);
    memcpy(both + have, bytes + n - take, take);
    size_t total = (size_t)have + take, from = total > TAIL ? total - TAIL : 0;
    for (size_t i = from; i < total; i++)
        p->tail[i - from] = both[i] ? both[i] : ' ';
    p->tail[total - from] = '\0';
}

static void fail_too_large(struct relayed *p)
{
    struct api_err e;
    struct router *r = &p->gw->router;
    struct vt_link *l = p->link;
    uint64_t handle = p->handle;
    api_fail(&e, 502, NULL,
             "the server's answer is larger than %d MiB, or than there is memory for; a stream may be",
             REPLY_MAX >> 20);
    fail(p, &e);
    router_send_cancel(r, l, handle, 4);
}

static void on_data(struct relayed *p, const struct vt_frame *f)
{
    size_t n = 0;
    const char *bytes = (const char *)vt_frame_bin(f, VT_PROXY_DATA_BYTES, &n);
    if (!bytes || n == 0)
        return;
    if (p->state == STREAMING) {
        keep_tail(p, bytes, n);
        http_write(p->http, bytes, n);
        p->owed += n; /* given when the client has taken it */
        return;
    }
    bool fits = n <= REPLY_MAX - p->reply.n;
    if (fits)
        buf_add(&p->reply, bytes, n);
    if (!fits || p->reply.failed)
        fail_too_large(p);
    else
        give_credit(p, n);
}

static void on_end(struct relayed *p, const struct vt_frame *f)
{
    char why[200];
    bool ok = vt_frame_u64(f, VT_PROXY_END_OK, 0) != 0;
    uint64_t code = vt_frame_u64(f, VT_KEY_CODE, 0);
    if (!ok && p->status == 0 && (code == VT_E_BOUNCING || code == VT_E_DRAINING)) {
        p->state = WAITING; /* nobody has seen it */
        p->link = NULL;
        p->sent = 0;
        p->not_before = vt_mono(&p->gw->clock) + VT_MS(200);
    } else if (!ok) {
        vt_frame_str(f, VT_KEY_TEXT, why, sizeof why);
        p->link = NULL;
        fail_interrupted(p, why[0] ? why : "the server broke off");
    } else if (p->state == STREAMING && p->done_due && !strstr(p->tail, "[DONE]")) {
        p->link = NULL;
        fail_interrupted(p, "the server's stream ended without its end");
    } else if (p->state == STREAMING) {
        http_end(p->http);
        drop(p);
    } else {
        char *text = p->reply.p;
        size_t n = p->reply.n;
        p->reply = (struct buf){0};
        http_reply(p->http, p->status ? p->status : 502, p->type, text, n);
        drop(p);
    }
}

void proxy_frame(struct gateway *gw, const struct vt_link *l, const struct vt_frame *f)
{
    struct relayed *p = find(gw, l, f->id);
    if (!p)
        return;
    switch (f->type) {
    case VT_F_PROXY_HEAD: on_head(p, f); break;
    case VT_F_PROXY_DATA: on_data(p, f); break;
    case VT_F_PROXY_END: on_end(p, f); break;
    default: break;
    }
}

void proxy_link_down(struct gateway *gw, const struct vt_link *l)
{
    struct relayed *next;
    for (struct relayed *p = gw->relayed; p; p = next) {
        next = p->next;
        if (p->link != l)
            continue;
        p->link = NULL;
        fail_interrupted(p, "the engine has ended");
    }
}

void proxy_fail_all(struct gateway *gw, const char *why)
{
    struct relayed *p;
    while ((p = gw->relayed)) {
        struct vt_link *l = p->link;
        uint64_t handle = p->handle;
        p->link = NULL;
        fail_interrupted(p, why);
        if (l)
            router_send_cancel(&gw->router, l, handle, 3);
    }
}
