/* POST /v1/embeddings and /embedding: every input is a job that pools; a few of them run at a time, so that a long list takes
 * neither the queue nor the slots from others. */
#include "api.h"
#include "scribe.h"
#include "vectors.h"

#include <stdlib.h>
#include <string.h>

enum {
    INPUTS = 2048,         /* of one request */
    ROW_FLOATS = 2 << 20,  /* numbers of one answer that holds a vector of each id */
    ALL_FLOATS = 16 << 20, /* numbers of any answer */
    AT_ONCE = 8,
};
enum pool { POOL_NONE = 1, POOL_MEAN, POOL_FIRST, POOL_LAST }; /* as in SUBMIT */

struct input {
    struct answer_prompt prompt;
    struct buf text; /* of its embedding, when it is whole */
};

struct embedding {
    struct gateway *gw;
    struct http_req *http;
    bool native, base64;
    int norm;
    enum pool pool;
    struct input *inputs;
    unsigned n_inputs, next, n_over;
    uint64_t tokens, floats, start_us;
    struct work {
        struct embedding *m;
        struct input *of;
        struct job job;
        float *v; /* [rows][dim] */
        size_t rows, dim, got;
    } works[AT_ONCE];
};

/* ---- what is asked ---- */

static int own_fields(const json_t *body, const struct model *m, bool native, json_t **out, struct api_err *e)
{
    const char *format = NULL;
    int64_t norm = 2, dimensions = (int64_t)m->n_embd;
    if (field_str(body, "encoding_format", &format, e) < 0 ||
        field_int(body, "embd_normalize", -1, 64, &norm, e) < 0 ||
        field_int(body, "dimensions", 1, INT32_MAX, &dimensions, e) < 0)
        return -1;
    if (format && strcmp(format, "float") != 0 && strcmp(format, "base64") != 0)
        return api_fail(e, 400, "encoding_format", "Field 'encoding_format': must be float or base64");
    if (dimensions != (int64_t)m->n_embd)
        return api_fail(
            e, 400, "dimensions",
            "Field 'dimensions': this model's embeddings have %llu numbers, and nothing says that "
            "they may be cut",
            (unsigned long long)m->n_embd);
    *out = json_pack("{s:b, s:b, s:I}", "native", native, "base64", format && strcmp(format, "base64") == 0,
                     "norm", (json_int_t)norm);
    return *out ? 0 : api_fail(e, 500, NULL, "out of memory");
}

static int check_input(const struct draft *d, const struct answer_prompt *p, const char *param,
                       struct api_err *e)
{
    const uint32_t vocab = tok_n_vocab(d->model->tok);
    if (p->n == 0)
        return api_fail(e, 400, param, "Field '%s': an input is empty", param);
    if (p->n >= d->window)
        return api_fail_window(e, param, (int64_t)p->n, d->window);
    for (size_t i = 0; i < p->n; i++)
        if (p->ids[i] >= vocab)
            return api_fail(e, 400, param, "token id %u is outside the vocabulary (0 to %u)", p->ids[i],
                            vocab - 1);
    return 0;
}

static int draft_inputs(struct draft *d, bool native, struct api_err *e)
{
    const bool content = !field(d->body, "input") && field(d->body, "content");
    const char *param = content ? "content" : "input";
    if (own_fields(d->body, d->model, native || content, &d->o.extra, e) ||
        draft_prompts(d, param, false, INPUTS, e))
        return -1;
    for (unsigned i = 0; i < d->n_prompts; i++)
        if (check_input(d, &d->prompts[i], param, e))
            return -1;
    return 0;
}

static int draft_openai(struct draft *d, struct api_err *e)
{
    return draft_inputs(d, false, e);
}

static int draft_native(struct draft *d, struct api_err *e)
{
    return draft_inputs(d, true, e);
}

/* ---- ends ---- */

static void work_end(struct work *w)
{
    job_cancel(&w->job);
    transcript_fini(&w->job.tr);
    free(w->v);
    *w = (struct work){.m = w->m};
}

static void embedding_free(struct embedding *m)
{
    for (unsigned i = 0; i < AT_ONCE; i++)
        work_end(&m->works[i]);
    for (unsigned i = 0; i < m->n_inputs; i++) {
        free(m->inputs[i].prompt.ids);
        buf_fini(&m->inputs[i].text);
    }
    free(m->inputs);
    free(m);
}

static void on_gone(void *arg)
{
    struct embedding *m = arg;
    m->gw->stats.ended[END_CANCELLED]++;
    embedding_free(m);
}

static void embedding_fail(struct embedding *m, const struct api_err *e)
{
    struct http_req *http = m->http;
    m->gw->stats.ended[e->status == 400 || e->status == 429 ? END_REJECTED : END_ERROR]++;
    api_error_reply(http, e);
    embedding_free(m);
}

static void put_number(struct buf *b, const char *before, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    buf_puts(b, before);
    buf_puts(b, text);
}

static void put_data(struct buf *b, const struct embedding *m)
{
    for (unsigned i = 0; i < m->n_inputs; i++) {
        const struct buf *text = &m->inputs[i].text;
        buf_puts(b, i > 0 ? "," : "");
        put_number(b, m->native ? "{\"index\":" : "{\"object\":\"embedding\",\"index\":", i);
        buf_puts(b, ",\"embedding\":");
        buf_add(b, text->p, text->n);
        buf_puts(b, "}");
        b->failed |= text->failed;
    }
}

static void reply(struct embedding *m)
{
    struct buf b = {0};
    size_t n;
    json_t *name = json_string(m->gw->model.alias);
    char *alias = json_dumps(name, JSON_ENCODE_ANY);
    buf_puts(&b, m->native ? "[" : "{\"object\":\"list\",\"data\":[");
    put_data(&b, m);
    buf_puts(&b, "]");
    if (!m->native) {
        buf_puts(&b, ",\"model\":");
        buf_puts(&b, alias ? alias : "null");
        put_number(&b, ",\"usage\":{\"prompt_tokens\":", m->tokens);
        put_number(&b, ",\"total_tokens\":", m->tokens);
        buf_puts(&b, "}}");
    }
    free(alias);
    json_decref(name);
    api_reply_text(m->http, buf_take(&b, &n));
}

static void embedding_end(struct embedding *m)
{
    struct stats *s = &m->gw->stats;
    s->ended[END_STOP]++;
    hist_add(&s->duration, (double)(vt_mono(&m->gw->clock) - m->start_us) / 1e6);
    reply(m);
    embedding_free(m);
}

/* ---- at work ---- */

static int on_vectors(void *arg, uint64_t first, size_t n, size_t dim, const uint8_t *values)
{
    struct work *w = arg;
    struct embedding *m = w->m;
    if (!w->v) {
        if (dim > ALL_FLOATS || w->rows * dim > ALL_FLOATS - m->floats)
            return -1;
        w->v = malloc(w->rows * dim * sizeof *w->v);
        w->dim = dim;
        m->floats += w->rows * dim;
    }
    if (!w->v || dim != w->dim || first > w->got || n > w->rows - first)
        return -1;
    memcpy(w->v + first * dim, values, n * dim * sizeof *w->v);
    w->got = first + n > w->got ? first + n : w->got;
    return 0;
}

static void write_text(struct work *w)
{
    const struct embedding *m = w->m;
    struct buf *out = &w->of->text;
    for (size_t i = 0; i < w->rows; i++) {
        float *v = w->v + i * w->dim;
        if (m->pool != POOL_NONE)
            vector_normalize(v, w->dim, m->norm);
        if (m->native)
            buf_puts(out, i > 0 ? "," : "[");
        if (m->base64)
            vector_base64(out, v, w->dim);
        else
            vector_json(out, v, w->dim);
    }
    if (m->native)
        buf_puts(out, "]");
}

static void count(struct work *w)
{
    struct stats *s = &w->m->gw->stats;
    const struct job *j = &w->job;
    hist_add(&s->queue, (double)j->queue_us / 1e6);
    hist_add(&s->prefill, (double)j->prefill_us / 1e6);
    hist_add(&s->prompt, (double)j->tr.n_prompt);
    s->prompt_tokens += j->tr.n_prompt;
    s->cached_tokens += j->reused;
    w->m->tokens += j->tr.n_prompt;
}

static int begin(struct work *w, struct api_err *e);

static void on_done(void *arg, enum job_why why, const struct api_err *failed)
{
    struct work *w = arg;
    struct embedding *m = w->m;
    struct api_err e;
    if (why == JOB_FAILED) {
        embedding_fail(m, failed);
        return;
    }
    if (w->got < w->rows) {
        api_fail(&e, 500, NULL, "the engine ended an embedding without all of its numbers");
        embedding_fail(m, &e);
        return;
    }
    write_text(w);
    count(w);
    work_end(w);
    if (++m->n_over == m->n_inputs)
        embedding_end(m);
    else if (m->next < m->n_inputs && begin(w, &e))
        embedding_fail(m, &e);
}

static void on_accepted(void *arg) {}

static void on_tokens(void *arg, size_t from) {}

static const struct job_ops ops = {
    .accepted = on_accepted, .tokens = on_tokens, .vectors = on_vectors, .done = on_done};

static int begin(struct work *w, struct api_err *e)
{
    struct embedding *m = w->m;
    w->of = &m->inputs[m->next++];
    w->rows = m->pool == POOL_NONE ? w->of->prompt.n : 1;
    w->job.ops = &ops;
    w->job.arg = w;
    w->job.slot = -1;
    w->job.reuse = true;
    w->job.pool = m->pool;
    w->job.label = m->native ? "embedding" : "embeddings";
    vt_sampling_init(&w->job.sampling);
    transcript_init(&w->job.tr, w->of->prompt.ids, w->of->prompt.n, false, 0);
    w->of->prompt.ids = NULL;
    if (blame_check(&m->gw->router, &w->job, e))
        return -1;
    router_start(&m->gw->router, &w->job);
    return 0;
}

static int pooling(const struct embedding *m, enum pool *out, struct api_err *e)
{
    static const char *const words[] = {"none", "mean", "cls", "last"};
    const char *word = vt_config_str(m->gw->cfg, VT_CFG_GATEWAY_POOLING);
    uint64_t p = m->gw->model.pooling;
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        p = strcmp(word, words[i]) == 0 ? i : p;
    if (p > MODEL_POOLING_LAST)
        return api_fail(
            e, 501, NULL,
            "the model's file says pooling type %llu, which gives no embeddings; gateway.pooling says "
            "what to do instead: mean, cls or last",
            (unsigned long long)p);
    if (p == MODEL_POOLING_NONE && !m->native)
        return api_fail(e, 400, NULL,
                        "the model's file names no pooling: set gateway.pooling to mean, cls or last "
                        "(vitriol.conf(5)); /embedding gives a vector of each token");
    *out = (enum pool)(p + 1);
    return 0;
}

static int prepare(struct embedding *m, struct api_err *e)
{
    uint64_t floats = 0, width = m->gw->model.n_embd;
    if (pooling(m, &m->pool, e))
        return -1;
    for (unsigned i = 0; i < m->n_inputs; i++)
        floats += width * (m->pool == POOL_NONE ? m->inputs[i].prompt.n : 1);
    const uint64_t most = m->pool == POOL_NONE ? ROW_FLOATS : ALL_FLOATS;
    if (floats > most)
        return api_fail(
            e, 400, "input",
            "Field 'input': the answer would hold %llu numbers, at most %llu are possible; ask for "
            "fewer or shorter texts",
            (unsigned long long)floats, (unsigned long long)most);
    return router_admit(&m->gw->router, 1, e);
}

static int take_inputs(struct embedding *m, struct draft *d)
{
    m->inputs = calloc(d->n_prompts, sizeof *m->inputs);
    if (!m->inputs)
        return -1;
    for (; m->n_inputs < d->n_prompts; m->n_inputs++) {
        m->inputs[m->n_inputs].prompt = d->prompts[m->n_inputs];
        d->prompts[m->n_inputs] = (struct answer_prompt){0};
    }
    m->native = json_is_true(json_object_get(d->o.extra, "native"));
    m->base64 = json_is_true(json_object_get(d->o.extra, "base64"));
    m->norm = (int)json_integer_value(json_object_get(d->o.extra, "norm"));
    return 0;
}

static void start(struct gateway *gw, struct http_req *r, struct draft *d)
{
    struct api_err e;
    struct embedding *m = calloc(1, sizeof *m);
    if (!m || take_inputs(m, d)) {
        free(m);
        api_reply_json(r, 500, NULL);
        return;
    }
    m->gw = gw;
    m->http = r;
    m->start_us = vt_mono(&gw->clock);
    for (unsigned i = 0; i < AT_ONCE; i++)
        m->works[i].m = m;
    if (prepare(m, &e)) {
        embedding_fail(m, &e);
        return;
    }
    const struct http_claim claim = {.gone = on_gone, .arg = m};
    http_claim(r, &claim);
    const uint32_t slots = router_n_slots(&gw->router);
    for (unsigned i = 0; i < AT_ONCE && i < m->n_inputs && (i == 0 || i < slots); i++)
        if (begin(&m->works[i], &e)) {
            embedding_fail(m, &e);
            return;
        }
}

void api_embedding(struct gateway *gw, struct http_req *r)
{
    scribe_take_for(gw, r, draft_native, start);
}

void api_embeddings(struct gateway *gw, struct http_req *r)
{
    scribe_take_for(gw, r, draft_openai, start);
}
