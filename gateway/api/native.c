/* POST /completion and /infill: the surface of llama-server. */
#include "api.h"
#include "infill.h"
#include "scribe.h"

#include <stdlib.h>
#include <string.h>

static const char *stop_type(const struct choice *c)
{
    switch (c->why) {
    case JOB_EOS: return "eos";
    case JOB_LENGTH: return "limit";
    case JOB_STOPPED: return "word";
    default: return "none";
    }
}

static json_t *ids_array(const struct choice *c, size_t from, size_t to)
{
    json_t *list = json_array();
    for (size_t i = from; i < to && i < c->job.tr.n; i++)
        json_array_append_new(list, json_integer(c->job.tr.ids[i]));
    return list;
}

static json_t *base(const struct choice *c, bool last)
{
    json_t *o = json_object();
    json_object_set_new(o, "index", json_integer(c->index));
    json_object_set_new(o, "content", json_stringn(c->content.p ? c->content.p : "", c->content.n));
    json_object_set_new(o, "id_slot", json_integer(c->job.on_slot));
    json_object_set_new(o, "stop", json_boolean(last));
    json_object_set_new(o, "model", json_string(c->a->gw->model.alias));
    json_object_set_new(o, "tokens_predicted", json_integer((json_int_t)c->job.tr.n));
    json_object_set_new(o, "tokens_evaluated", json_integer((json_int_t)c->job.tr.n_prompt));
    return o;
}

/* Only what was asked for, under the path that asked. */
static json_t *select_fields(const struct answer *a, json_t *o)
{
    size_t i;
    json_t *want;
    if (!a->p.response_fields)
        return o;
    json_t *out = json_object();
    json_array_foreach(a->p.response_fields, i, want)
    {
        const char *path = json_string_value(want), *slash = strchr(path, '/');
        char head[64];
        json_t *v = json_object_get(o, path);
        if (!v && slash && (size_t)(slash - path) < sizeof head) {
            memcpy(head, path, (size_t)(slash - path));
            head[slash - path] = '\0';
            v = json_object_get(json_object_get(o, head), slash + 1);
        }
        if (v)
            json_object_set(out, path, v);
    }
    json_decref(o);
    return out;
}

static json_t * final(const struct choice *c)
{
    const struct answer *a = c->a;
    const struct answer_prompt *prompt = choice_prompt(c);
    size_t n;
    const char *word = choice_stop_text(c, &n);
    json_t *o = base(c, true);
    json_t *settings = params_json(&a->p);
    json_object_set_new(settings, "seed", json_integer((json_int_t)(c->job.seed & INT64_MAX)));
    json_object_set_new(o, "generation_settings", settings);
    json_object_set_new(o, "prompt", json_stringn(prompt->text ? prompt->text : "", prompt->text_n));
    json_object_set_new(o, "has_new_line", json_boolean(c->newline));
    json_object_set_new(o, "truncated", json_boolean(c->truncated));
    json_object_set_new(o, "stop_type", json_string(stop_type(c)));
    json_object_set_new(o, "stopping_word", json_stringn(word, n));
    json_object_set_new(o, "stopped_eos", json_boolean(c->why == JOB_EOS));
    json_object_set_new(o, "stopped_word", json_boolean(c->why == JOB_STOPPED));
    json_object_set_new(o, "stopped_limit", json_boolean(c->why == JOB_LENGTH));
    json_object_set_new(o, "tokens_cached", json_integer((json_int_t)(c->job.tr.n_prompt + c->job.tr.n)));
    json_object_set_new(o, "timings", choice_timings(c));
    if (a->p.return_tokens && !a->p.stream)
        json_object_set_new(o, "tokens", ids_array(c, 0, c->told));
    if (a->o.logprobs && !a->p.stream)
        json_object_set_new(o, "completion_probabilities", choice_logprobs(c, 0, c->told, a->p.s.post_probs));
    return select_fields(a, o);
}

static void begin(struct answer *a) {}

static void progress(struct choice *c, uint32_t done, uint32_t total)
{
    json_t *o = base(c, false);
    double ms = c->job.accepted_us ? (double)(vt_mono(&c->a->gw->clock) - c->job.accepted_us) / 1000 : 0;
    json_object_set_new(o, "prompt_progress",
                        json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t)total, "cache",
                                  (json_int_t)c->job.reused, "processed", (json_int_t)done, "time_ms", ms));
    answer_event(c->a, o);
}

static void delta(struct choice *c)
{
    json_t *o = base(c, false);
    json_object_set_new(o, "tokens", ids_array(c, c->told_before, c->told));
    if (c->a->o.logprobs)
        json_object_set_new(o, "completion_probabilities",
                            choice_logprobs(c, c->told_before, c->told, c->a->p.s.post_probs));
    if (c->a->p.timings_per_token)
        json_object_set_new(o, "timings", choice_timings(c));
    answer_event(c->a, o);
}

static void finish(struct choice *c)
{
    answer_event(c->a, final(c));
}

static void end(struct answer *a)
{
    if (a->p.stream)
        return;
    if (a->n_choices == 1) {
        api_reply_json(a->http, 200, final(&a->choices[0]));
        return;
    }
    json_t *list = json_array();
    for (unsigned i = 0; i < a->n_choices; i++)
        json_array_append_new(list, final(&a->choices[i]));
    api_reply_json(a->http, 200, list);
}

static const struct surface surface = {
    .prefix = "cmpl-",
    .object = "completion",
    .terminator = NULL,
    .prompt_field = "prompt",
    .begin = begin,
    .progress = progress,
    .delta = delta,
    .finish = finish,
    .end = end,
};

static int draft_with(struct draft *d, int (*prompts)(struct draft *d, struct api_err *e), struct api_err *e)
{
    int64_t probs = 0;
    if (draft_params(d, e) || field_int(d->body, "logprobs", 0, 100, &probs, e) < 0 || prompts(d, e) ||
        constrain_finish(&d->p.constrain, e))
        return -1;
    if (d->p.n_probs == 0)
        d->p.n_probs = probs;
    d->o = (struct answer_opts){
        .logprobs = d->p.n_probs > 0, .n_top = (unsigned)d->p.n_probs, .parallel_tools = true};
    return 0;
}

static int whole_prompts(struct draft *d, struct api_err *e)
{
    return draft_prompts(d, "prompt", true, DRAFT_PROMPTS, e);
}

static int gap(struct draft *d, struct api_err *e)
{
    static const char *const names[] = {"input_prefix", "input_suffix", "prompt"};
    const json_t *text[3];
    for (int i = 0; i < 3; i++) {
        text[i] = field(d->body, names[i]);
        if (!text[i] && i < 2)
            return api_fail(e, 400, names[i], "Field '%s': is required", names[i]);
        if (text[i] && !json_is_string(text[i]))
            return api_fail(e, 400, names[i], "Field '%s': must be a string", names[i]);
    }
    const struct infill f = {.prefix = text[0],
                             .suffix = text[1],
                             .begun = text[2],
                             .extra = field(d->body, "input_extra"),
                             .param = "input_prefix"};
    return infill_prompt(d, &f, e);
}

static int draft(struct draft *d, struct api_err *e)
{
    return draft_with(d, whole_prompts, e);
}

static int draft_gap(struct draft *d, struct api_err *e)
{
    return draft_with(d, gap, e);
}

void api_native(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft, &surface);
}

void api_infill(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft_gap, &surface);
}
