/* Requests: their framing in any pieces, and bodies from bytes to parameters. */
#include "../http/framing.h"
#include "body.h"
#include "messages_body.h"
#include "params.h"
#include "responses_body.h"

#include <stdlib.h>

static int one_id(void *arg, const char *text, size_t n, uint32_t **ids, size_t *n_ids)
{
    *ids = malloc(sizeof **ids);
    (*ids)[0] = 1;
    *n_ids = 1;
    return 0;
}

static void frame(const uint8_t *data, size_t n, size_t piece, struct framing *f)
{
    *f = (struct framing){0};
    for (size_t at = 0; at < n; at += piece)
        framing_feed(f, (const char *)data + at, n - at < piece ? n - at : piece);
    if (f->state == FRAMING_BAD && (f->status < 400 || !f->why))
        abort();
    framing_fini(f);
}

/* A request of another API becomes a chat request or is refused with a reason; what came stays as it was. */
static void convert(const json_t *body, json_t *(*to_chat)(const json_t *body, struct api_err *e))
{
    struct api_err e;
    json_t *before = json_deep_copy(body), *o = to_chat(body, &e);
    if (o ? !json_is_array(json_object_get(o, "messages")) : e.status < 400 || e.status > 599)
        abort();
    json_decref(o);
    if (!json_equal(body, before))
        abort();
    json_decref(before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct params_env env = {.n_vocab = 1000, .slots = 4, .tokenize = one_id};
    struct api_err e = {0};
    struct params p;
    struct framing whole, pieces;
    frame(data, n, n + 1, &whole);
    frame(data, n, 1 + n % 7, &pieces);
    if (whole.state != pieces.state || whole.heads != pieces.heads || whole.left != pieces.left)
        abort();
    json_t *body = body_parse((const char *)data, n, &e);
    if (body) {
        convert(body, messages_body);
        convert(body, responses_body);
    }
    if (body && params_parse(&p, body, &env, &e) == 0) {
        json_t *o = params_json(&p);
        if (!o || !(p.s.temperature >= 0) || !(p.s.top_p >= 0 && p.s.top_p <= 1) || p.n < 1 || p.n > 4 ||
            p.n_predict < -1)
            abort();
        json_decref(o);
        params_fini(&p);
    } else {
        if (e.status < 400 || e.status > 599)
            abort();
        json_t *o = api_error_json(&e);
        char *text = json_dumps(o, JSON_COMPACT);
        if (!text)
            abort();
        free(text);
        json_decref(o);
        if (body)
            params_fini(&p);
    }
    json_decref(body);
    return 0;
}
