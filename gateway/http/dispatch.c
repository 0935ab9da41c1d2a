#include "dispatch.h"

#include "../api/api.h"
#include "../proxy/proxy.h"
#include "cors.h"
#include "error.h"

#include <string.h>

enum { RETRY_WITHOUT_MODEL_MS = 30000 };
enum method { GET = 1, POST = 2 };
enum {
    PUBLIC = 1 /* no key */,
    LOCAL = 2 /* never waits for an engine */,
    VOCAB = 4 /* needs the model's file */
};

struct route {
    const char *path; /* a trailing * takes the rest as an argument */
    enum method method;
    unsigned flags;
    void (*fn)(struct gateway *gw, struct http_req *r);
    void (*fn_arg)(struct gateway *gw, struct http_req *r, const char *arg);
};

static const struct route routes[] = {
    {"/health", GET, PUBLIC | LOCAL, api_health, NULL},
    {"/v1/health", GET, PUBLIC | LOCAL, api_health, NULL},
    {"/v1/models", GET, PUBLIC | LOCAL, api_models, NULL},
    {"/models", GET, PUBLIC | LOCAL, api_models, NULL},
    {"/v1/models/*", GET, PUBLIC | LOCAL, NULL, api_model},
    {"/models/*", GET, PUBLIC | LOCAL, NULL, api_model},
    {"/metrics", GET, LOCAL, api_metrics, NULL},
    {"/props", GET, LOCAL | VOCAB, api_props, NULL},
    {"/props", POST, LOCAL, api_props_post, NULL},
    {"/v1/chat/completions", POST, VOCAB, api_chat, NULL},
    {"/chat/completions", POST, VOCAB, api_chat, NULL},
    {"/v1/chat/completions/input_tokens", POST, LOCAL | VOCAB, api_chat_count, NULL},
    {"/chat/completions/input_tokens", POST, LOCAL | VOCAB, api_chat_count, NULL},
    {"/v1/completions", POST, VOCAB, api_text, NULL},
    {"/completion", POST, VOCAB, api_native, NULL},
    {"/completions", POST, VOCAB, api_native, NULL},
    {"/tokenize", POST, LOCAL | VOCAB, api_tokenize, NULL},
    {"/detokenize", POST, LOCAL | VOCAB, api_detokenize, NULL},
    {"/apply-template", POST, LOCAL | VOCAB, api_apply_template, NULL},
    {"/slots", GET, 0, api_slots, NULL},
    {"/slots/*", POST, 0, NULL, api_slot_action},
    {"/embedding", POST, VOCAB, api_embedding, NULL},
    {"/embeddings", POST, VOCAB, api_embedding, NULL},
    {"/v1/embeddings", POST, VOCAB, api_embeddings, NULL},
    {"/lora-adapters", GET, LOCAL, api_lora, NULL},
    {"/lora-adapters", POST, LOCAL, api_unsupported, NULL},
    {"/infill", POST, VOCAB, api_infill, NULL},
    {"/rerank", POST, LOCAL, api_rerank, NULL},
    {"/reranking", POST, LOCAL, api_rerank, NULL},
    {"/v1/rerank", POST, LOCAL, api_rerank, NULL},
    {"/v1/reranking", POST, LOCAL, api_rerank, NULL},
    {"/v1/responses", POST, VOCAB, api_responses, NULL},
    {"/responses", POST, VOCAB, api_responses, NULL},
    {"/v1/responses/input_tokens", POST, LOCAL | VOCAB, api_responses_count, NULL},
    {"/v1/messages", POST, VOCAB, api_messages, NULL},
    {"/v1/messages/count_tokens", POST, LOCAL | VOCAB, api_messages_count, NULL},
};

enum { N_ROUTES = sizeof routes / sizeof routes[0] };
_Static_assert((int)N_ROUTES < (int)STATS_ENDPOINTS,
               "every route has a number of its own, 0 is for the rest");

const char *dispatch_endpoint(unsigned tag)
{
    return tag >= 1 && tag <= N_ROUTES ? routes[tag - 1].path : "other";
}

static bool fits(const char *pattern, const char *path, const char **arg)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] != '*') {
        *arg = NULL;
        return strcmp(pattern, path) == 0;
    }
    *arg = path + n - 1;
    return strncmp(pattern, path, n - 1) == 0 && path[n - 1];
}

static enum method method_of(const char *m)
{
    if (strcmp(m, "GET") == 0 || strcmp(m, "HEAD") == 0)
        return GET;
    return strcmp(m, "POST") == 0 ? POST : 0;
}

/* The route of a path and method; *known: methods that the path has. */
static const struct route *find(const struct http_req *r, const char **arg, unsigned *known)
{
    enum method m = method_of(http_method(r));
    *known = 0;
    for (unsigned i = 0; i < N_ROUTES; i++) {
        if (!fits(routes[i].path, http_path(r), arg))
            continue;
        *known |= routes[i].method;
        if (routes[i].method == m)
            return &routes[i];
    }
    return NULL;
}

/* Methods of one path share a number. */
static int number_of(const struct route *to)
{
    if (!to)
        return 0;
    int i = 0;
    while (strcmp(routes[i].path, to->path) != 0)
        i++;
    return i + 1;
}

static void not_found(struct http_req *r, unsigned known)
{
    struct api_err e;
    if (known) {
        http_set_header(r, "Allow",
                        known == GET    ? "GET, HEAD, OPTIONS"
                        : known == POST ? "POST, OPTIONS"
                                        : "GET, HEAD, POST, OPTIONS");
        api_fail(&e, 405, NULL, "Method Not Allowed");
    } else {
        api_fail(&e, 404, NULL, "File Not Found");
    }
    api_error_reply(r, &e);
}

static bool loading(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    bool leaving = gw->draining || gw->orphaned || gw->router.stopping;
    if (!leaving && !router_loading(&gw->router))
        return false;
    router_unavailable(&gw->router, &e);
    if (leaving)
        http_set_header(r, "Connection", "close");
    api_error_reply(r, &e);
    return true;
}

/* The gateway stands without a model too, so that clients hear why nothing is served. */
static bool lacks_model(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    if (gw->model.tok)
        return false;
    api_fail(&e, 503, NULL, "the model's file cannot be read; the log and vitriolctl status say why");
    e.retry_ms = RETRY_WITHOUT_MODEL_MS;
    api_error_reply(r, &e);
    return true;
}

static void on_head(void *arg, struct http_req *r)
{
    struct gateway *gw = arg;
    const char *cors = vt_config_str(gw->cfg, VT_CFG_HTTP_CORS_ORIGINS), *rest;
    unsigned known;
    const struct route *to = find(r, &rest, &known);
    http_set_tag(r, number_of(to));
    if (strcmp(http_method(r), "OPTIONS") == 0) {
        cors_preflight(r, cors);
        return;
    }
    cors_headers(r, cors);
    bool relayed = proxy_wanted(gw) && proxy_takes(http_path(r));
    if (!relayed && to && (to->flags & VOCAB) && lacks_model(gw, r))
        return;
    if ((relayed || !(to && (to->flags & LOCAL))) && loading(gw, r))
        return;
    /* What is relayed goes out with a key of our own: nothing of it is public. */
    if ((relayed || !(to && (to->flags & PUBLIC))) &&
        !auth_ok(gw->auth, http_get_header(r, "Authorization"), http_get_header(r, "X-Api-Key"))) {
        struct api_err e;
        api_fail(&e, 401, NULL, "Invalid API Key");
        api_error_reply(r, &e);
        return;
    }
    if (!to && !relayed)
        not_found(r, known);
}

static void on_request(void *arg, struct http_req *r)
{
    struct gateway *gw = arg;
    struct api_err e;
    const char *rest;
    unsigned known;
    size_t n;
    http_body(r, &n);
    if (n == SIZE_MAX) {
        api_fail(&e, 413, NULL, "the request body is larger than %lld MiB",
                 (long long)vt_config_int(gw->cfg, VT_CFG_HTTP_MAX_BODY_MIB));
        api_error_reply(r, &e);
        return;
    }
    const struct route *to = find(r, &rest, &known);
    if (proxy_wanted(gw) && proxy_takes(http_path(r)))
        proxy_start(gw, r);
    else if (!to)
        not_found(r, known);
    else if (to->fn)
        to->fn(gw, r);
    else
        to->fn_arg(gw, r, rest);
}

static void on_status(void *arg, struct http_req *r, unsigned status)
{
    stats_response(&((struct gateway *)arg)->stats, (unsigned)http_tag(r), status);
}

static char *malformed(void *arg, unsigned status, const char *why, size_t *len)
{
    struct gateway *gw = arg;
    struct api_err e;
    api_fail(&e, (int)status, NULL, "malformed HTTP request: %s", why);
    json_t *v = api_error_json(&e);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    *len = text ? strlen(text) : 0;
    stats_response(&gw->stats, 0, status);
    return text;
}

const struct http_ops dispatch_ops = {on_head, on_request, on_status, malformed};
