/* POST /v1/chat/completions. */
#include "openai_chat.h"
#include "api.h"
#include "chat_prompt.h"
#include "frames.h"
#include "scribe.h"
#include "tool_choice.h"

#include <stdlib.h>
#include <string.h>

static json_t *base(const struct answer *a)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", a->id, "object",
                     a->p.stream ? "chat.completion.chunk" : "chat.completion", "created",
                     (json_int_t)a->created, "model", a->gw->model.alias, "system_fingerprint",
                     answer_fingerprint(a));
}

/* One chunk with one choice; steals delta and logprobs. */
static void chunk(struct choice *c, json_t *delta, json_t *logprobs, const char *reason, bool timings)
{
    struct answer *a = c->a;
    json_t *o = base(a), *ch = json_object();
    json_object_set_new(ch, "index", json_integer(c->index));
    json_object_set_new(ch, "delta", delta);
    if (logprobs)
        json_object_set_new(ch, "logprobs", logprobs);
    json_object_set_new(ch, "finish_reason", reason ? json_string(reason) : json_null());
    json_object_set_new(o, "choices", json_pack("[o]", ch));
    if (timings)
        json_object_set_new(o, "timings", choice_timings(c));
    answer_event(a, o);
}

static const char *reason(const struct choice *c)
{
    if (c->why == JOB_LENGTH)
        return "length";
    return calls_are_whole(&c->calls) ? "tool_calls" : "stop";
}

static bool legacy(const struct answer *a)
{
    return a->o.legacy_think;
}

static void begin(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++)
        chunk(&a->choices[i], json_pack("{s:s, s:n}", "role", "assistant", "content"), NULL, NULL, false);
}

static void progress(struct choice *c, uint32_t done, uint32_t total)
{
    json_t *o = base(c->a);
    double ms = c->job.accepted_us ? (double)(vt_mono(&c->a->gw->clock) - c->job.accepted_us) / 1000 : 0;
    json_object_set_new(o, "choices",
                        json_pack("[{s:i, s:{}, s:n}]", "index", (int)c->index, "delta", "finish_reason"));
    json_object_set_new(o, "prompt_progress",
                        json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t)total, "cache",
                                  (json_int_t)c->job.reused, "processed", (json_int_t)done, "time_ms", ms));
    answer_event(c->a, o);
}

static json_t *text_or_null(const struct buf *b)
{
    return json_stringn(b->p ? b->p : "", b->n);
}

/* The logprobs of what was told since the last chunk ride on the first chunk that follows. */
static json_t *news_logprobs(struct choice *c)
{
    if (!c->a->o.logprobs || c->told == c->told_before)
        return NULL;
    json_t *lp = json_pack("{s:o}", "content", choice_logprobs(c, c->told_before, c->told, false));
    c->told_before = c->told;
    return lp;
}

/* The beginning of a call, and what came of its arguments. */
static void tell_call(struct choice *c, unsigned index)
{
    struct tool_call *t = &c->calls.v[index];
    if (!t->told)
        chunk(c,
              json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", (int)index, "id", t->id,
                        "type", "function", "function", "name", t->name, "arguments", ""),
              news_logprobs(c), NULL, false);
    t->told = true;
    if (t->args.n == 0)
        return;
    chunk(c,
          json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)index, "function", "arguments",
                    text_or_null(&t->args)),
          news_logprobs(c), NULL, false);
    buf_clear(&t->args);
}

static void delta(struct choice *c)
{
    bool timings = c->a->p.timings_per_token;
    if (c->reasoning.n > 0)
        chunk(c, json_pack("{s:o}", "reasoning_content", text_or_null(&c->reasoning)), news_logprobs(c), NULL,
              timings);
    if (c->content.n > 0)
        chunk(c, json_pack("{s:o}", "content", text_or_null(&c->content)), news_logprobs(c), NULL, timings);
    for (unsigned i = 0; i < c->calls.n && c->calls.news; i++)
        tell_call(c, i);
    json_t *rest = news_logprobs(c); /* of ids whose text the parser has swallowed */
    if (rest)
        chunk(c, json_object(), rest, NULL, false);
}

static void finish(struct choice *c)
{
    chunk(c, json_object(), NULL, reason(c), !c->a->p.include_usage);
}

static json_t *message(const struct choice *c)
{
    json_t *m = json_pack("{s:s}", "role", "assistant");
    const bool calls = c->calls.n > 0;
    if (legacy(c->a) && c->reasoning.n > 0) {
        struct buf all = {0};
        buf_puts(&all, "<think>");
        buf_add(&all, c->reasoning.p, c->reasoning.n);
        buf_puts(&all, "</think>");
        buf_add(&all, c->content.p, c->content.n);
        json_object_set_new(m, "content", text_or_null(&all));
        buf_fini(&all);
    } else {
        json_object_set_new(m, "content",
                            calls && c->content.n == 0 ? json_null() : text_or_null(&c->content));
    }
    if (c->reasoning.n > 0)
        json_object_set_new(m, "reasoning_content", text_or_null(&c->reasoning));
    if (calls)
        json_object_set_new(m, "tool_calls", calls_json(&c->calls));
    return m;
}

static void end(struct answer *a)
{
    json_t *o = base(a), *list = json_array();
    if (a->p.stream && !a->p.include_usage) {
        json_decref(o);
        json_decref(list);
        return;
    }
    for (unsigned i = 0; i < a->n_choices && !a->p.stream; i++) {
        const struct choice *c = &a->choices[i];
        json_t *lp = a->o.logprobs ? json_pack("{s:o}", "content", choice_logprobs(c, 0, c->told, false))
                                   : json_null();
        json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:s}", "index", (int)c->index, "message",
                                              message(c), "logprobs", lp, "finish_reason", reason(c)));
    }
    json_object_set_new(o, "choices", list);
    json_object_set_new(o, "usage", answer_usage(a));
    json_object_set_new(o, "timings", choice_timings(&a->choices[0]));
    if (a->p.stream)
        answer_event(a, o);
    else
        api_reply_json(a->http, 200, o);
}

static const struct surface surface = {
    .prefix = "chatcmpl-",
    .object = "chat.completion",
    .terminator = "[DONE]",
    .prompt_field = "messages",
    .begin = begin,
    .progress = progress,
    .delta = delta,
    .finish = finish,
    .end = end,
};

static int own_fields(struct draft *d, struct api_err *e)
{
    const json_t *body = d->body;
    struct answer_opts *o = &d->o;
    const char *format = "auto";
    int64_t n_top = -1, budget = -1;
    if (field_str(body, "reasoning_format", &format, e) < 0)
        return -1;
    if (strcmp(format, "auto") != 0 && strcmp(format, "none") != 0 && strcmp(format, "deepseek") != 0 &&
        strcmp(format, "deepseek-legacy") != 0)
        return api_fail(e, 400, "reasoning_format",
                        "Field 'reasoning_format': must be auto, none, deepseek or deepseek-legacy");
    o->think = strcmp(format, "none") != 0;
    o->show_think = !o->think;
    o->legacy_think = strcmp(format, "deepseek-legacy") == 0;
    static const char *const budgets[] = {"thinking_budget_tokens", "reasoning_budget_tokens"};
    for (int i = 0; i < 2; i++) {
        if (field_int(body, budgets[i], -1, INT32_MAX, &budget, e) < 0)
            return -1;
        if (budget >= 0)
            return api_fail(e, 400, budgets[i], "Field '%s': not supported by this build", budgets[i]);
    }
    if (field_bool(body, "logprobs", &o->logprobs, e) < 0 ||
        field_int(body, "top_logprobs", 0, 20, &n_top, e) < 0)
        return -1;
    if (n_top >= 0 && !o->logprobs)
        return api_fail(e, 400, "top_logprobs", "Field 'top_logprobs': needs logprobs to be true");
    o->n_top = n_top < 0 ? 0 : (unsigned)n_top;
    return tool_choice_read(d, e);
}

static int make_prompt(struct draft *d, struct api_err *e)
{
    struct chat_prompt p;
    struct tok_ids ids = {0};
    if (chat_prompt_make(&p, d, e))
        return -1;
    d->o.think_open = d->o.think && p.open_think;
    const char *think_close = p.open_think ? d->model->think->close : NULL;
    int r = draft_too_long(d, p.t.len, "messages", e);
    if (r == 0)
        r = chat_prompt_encode(&p, d->model, &ids, e);
    chat_prompt_fini(&p);
    if (r == 0) {
        d->prompts = calloc(1, sizeof *d->prompts);
        if (!d->prompts)
            r = api_fail(e, 500, NULL, "out of memory");
    }
    struct constrain *c = &d->p.constrain;
    if (r == 0 && c->g)
        c->root = frame_answer(d->model, c->g, think_close, c->root, d->o.forced);
    if (r == 0)
        r = constrain_finish(c, e);
    if (r) {
        tok_ids_fini(&ids);
        return -1;
    }
    d->prompts[d->n_prompts++] = (struct answer_prompt){.ids = ids.ids, .n = ids.n};
    return 0;
}

int chat_draft(struct draft *d, struct api_err *e)
{
    if (draft_params(d, e) || own_fields(d, e) || make_prompt(d, e))
        return -1;
    if (d->p.n_probs > 0 && !d->o.logprobs) {
        d->o.logprobs = true;
        d->o.n_top = (unsigned)d->p.n_probs;
    }
    return 0;
}

void api_chat(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, chat_draft, &surface);
}

int chat_draft_count(struct draft *d, struct api_err *e)
{
    struct chat_prompt p;
    struct tok_ids ids = {0};
    if (draft_params(d, e) || own_fields(d, e) || chat_prompt_make(&p, d, e))
        return -1;
    int r = chat_prompt_encode(&p, d->model, &ids, e);
    chat_prompt_fini(&p);
    if (r == 0)
        d->reply =
            json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens", (json_int_t)ids.n);
    tok_ids_fini(&ids);
    return r == 0 && !d->reply ? api_fail(e, 500, NULL, "out of memory") : r;
}

void api_chat_count(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, chat_draft_count, NULL);
}

static int draft_template(struct draft *d, struct api_err *e)
{
    struct chat_prompt p;
    if (chat_prompt_make(&p, d, e))
        return -1;
    d->reply = json_pack("{s:s%}", "prompt", p.t.text, p.t.len);
    chat_prompt_fini(&p);
    return d->reply ? 0 : api_fail(e, 500, NULL, "out of memory");
}

void api_apply_template(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft_template, NULL);
}
