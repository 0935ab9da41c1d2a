/* What the surfaces build their objects from. */
#include "answer.h"

#include "../http/sse.h"

#include <math.h>

void answer_event(struct answer *a, json_t *data)
{
    if (data)
        sse_json(&a->out, a->surface->named ? json_string_value(json_object_get(data, "type")) : NULL, data);
    else
        a->out.failed = true;
    json_decref(data);
}

void answer_failure_event(struct answer *a, const struct api_err *e)
{
    json_t *err = api_error_json(e);
    json_object_set_new(err, "usage", answer_usage(a));
    if (a->surface->named)
        json_object_set_new(err, "type", json_string("error"));
    sse_json(&a->out, a->surface->named ? "error" : NULL, err);
    json_decref(err);
}

json_t *answer_usage(const struct answer *a)
{
    int64_t prompt = 0, completion = 0, cached = 0, reasoning = 0;
    for (unsigned i = 0; i < a->n_choices; i++) {
        const struct choice *c = &a->choices[i];
        completion += (int64_t)transcript_made(&c->job.tr);
        reasoning += c->reasoning_tokens;
        if (i % a->n_per_prompt == 0) {
            prompt += (int64_t)c->job.tr.n_prompt;
            cached += c->job.reused;
        }
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     completion, "total_tokens", prompt + completion, "prompt_tokens_details",
                     "cached_tokens", cached, "completion_tokens_details", "reasoning_tokens", reasoning);
}

static double rate(double n, double ms)
{
    return ms > 0 ? n * 1000 / ms : 0;
}

json_t *choice_timings(const struct choice *c)
{
    const struct job *j = &c->job;
    int64_t prompt_n = (int64_t)j->tr.n_prompt - j->reused, n = (int64_t)transcript_made(&j->tr);
    uint64_t prefill = j->prefill_us                  ? j->prefill_us
                       : j->first_us > j->accepted_us ? j->first_us - j->accepted_us
                                                      : 0;
    uint64_t decode = j->decode_us ? j->decode_us : j->last_us - j->first_us;
    double pms = (double)prefill / 1000, dms = (double)decode / 1000;
    json_t *t = json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t)j->reused, "prompt_n",
        prompt_n, "prompt_ms", pms, "prompt_per_token_ms", prompt_n > 0 ? pms / (double)prompt_n : 0,
        "prompt_per_second", rate((double)prompt_n, pms), "predicted_n", n, "predicted_ms", dms,
        "predicted_per_token_ms", n > 0 ? dms / (double)n : 0, "predicted_per_second", rate((double)n, dms));
    if (j->drafted > 0) {
        json_object_set_new(t, "draft_n", json_integer(j->drafted));
        json_object_set_new(t, "draft_n_accepted", json_integer(j->draft_accepted));
    }
    if (j->resumes > 0) {
        json_object_set_new(t, "resumes", json_integer(j->resumes));
        json_object_set_new(t, "resume_cache_n", json_integer(j->resume_reused));
    }
    return t;
}

static json_t *token_text(const struct gateway *gw, uint32_t id, json_t **bytes)
{
    struct utf8_hold h = {0};
    struct buf text = {0};
    size_t n;
    const uint8_t *p = tok_bytes(gw->model.tok, id, &n);
    *bytes = json_array();
    for (size_t i = 0; p && i < n; i++)
        json_array_append_new(*bytes, json_integer(p[i]));
    if (p)
        utf8_feed(&h, p, n, &text);
    utf8_flush(&h, &text);
    json_t *s = json_stringn(text.p ? text.p : "", text.n);
    buf_fini(&text);
    return s;
}

/* probs: as a probability under "prob", not as a logarithm. */
static json_t *one_logprob(const struct gateway *gw, uint32_t id, double lp, bool probs)
{
    json_t *bytes, *text = token_text(gw, id, &bytes);
    if (!(lp >= -9999.0))
        lp = -9999.0;
    if (lp > 0)
        lp = 0;
    return json_pack("{s:I, s:o, s:o, s:f}", "id", (json_int_t)id, "token", text, "bytes", bytes,
                     probs ? "prob" : "logprob", probs ? exp(lp) : lp);
}

bool choice_is_counted(const struct choice *c, size_t i)
{
    return i < c->job.tr.n_forced || !tok_is_eog(c->a->gw->model.tok, c->job.tr.ids[i]);
}

json_t *choice_logprobs(const struct choice *c, size_t from, size_t to, bool probs)
{
    const struct transcript *t = &c->job.tr;
    json_t *list = json_array();
    for (size_t i = from; i < to && i < t->n; i++) {
        if (!choice_is_counted(c, i))
            continue;
        json_t *one = one_logprob(c->a->gw, t->ids[i], t->lp[i], probs);
        json_t *tops = json_array();
        for (unsigned k = 0; k < t->n_top; k++) {
            const struct transcript_top *top = &t->top[i * t->n_top + k];
            if (!isnan(top->logprob))
                json_array_append_new(tops, one_logprob(c->a->gw, top->id, top->logprob, probs));
        }
        json_object_set_new(one, probs ? "top_probs" : "top_logprobs", tops);
        json_array_append_new(list, one);
    }
    return list;
}

json_t *choice_head(const struct choice *c)
{
    json_t *bytes, *text = token_text(c->a->gw, c->job.tr.prompt[0], &bytes);
    return json_pack("{s:I, s:o, s:o, s:n, s:[]}", "id", (json_int_t)c->job.tr.prompt[0], "token", text,
                     "bytes", bytes, "logprob", "top_logprobs");
}

const struct answer_prompt *choice_prompt(const struct choice *c)
{
    return &c->a->prompts[c->index / c->a->n_per_prompt];
}

const char *choice_stop_text(const struct choice *c, size_t *len)
{
    *len = 0;
    return c->stop_hit < 0 ? "" : stop_text(c->a->p.stop, (size_t)c->stop_hit, len);
}

const char *answer_fingerprint(const struct answer *a)
{
    const struct engine *e = router_ready(&a->gw->router);
    return e && e->fp[0] ? e->fp : a->gw->build;
}
