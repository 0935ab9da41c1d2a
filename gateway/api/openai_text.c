/* POST /v1/completions. */
#include "api.h"
#include "infill.h"
#include "scribe.h"

#include <stdlib.h>
#include <string.h>

static json_t *base(const struct answer *a)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", a->id, "object", a->surface->object, "created",
                     (json_int_t)a->created, "model", a->gw->model.alias, "system_fingerprint",
                     answer_fingerprint(a));
}

/* The prompt is told along with the answer, id by id. */
static bool scored(const struct choice *c)
{
    return c->a->o.echo && c->a->o.logprobs;
}

struct shapes {
    json_t *content, *tokens, *lps, *tops, *offsets;
};

static void add_row(struct shapes *s, json_t *one, json_t *top, uint32_t offset)
{
    json_array_append(s->tokens, json_object_get(one, "token"));
    json_array_append(s->lps, json_object_get(one, "logprob"));
    json_array_append_new(s->tops, top);
    json_array_append_new(s->offsets, json_integer(offset));
}

/* Both shapes in one object: the legacy arrays and the chat form. head: with the prompt's first id in front. */
static json_t *logprobs(const struct choice *c, bool head, size_t from, size_t to)
{
    struct shapes s = {choice_logprobs(c, from, to, false), json_array(), json_array(), json_array(),
                       json_array()};
    size_t i, at = from;
    json_t *one;
    json_array_foreach(s.content, i, one)
    {
        json_t *top = json_object(), *alt;
        size_t k;
        json_array_foreach(json_object_get(one, "top_logprobs"), k, alt) json_object_set(
            top, json_string_value(json_object_get(alt, "token")), json_object_get(alt, "logprob"));
        while (at < to && !choice_is_counted(c, at))
            at++;
        add_row(&s, one, top, at > 0 ? c->ends[at - 1].chars : c->head_chars);
        at++;
    }
    if (head) {
        one = choice_head(c);
        json_array_insert_new(s.content, 0, one);
        json_array_insert(s.tokens, 0, json_object_get(one, "token"));
        json_array_insert_new(s.lps, 0, json_null());
        json_array_insert_new(s.tops, 0, json_null());
        json_array_insert_new(s.offsets, 0, json_integer(0));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "content", s.content, "tokens", s.tokens, "token_logprobs",
                     s.lps, "top_logprobs", s.tops, "text_offset", s.offsets);
}

static json_t *choice_object(const struct choice *c, const char *text, size_t n, const char *finish_reason,
                             json_t *lps)
{
    json_t *o = json_object();
    json_object_set_new(o, "text", json_stringn(text ? text : "", n));
    json_object_set_new(o, "index", json_integer(c->index));
    json_object_set_new(o, "logprobs", lps);
    json_object_set_new(o, "finish_reason", finish_reason ? json_string(finish_reason) : json_null());
    return o;
}

static json_t *logprobs_told(const struct choice *c, size_t from, size_t to)
{
    return c->a->o.logprobs && to > from ? logprobs(c, false, from, to) : json_null();
}

static const char *reason(const struct choice *c)
{
    return c->why == JOB_LENGTH ? "length" : "stop";
}

static void event(struct choice *c, json_t *choice, bool timings)
{
    json_t *o = base(c->a);
    json_object_set_new(o, "choices", json_pack("[o]", choice));
    if (timings)
        json_object_set_new(o, "timings", choice_timings(c));
    answer_event(c->a, o);
}

static void begin(struct answer *a)
{
    if (!a->o.echo)
        return;
    for (unsigned i = 0; i < a->n_choices; i++) {
        struct choice *c = &a->choices[i];
        const struct answer_prompt *p = choice_prompt(c);
        if (scored(c))
            event(c, choice_object(c, c->content.p, c->content.n, NULL, logprobs(c, true, 0, 0)), false);
        else
            event(c, choice_object(c, p->text, p->text_n, NULL, json_null()), false);
        buf_clear(&c->content);
    }
}

static void delta(struct choice *c)
{
    event(c, choice_object(c, c->content.p, c->content.n, NULL, logprobs_told(c, c->told_before, c->told)),
          c->a->p.timings_per_token);
}

static void finish(struct choice *c)
{
    event(c, choice_object(c, "", 0, reason(c), json_null()), !c->a->p.include_usage);
}

static void end_stream(struct answer *a)
{
    if (!a->p.include_usage)
        return;
    json_t *o = base(a);
    json_object_set_new(o, "choices", json_array());
    json_object_set_new(o, "usage", answer_usage(a));
    json_object_set_new(o, "timings", choice_timings(&a->choices[0]));
    answer_event(a, o);
}

static json_t *whole(const struct choice *c)
{
    struct buf text = {0};
    if (c->a->o.echo && !scored(c))
        buf_add(&text, choice_prompt(c)->text, choice_prompt(c)->text_n);
    buf_add(&text, c->content.p, c->content.n);
    json_t *lps = scored(c) ? logprobs(c, true, 0, c->told) : logprobs_told(c, 0, c->told);
    json_t *o = choice_object(c, text.p, text.n, reason(c), lps);
    buf_fini(&text);
    return o;
}

static void end(struct answer *a)
{
    if (a->p.stream) {
        end_stream(a);
        return;
    }
    json_t *o = base(a), *list = json_array();
    for (unsigned i = 0; i < a->n_choices; i++)
        json_array_append_new(list, whole(&a->choices[i]));
    json_object_set_new(o, "choices", list);
    json_object_set_new(o, "usage", answer_usage(a));
    json_object_set_new(o, "timings", choice_timings(&a->choices[0]));
    api_reply_json(a->http, 200, o);
}

static const struct surface surface = {
    .prefix = "cmpl-",
    .object = "text_completion",
    .terminator = "[DONE]",
    .prompt_field = "prompt",
    .begin = begin,
    .delta = delta,
    .finish = finish,
    .end = end,
};

static int own_fields(const json_t *body, struct answer_opts *o, struct api_err *e)
{
    int64_t best_of = 1, n_top = 0;
    if (field_int(body, "best_of", 1, 1, &best_of, e) < 0)
        return -1;
    const json_t *lp = field(body, "logprobs");
    if (json_is_boolean(lp))
        o->logprobs = json_is_true(lp);
    else if (field_int(body, "logprobs", 0, 20, &n_top, e) < 0)
        return -1;
    else
        o->logprobs = lp != NULL;
    o->n_top = (unsigned)n_top;
    return field_bool(body, "echo", &o->echo, e) < 0 ? -1 : 0;
}

/* With a suffix the prompt is what stands before a gap. */
static int prompts(struct draft *d, struct api_err *e)
{
    const json_t *prompt = field(d->body, "prompt"), *suffix = field(d->body, "suffix");
    if (suffix && !json_is_string(suffix))
        return api_fail(e, 400, "suffix", "Field 'suffix': must be a string");
    if (json_string_length(suffix) == 0)
        return draft_prompts(d, "prompt", d->o.echo, DRAFT_PROMPTS, e);
    if (!json_is_string(prompt) || d->o.echo)
        return api_fail(e, 400, "suffix", "Field 'suffix': needs one prompt, a string, and no echo");
    if (!infill_possible(d->model))
        return api_fail(e, 400, "suffix", "Field 'suffix': this model does not know fill-in-the-middle");
    const struct infill f = {.prefix = prompt, .suffix = suffix, .param = "prompt"};
    return infill_prompt(d, &f, e);
}

static int draft(struct draft *d, struct api_err *e)
{
    d->o.parallel_tools = true;
    if (draft_params(d, e) || own_fields(d->body, &d->o, e) || prompts(d, e) ||
        constrain_finish(&d->p.constrain, e))
        return -1;
    if (d->p.n_probs > 0 && !d->o.logprobs) {
        d->o.logprobs = true;
        d->o.n_top = (unsigned)d->p.n_probs;
    }
    return 0;
}

void api_text(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft, &surface);
}
