#include "relay.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_MAX  (64u << 20)
#define ASKED_MAX (1u << 20) /* of an answer to a question of our own */

struct one {
    struct relay *r;
    struct vt_link *link;
    uint64_t id, credit;
    char method[8], path[VT_PROXY_PATH_MAX];
    char *body;
    size_t n_body;
    struct transfer *t; /* NULL: the body is still coming */
    bool paused;
    struct one *next;
};

/* A question of our own: its answer is read whole. */
struct asked {
    struct relay *r;
    struct transfer *t;
    unsigned status;
    char *text;
    size_t n;
    void (*answered)(struct asked *q, const struct vt_err *err);
};

enum step_of_decode { NAME, TEXT, CHAT };

struct relay {
    struct http *h;
    char model[128], metrics[256];
    bool model_given, closed, chat;
    unsigned timeout_s;
    uint64_t counted; /* steps that were no bytes */
    double gauge;
    struct one *first;
    struct asked decode, counters;
    enum step_of_decode step;
    void (*done)(void *arg, const struct vt_err *err);
    void *done_arg;
};

int relay_new(struct relay **out, struct http *h, const char *model, const char *metrics, unsigned timeout_s,
              struct vt_err *err)
{
    struct relay *r = calloc(1, sizeof *r);
    if (r == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    r->h = h;
    r->timeout_s = timeout_s;
    r->model_given = model[0] != '\0';
    snprintf(r->model, sizeof r->model, "%s", model);
    snprintf(r->metrics, sizeof r->metrics, "%s", metrics);
    r->decode.r = r->counters.r = r;
    *out = r;
    return 0;
}

static void drop(struct one *o)
{
    struct one **p = &o->r->first;
    while (*p != o)
        p = &(*p)->next;
    *p = o->next;
    free(o->body);
    free(o);
}

void relay_free(struct relay *r)
{
    if (r == NULL)
        return;
    while (r->first != NULL) {
        if (r->first->t != NULL)
            http_cancel(r->first->t);
        drop(r->first);
    }
    struct asked *own[] = {&r->decode, &r->counters};
    for (int i = 0; i < 2; i++) {
        if (own[i]->t != NULL)
            http_cancel(own[i]->t);
        free(own[i]->text);
    }
    free(r);
}

uint64_t relay_steps(const struct relay *r)
{
    return r->counted + http_bytes(r->h);
}

unsigned relay_in_flight(const struct relay *r)
{
    unsigned n = 0;
    for (const struct one *o = r->first; o != NULL; o = o->next)
        n += o->t != NULL;
    return n;
}

const char *relay_model(const struct relay *r)
{
    return r->model[0] != '\0' ? r->model : "external";
}

/* ---- requests of the gateway ---- */

static void say_end(struct one *o, const struct vt_err *err)
{
    struct vt_enc *e = vt_link_begin(o->link, VT_F_PROXY_END, o->id);
    vt_enc_u64(e, VT_PROXY_END_OK, err == NULL);
    if (err != NULL)
        vt_enc_err(e, err);
    vt_link_post(o->link, NULL);
}

static void on_head(void *arg, unsigned status, const char *type)
{
    struct one *o = arg;
    struct vt_enc *e = vt_link_begin(o->link, VT_F_PROXY_HEAD, o->id);
    vt_enc_u64(e, VT_PROXY_HEAD_STATUS, status);
    vt_enc_str(e, VT_PROXY_HEAD_TYPE, type);
    vt_link_post(o->link, NULL);
}

static bool on_data(void *arg, const char *p, size_t n)
{
    struct one *o = arg;
    o->paused = true;
    if (o->credit < n)
        return false;
    vt_enc_bin(vt_link_begin(o->link, VT_F_PROXY_DATA, o->id), VT_PROXY_DATA_BYTES, p, n);
    if (vt_link_send(o->link, NULL) < 0)
        return false; /* the queue is full: relay_tick */
    o->credit -= n;
    o->paused = false;
    return true;
}

static void on_end(void *arg, const struct vt_err *err)
{
    struct one *o = arg;
    say_end(o, err);
    drop(o);
}

static const struct transfer_ops proxied = {on_head, on_data, on_end};

static void refuse(struct relay *r, struct vt_link *l, uint64_t id, int code, const char *text)
{
    struct one o = {.r = r, .link = l, .id = id};
    struct vt_err err;
    vt_fail(&err, code, "%s", text);
    say_end(&o, &err);
}

static struct one *find(struct relay *r, const struct vt_link *l, uint64_t id)
{
    for (struct one *o = r->first; o != NULL; o = o->next) {
        if (o->link == l && o->id == id)
            return o;
    }
    return NULL;
}

static void forward(struct one *o)
{
    struct vt_err err;
    struct transfer_req q = {
        .method = o->method, .path = o->path, .body = o->body, .n_body = o->n_body, .counts = true};
    o->body = NULL;
    if (http_start(o->r->h, &o->t, &q, &proxied, o, &err) == 0)
        return;
    say_end(o, &err);
    drop(o);
}

/* Adds a part of a body and begins with the last one. */
static void take_body(struct one *o, const void *p, size_t n, bool more)
{
    if (n > BODY_MAX - o->n_body) {
        refuse(o->r, o->link, o->id, VT_E_TOO_LARGE, "the request is too large");
        drop(o);
        return;
    }
    char *grown = n > 0 ? realloc(o->body, o->n_body + n) : o->body;
    if (n > 0 && grown == NULL) {
        refuse(o->r, o->link, o->id, VT_E_NOMEM, "out of memory");
        drop(o);
        return;
    }
    if (n > 0)
        memcpy(grown + o->n_body, p, n);
    o->body = grown;
    o->n_body += n;
    if (!more)
        forward(o);
}

static void begin(struct relay *r, struct vt_link *l, const struct vt_frame *f)
{
    size_t n = 0;
    struct one *o = r->closed ? NULL : calloc(1, sizeof *o);
    if (o == NULL) {
        refuse(r, l, f->id, r->closed ? VT_E_DRAINING : VT_E_NOMEM,
               r->closed ? "the engine is ending its work" : "out of memory");
        return;
    }
    *o = (struct one){
        .r = r, .link = l, .id = f->id, .credit = vt_frame_u64(f, VT_PROXY_CREDIT, 0), .next = r->first};
    r->first = o;
    vt_frame_str(f, VT_PROXY_METHOD, o->method, sizeof o->method);
    vt_frame_str(f, VT_PROXY_PATH, o->path, sizeof o->path);
    const uint8_t *p = vt_frame_bin(f, VT_PROXY_BODY, &n);
    take_body(o, p, p != NULL ? n : 0, vt_frame_u64(f, VT_PROXY_MORE, 0) != 0);
}

void relay_frame(struct relay *r, struct vt_link *l, const struct vt_frame *f)
{
    struct one *o = find(r, l, f->id);
    size_t n = 0;
    const uint8_t *p;
    switch (f->type) {
    case VT_F_PROXY:
        if (o == NULL)
            begin(r, l, f);
        break;
    case VT_F_PROXY_MORE:
        p = vt_frame_bin(f, VT_PROXY_MORE_BODY, &n);
        if (o != NULL && o->t == NULL)
            take_body(o, p, p != NULL ? n : 0, vt_frame_u64(f, VT_PROXY_MORE_MORE, 0) != 0);
        break;
    case VT_F_CREDIT:
        if (o != NULL) {
            o->credit += vt_frame_u64(f, VT_CREDIT_ADD, 0);
            if (o->paused && o->t != NULL)
                http_continue(o->t);
        }
        break;
    case VT_F_CANCEL:
        if (o != NULL) {
            if (o->t != NULL)
                http_cancel(o->t);
            drop(o);
        }
        break;
    case VT_F_SUBMIT: {
        struct vt_err err;
        struct vt_enc *e = vt_link_begin(l, VT_F_REFUSED, f->id);
        vt_fail(&err, VT_E_CAPABILITY, "an external engine takes whole requests, not tokens");
        vt_enc_err(e, &err);
        vt_link_post(l, NULL);
        break;
    }
    default: break;
    }
}

void relay_link_down(struct relay *r, struct vt_link *l)
{
    struct one *next;
    for (struct one *o = r->first; o != NULL; o = next) {
        next = o->next;
        if (o->link != l)
            continue;
        if (o->t != NULL)
            http_cancel(o->t);
        drop(o);
    }
}

void relay_close(struct relay *r)
{
    r->closed = true;
}

void relay_fail_all(struct relay *r, const char *why)
{
    while (r->first != NULL) {
        struct one *o = r->first;
        struct vt_err err;
        vt_fail(&err, VT_E_INTERRUPTED, "%s", why);
        if (o->t != NULL)
            http_cancel(o->t);
        say_end(o, &err);
        drop(o);
    }
}

void relay_tick(struct relay *r)
{
    for (struct one *o = r->first; o != NULL; o = o->next) {
        if (o->paused && o->t != NULL && o->credit > 0)
            http_continue(o->t);
    }
}

/* ---- questions of our own ---- */

static void asked_head(void *arg, unsigned status, const char *type)
{
    ((struct asked *)arg)->status = status;
}

static bool asked_data(void *arg, const char *p, size_t n)
{
    struct asked *q = arg;
    size_t take = q->n + n <= ASKED_MAX ? n : ASKED_MAX - q->n;
    char *grown = realloc(q->text, q->n + take + 1);
    if (grown == NULL)
        return true; /* what is lost makes the answer unreadable, which is told */
    memcpy(grown + q->n, p, take);
    q->text = grown;
    q->n += take;
    q->text[q->n] = '\0';
    return true;
}

static void asked_end(void *arg, const struct vt_err *err)
{
    struct asked *q = arg;
    q->t = NULL;
    q->answered(q, err);
}

static const struct transfer_ops own = {asked_head, asked_data, asked_end};

static int ask(struct asked *q, const char *method, const char *path, char *body,
               void (*answered)(struct asked *q, const struct vt_err *err), struct vt_err *err)
{
    struct transfer_req req = {.method = method,
                               .path = path,
                               .body = body,
                               .n_body = body != NULL ? strlen(body) : 0,
                               .timeout_s = q->r->timeout_s};
    free(q->text);
    q->text = NULL;
    q->n = 0;
    q->status = 0;
    q->answered = answered;
    return http_start(q->r->h, &q->t, &req, &own, q, err);
}

static void decoded(struct relay *r, const struct vt_err *err)
{
    void (*done)(void *arg, const struct vt_err *e) = r->done;
    r->done = NULL;
    r->counted += err == NULL;
    done(r->done_arg, err);
}

/* An answer with a choice in it: something was decoded. */
static int has_choice(const struct asked *q, struct vt_err *err)
{
    json_t *v = json_loads(q->text != NULL ? q->text : "", 0, NULL);
    json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
    bool ok = q->status == 200 && choice != NULL &&
              (json_is_string(json_object_get(choice, "text")) ||
               json_is_object(json_object_get(choice, "message")));
    json_decref(v);
    return ok ? 0
              : vt_fail(err, VT_E_UNAVAILABLE, "status %u, and no choice in \"%.120s\"", q->status,
                        q->text != NULL ? q->text : "");
}

static void next_step(struct relay *r);

static void on_text(struct asked *q, const struct vt_err *err)
{
    struct relay *r = q->r;
    struct vt_err why;
    if (err == NULL && (q->status == 404 || q->status == 405) && r->step == TEXT) {
        r->chat = true; /* it has no plain completions */
        r->step = CHAT;
        next_step(r);
        return;
    }
    if (err == NULL && has_choice(q, &why) == 0)
        decoded(r, NULL);
    else
        decoded(r, err != NULL ? err : &why);
}

static void on_name(struct asked *q, const struct vt_err *err)
{
    struct relay *r = q->r;
    if (err != NULL) {
        decoded(r, err);
        return;
    }
    json_t *v = json_loads(q->text != NULL ? q->text : "", 0, NULL);
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(v, "data"), 0), "id"));
    if (id != NULL && !r->model_given)
        snprintf(r->model, sizeof r->model, "%s", id);
    json_decref(v);
    r->step = r->chat ? CHAT : TEXT;
    next_step(r);
}

static void next_step(struct relay *r)
{
    struct vt_err err;
    json_t *v = NULL;
    int rc;
    if (r->step == TEXT)
        v = json_pack("{s:s, s:s, s:i, s:i}", "model", r->model, "prompt", "1, 2, 3,", "max_tokens", 1,
                      "temperature", 0);
    else if (r->step == CHAT)
        v = json_pack("{s:s, s:[{s:s, s:s}], s:i, s:i}", "model", r->model, "messages", "role", "user",
                      "content", "Hi", "max_tokens", 1, "temperature", 0);
    if (r->step == NAME)
        rc = ask(&r->decode, "GET", "/v1/models", NULL, on_name, &err);
    else
        rc = ask(&r->decode, "POST", r->step == TEXT ? "/v1/completions" : "/v1/chat/completions",
                 json_dumps(v, JSON_COMPACT), on_text, &err);
    json_decref(v);
    if (rc < 0)
        decoded(r, &err);
}

int relay_decode(struct relay *r, void (*done)(void *arg, const struct vt_err *err), void *arg)
{
    if (r->done != NULL)
        return -1;
    r->done = done;
    r->done_arg = arg;
    r->step = NAME;
    next_step(r);
    return 0;
}

/* ---- counters ---- */

/* The sum of every series whose name speaks of tokens. */
static double tokens_in(const char *text)
{
    double sum = 0;
    while (text != NULL && *text != '\0') {
        size_t n = strcspn(text, "\n");
        const char *space = memrchr(text, ' ', n);
        size_t name = strcspn(text, "{ ");
        if (*text != '#' && space != NULL && memmem(text, name, "token", 5) != NULL)
            sum += strtod(space + 1, NULL);
        text += n + (text[n] == '\n');
    }
    return sum;
}

static void on_counters(struct asked *q, const struct vt_err *err)
{
    if (err != NULL || q->status != 200)
        return;
    double now = tokens_in(q->text);
    q->r->counted += now > q->r->gauge; /* less: another process counts */
    q->r->gauge = now;
}

void relay_gauge(struct relay *r)
{
    if (r->metrics[0] != '\0' && r->counters.t == NULL)
        ask(&r->counters, "GET", r->metrics, NULL, on_counters, NULL);
}
