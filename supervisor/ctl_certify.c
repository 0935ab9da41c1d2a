/* vitriolctl certify: fills a slot through the door that clients use, and has vitriold keep how fast it was there. */
#include "vitriolctl.h"

#include "ctl_http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DECODED = 32, LEAST = 2 * DECODED, SILENCE_S = 120, PING_S = 10 };

struct measure {
    bool tell; /* progress, on a terminal */
    uint64_t prompt, decoded, resumes;
    bool ended, truncated;
    double decode, prompt_rate;
};

static void on_event(void *arg, const json_t *e)
{
    struct measure *m = arg;
    const json_t *p = json_object_get(e, "prompt_progress"), *t = json_object_get(e, "timings");
    if (p != NULL && m->tell)
        fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " tokens", client_num(p, "processed"),
                client_num(p, "total"));
    if (!json_is_true(json_object_get(e, "stop")))
        return;
    m->ended = true;
    m->truncated = json_is_true(json_object_get(e, "truncated"));
    m->prompt = client_num(t, "prompt_n");
    m->decoded = client_num(t, "predicted_n");
    m->resumes = client_num(t, "resumes");
    m->decode = json_number_value(json_object_get(t, "predicted_per_second"));
    m->prompt_rate = json_number_value(json_object_get(t, "prompt_per_second"));
}

/* Ids that repeat nothing and that no cache holds: what they mean is of no account to the time they take. */
static json_t *filling(uint64_t n, uint64_t n_vocab)
{
    json_t *ids = json_array();
    uint64_t x = (uint64_t)getpid();
    for (uint64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        json_array_append_new(ids, json_integer((json_int_t)((x >> 33) % n_vocab)));
    }
    return ids;
}

static uint64_t vocabulary(const struct call *c, const char *address, struct vt_err *err)
{
    json_t *models = http_get_json(address, "/v1/models", c->key_file, err);
    if (models == NULL)
        return 0;
    const json_t *meta = json_object_get(json_array_get(json_object_get(models, "data"), 0), "meta");
    uint64_t n = client_num(meta, "n_vocab");
    json_decref(models);
    if (n == 0)
        vt_fail(err, VT_E_UNAVAILABLE, "the vocabulary of what is served is not known here");
    return n;
}

static int measure(struct call *c, const char *address, uint64_t tokens, struct measure *m,
                   struct vt_err *err)
{
    uint64_t n_vocab = vocabulary(c, address, err);
    if (n_vocab == 0)
        return -1;
    json_t *body =
        json_pack("{s:o, s:i, s:b, s:b, s:i, s:b, s:b, s:i}", "prompt", filling(tokens - DECODED, n_vocab),
                  "n_predict", DECODED, "ignore_eos", 1, "cache_prompt", 0, "temperature", 0, "stream", 1,
                  "return_progress", 1, "sse_ping_interval", PING_S);
    int rc = http_post_events(address, "/completion", body, c->key_file, SILENCE_S, on_event, m, err);
    json_decref(body);
    if (m->tell)
        fputc('\n', stderr);
    if (rc < 0)
        return -1;
    if (!m->ended)
        return vt_fail(err, VT_E_UNAVAILABLE, "the answer broke off");
    if (m->resumes > 0)
        return vt_fail(err, VT_E_INTERNAL, "the engine did not survive it: nothing is certified");
    if (m->truncated || m->prompt + m->decoded < tokens)
        return vt_fail(err, VT_E_INTERNAL, "only %" PRIu64 " of %" PRIu64 " tokens were reached",
                       m->prompt + m->decoded, tokens);
    return 0;
}

static int keep(struct call *c, const char *fp, uint64_t tokens, const struct measure *m)
{
    struct vt_err err;
    json_t *r = client_call(&c->client, "certify",
                            json_pack("{s:I, s:s, s:I, s:I}", "decode_milli", (json_int_t)(m->decode * 1000),
                                      "fp", fp, "prompt_milli", (json_int_t)(m->prompt_rate * 1000), "tokens",
                                      (json_int_t)tokens),
                            NULL, &err);
    if (r == NULL)
        return call_fail(c, &err);
    json_decref(r);
    if (!c->json) {
        printf("certified %" PRIu64 " tokens deep: %.1f tokens/s there, %.1f on the way\n", tokens, m->decode,
               m->prompt_rate);
        return VT_EX_OK;
    }
    json_t *out = json_pack("{s:I, s:f, s:f, s:s}", "tokens", (json_int_t)tokens, "decode_per_second",
                            m->decode, "prompt_per_second", m->prompt_rate, "fp", fp);
    call_print(out);
    json_decref(out);
    return VT_EX_OK;
}

int cmd_certify(struct call *c)
{
    struct vt_err err;
    struct measure m = {.tell = isatty(STDERR_FILENO) && !c->json};
    uint64_t tokens = 0;
    if (c->n_args > 0 && (!call_number(c->arg[0], &tokens) || tokens < LEAST))
        return call_misused(c,
                            "certify takes a depth of at least 64 tokens, or nothing for the whole window");
    json_t *st = client_call(&c->client, "status", NULL, NULL, &err);
    if (st == NULL)
        return call_fail(c, &err);
    uint64_t window = client_num(st, "window");
    if (tokens == 0)
        tokens = window;
    int rc;
    if (strcmp(client_str(st, "state"), "ready") != 0)
        rc = vt_fail(&err, VT_E_NO_ENGINE, "it is %s; only what serves can be certified",
                     client_str(st, "state"));
    else if (tokens > window)
        rc = vt_fail(&err, VT_E_USAGE, "a slot holds %" PRIu64 " tokens", window);
    else
        rc = measure(c, client_str(st, "address"), tokens, &m, &err);
    rc = rc < 0 ? call_fail(c, &err) : keep(c, client_str(st, "fp"), tokens, &m);
    json_decref(st);
    return rc;
}
