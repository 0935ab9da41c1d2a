#include "answer.h"
#include "draft.h"

#include "../http/sse.h"
#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char event_stream[] = "text/event-stream";

/* ---- parts from the parser ---- */

static void on_content(void *arg, const char *s, size_t n)
{
    buf_add(&((struct choice *)arg)->content, s, n);
}

static void on_reasoning(void *arg, const char *s, size_t n)
{
    struct choice *c = arg;
    buf_add(&c->reasoning, s, n);
}

static void on_call(void *arg, const char *name)
{
    struct choice *c = arg;
    c->oom |= calls_begin(&c->calls, name, c->a->gw->model.dialect->short_ids) != 0;
}

static void on_args(void *arg, const char *s, size_t n)
{
    struct choice *c = arg;
    c->oom |= c->oom || calls_args(&c->calls, s, n);
}

static void on_whole(void *arg)
{
    struct choice *c = arg;
    if (!c->oom)
        calls_whole(&c->calls);
}

/* A call that the limit or a stop string has cut stays as it is, and the client is told why. Any other that a client has begun to
 * read, or that was demanded, cannot become text: the answer fails. */
static void on_broken(void *arg, const char *raw, size_t n)
{
    struct choice *c = arg;
    if (c->oom || (c->over && c->why != JOB_EOS))
        return;
    if (!c->a->o.forced && calls_undo(&c->calls))
        buf_add(&c->content, raw, n);
    else
        c->broken = true;
}

static const struct scan_ops parts = {on_content, on_reasoning, on_call, on_args, on_whole, on_broken};

/* ---- the end of an answer ---- */

static void choice_fini(struct choice *c)
{
    job_cancel(&c->job);
    transcript_fini(&c->job.tr);
    stop_fini(&c->stop);
    scanner_fini(&c->scan);
    free(c->ends);
    buf_fini(&c->content);
    buf_fini(&c->reasoning);
    calls_fini(&c->calls);
}

static void answer_free(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices; i++)
        choice_fini(&a->choices[i]);
    for (unsigned i = 0; i < a->n_prompts; i++) {
        free(a->prompts[i].ids);
        free(a->prompts[i].text);
    }
    if (a->prev)
        a->prev->next = a->next;
    else if (a->gw->answers == a)
        a->gw->answers = a->next;
    if (a->next)
        a->next->prev = a->prev;
    free(a->choices);
    free(a->prompts);
    params_fini(&a->p);
    json_decref(a->o.extra);
    json_decref(a->o.tool_list);
    buf_fini(&a->out);
    free(a);
}

static void on_gone(void *arg)
{
    struct answer *a = arg;
    a->gw->stats.ended[END_CANCELLED]++;
    answer_free(a);
}

static void flush(struct answer *a)
{
    if (a->out.failed) {
        /* Memory ran out inside of this turn: the stream would have a hole. */
        http_abort(a->http);
        return;
    }
    http_write(a->http, a->out.p, a->out.n);
    buf_clear(&a->out);
    buf_trim(&a->out, 4096);
}

static void answer_fail(struct answer *a, const struct api_err *e)
{
    struct http_req *http = a->http;
    bool early = e->status == 400 || e->status == 429;
    a->gw->stats.ended[early && !a->begun ? END_REJECTED : END_ERROR]++;
    if (a->begun) {
        buf_clear(&a->out);
        if (a->surface->fail)
            a->surface->fail(a, e);
        else
            answer_failure_event(a, e);
        if (a->surface->terminator)
            sse_text(&a->out, a->surface->terminator);
        flush(a);
        http_end(http);
    } else {
        api_error_reply(http, e);
    }
    answer_free(a);
}

static void count_end(struct answer *a)
{
    struct stats *s = &a->gw->stats;
    uint64_t now = vt_mono(&a->gw->clock);
    const struct choice *c = &a->choices[0];
    enum stats_end end = c->why == JOB_LENGTH         ? END_LENGTH
                         : calls_are_whole(&c->calls) ? END_TOOL_CALLS
                                                      : END_STOP;
    s->ended[end]++;
    hist_add(&s->duration, (double)(now - a->start_us) / 1e6);
    for (unsigned i = 0; i < a->n_choices; i++) {
        const struct job *j = &a->choices[i].job;
        hist_add(&s->queue, (double)j->queue_us / 1e6);
        hist_add(&s->prefill, (double)j->prefill_us / 1e6);
        hist_add(&s->decode, (double)j->decode_us / 1e6);
        hist_add(&s->prompt, (double)j->tr.n_prompt);
        hist_add(&s->generated, (double)transcript_made(&j->tr));
        s->prompt_tokens += j->tr.n_prompt;
        s->cached_tokens += j->reused;
    }
}

static void answer_end(struct answer *a)
{
    count_end(a);
    if (!a->p.stream) {
        a->surface->end(a);
        answer_free(a);
        return;
    }
    a->surface->end(a);
    if (a->surface->terminator)
        sse_text(&a->out, a->surface->terminator);
    flush(a);
    http_end(a->http);
    answer_free(a);
}

/* ---- text ---- */

static size_t told_up_to(const struct choice *c)
{
    size_t i = c->told;
    while (i < c->taken && c->ends[i].bytes <= c->let_n)
        i++;
    return i;
}

static void let_through(struct choice *c, const struct buf *text)
{
    c->let_n += text->n;
    if (c->parse)
        scanner_feed(&c->scan, text->p, text->n);
    else
        buf_add(&c->content, text->p, text->n);
}

static int note_end(struct choice *c, size_t i)
{
    if (i >= c->ends_cap) {
        size_t cap = c->ends_cap ? c->ends_cap * 2 : 64;
        struct text_end *p = realloc(c->ends, cap * sizeof *p);
        if (!p)
            return -1;
        c->ends = p;
        c->ends_cap = cap;
    }
    c->ends[i] = (struct text_end){(uint32_t)c->text_n, c->chars};
    return 0;
}

static void count_text(struct choice *c, const struct buf *text)
{
    c->text_n += text->n;
    for (size_t i = 0; i < text->n; i++)
        c->chars += ((uint8_t)text->p[i] & 0xc0) != 0x80;
}

/* An id of the prompt: its text is told as it is, whatever is looked for in the rest. */
static void echo_id(struct choice *c, uint32_t id)
{
    struct buf text = {0};
    size_t n;
    const uint8_t *bytes = tok_bytes(c->a->gw->model.tok, id, &n);
    size_t skip = c->echo_skip < n ? c->echo_skip : n;
    c->echo_skip -= skip;
    if (bytes)
        utf8_feed(&c->utf8, bytes + skip, n - skip, &text);
    count_text(c, &text);
    c->let_n += text.n;
    buf_add(&c->content, text.p, text.n);
    c->oom |= text.failed;
    buf_fini(&text);
}

/* One id into text. True when a stop string has ended the choice. */
static bool take_id(struct choice *c, size_t i)
{
    struct answer *a = c->a;
    struct buf text = {0}, through = {0};
    size_t n;
    if (i < c->job.tr.n_forced) {
        echo_id(c, c->job.tr.ids[i]);
        c->oom |= note_end(c, i) != 0;
        return false;
    }
    const uint8_t *piece = model_piece(&a->gw->model, c->job.tr.ids[i], &n);
    if (!piece)
        piece = model_mark(&a->gw->model, c->job.tr.ids[i], a->o.think || a->o.show_think, a->o.tools, &n);
    if (c->parse && c->scan.state == SCAN_THINK)
        c->reasoning_tokens++;
    utf8_feed(&c->utf8, piece, n, &text);
    c->newline |= text.n > 0 && memchr(text.p, '\n', text.n);
    count_text(c, &text);
    if (note_end(c, i))
        c->oom = true;
    c->stop_hit = stop_feed(&c->stop, text.p, text.n, &through);
    let_through(c, &through);
    c->oom |= text.failed || through.failed;
    buf_fini(&text);
    buf_fini(&through);
    return c->stop_hit >= 0;
}

/* The choice gets no more text: what was held back goes out, unless a stop string swallowed it. */
static void close_text(struct choice *c)
{
    struct buf text = {0}, through = {0};
    if (c->stop_hit < 0) {
        utf8_flush(&c->utf8, &text);
        count_text(c, &text);
        c->stop_hit = stop_feed(&c->stop, text.p, text.n, &through);
        if (c->stop_hit < 0)
            stop_flush(&c->stop, &through);
        let_through(c, &through);
    }
    if (c->parse)
        scanner_end(&c->scan, c->why != JOB_EOS);
    c->oom |= text.failed || through.failed;
    buf_fini(&text);
    buf_fini(&through);
    /* An id of which a part was told counts as told. */
    c->told = told_up_to(c);
    size_t before = c->told > 0 ? c->ends[c->told - 1].bytes : 0;
    if (c->told < c->taken && before < c->let_n)
        c->told++;
}

static bool has_news(const struct choice *c)
{
    return c->content.n > 0 || c->reasoning.n > 0 || c->calls.news;
}

static void told(struct choice *c)
{
    buf_clear(&c->content);
    buf_clear(&c->reasoning);
    c->calls.news = false;
    c->told_before = c->told;
}

static bool out_of_memory(struct choice *c)
{
    if (!c->oom && !c->content.failed && !c->reasoning.failed && !scanner_failed(&c->scan))
        return false;
    struct api_err e;
    api_fail(&e, 500, NULL, "out of memory");
    answer_fail(c->a, &e);
    return true;
}

/* True when the answer has failed with it. */
static bool broke_off(struct choice *c)
{
    if (!c->broken)
        return false;
    struct api_err e;
    api_fail(&e, 500, NULL, "the model broke off a tool call: its arguments are no JSON object");
    answer_fail(c->a, &e);
    return true;
}

static void tell_news(struct choice *c)
{
    c->told = told_up_to(c);
    if (!c->a->p.stream || !has_news(c))
        return;
    c->a->surface->delta(c);
    told(c);
    flush(c->a);
}

/* ---- what the router says ---- */

static void on_accepted(void *arg)
{
    struct choice *c = arg;
    struct answer *a = c->a;
    if (!a->p.stream || a->begun)
        return;
    a->begun = true;
    http_stream(a->http, event_stream);
    a->surface->begin(a);
    flush(a);
}

static void on_progress(void *arg, uint32_t done, uint32_t total)
{
    struct choice *c = arg;
    if (!c->a->p.stream || !c->a->p.return_progress || !c->a->surface->progress)
        return;
    c->a->surface->progress(c, done, total);
    flush(c->a);
}

static void observe(struct choice *c, size_t from)
{
    struct stats *s = &c->a->gw->stats;
    uint64_t now = c->job.last_us;
    size_t forced = c->job.tr.n_forced, n = c->job.tr.n - (from > forced ? from : forced);
    if (transcript_made(&c->job.tr) == 0)
        return;
    s->generated_tokens += n;
    if (from <= forced) {
        c->made_us = now;
        hist_add(&s->ttft, (double)(now - c->a->start_us) / 1e6);
    } else { /* a step that brings k ids counts as k intervals */
        for (size_t k = n; k > 0; k--)
            hist_add(&s->itl, (double)(now - c->seen_us) / 1e6 / (double)n);
    }
    c->seen_us = now;
}

/* True when the choice has had enough: a stop string, its single call, its time. */
static bool enough(struct choice *c)
{
    const struct answer *a = c->a;
    if (c->stop_hit >= 0)
        return true;
    if (!a->o.parallel_tools && c->scan.calls > 0)
        return true;
    return a->p.t_max_predict_ms > 0 && c->newline &&
           c->job.last_us - c->made_us > (uint64_t)a->p.t_max_predict_ms * 1000;
}

static void on_tokens(void *arg, size_t from)
{
    struct choice *c = arg;
    observe(c, from);
    bool stop = false;
    /* An event for each, however many came together: clients count them. */
    for (size_t i = from; i < c->job.tr.n && !stop; i++) {
        stop = take_id(c, i);
        c->taken = i + 1;
        if (out_of_memory(c) || broke_off(c))
            return;
        tell_news(c);
    }
    if (!c->a->p.stream || http_pending(c->a->http) == 0)
        job_drained(&c->job);
    if (enough(c))
        job_stop(&c->job);
}

static void on_done(void *arg, enum job_why why, const struct api_err *e)
{
    struct choice *c = arg;
    struct answer *a = c->a;
    if (why == JOB_FAILED) {
        answer_fail(a, e);
        return;
    }
    c->over = true;
    c->why = why;
    if (why == JOB_STOPPED && c->stop_hit < 0 && c->scan.calls == 0)
        c->why = JOB_LENGTH; /* its time was up */
    c->truncated = why == JOB_LENGTH && (a->p.n_predict < 0 || (int64_t)c->job.max_new < a->p.n_predict);
    if (!a->begun && a->p.stream)
        on_accepted(c);
    close_text(c);
    if (out_of_memory(c) || broke_off(c))
        return;
    if (a->p.stream) {
        if (has_news(c) || c->told > c->told_before) {
            a->surface->delta(c);
            told(c);
        }
        a->surface->finish(c);
        flush(a);
    }
    if (++a->n_over == a->n_choices)
        answer_end(a);
}

static const struct job_ops job_ops = {
    .accepted = on_accepted, .progress = on_progress, .tokens = on_tokens, .done = on_done};

static void on_drained(void *arg)
{
    struct answer *a = arg;
    for (unsigned i = 0; i < a->n_choices; i++)
        job_drained(&a->choices[i].job);
}

/* ---- the beginning ---- */

static void make_id(struct answer *a)
{
    static const char alnum[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    uint8_t raw[32];
    size_t n = (size_t)snprintf(a->id, sizeof a->id, "%s", a->surface->prefix);
    vt_random(raw, sizeof raw);
    for (int i = 0; i < 32; i++)
        a->id[n++] = alnum[raw[i] % 62];
    a->id[n] = '\0';
}

static int check_prompt(struct answer *a, const struct answer_prompt *p, uint32_t window, struct api_err *e)
{
    uint32_t vocab = tok_n_vocab(a->gw->model.tok);
    if (p->n == 0)
        return api_fail(e, 400, a->surface->prompt_field, "the prompt is empty");
    if (p->n >= window)
        return api_fail_window(e, a->surface->prompt_field, (int64_t)p->n, window);
    for (size_t i = 0; i < p->n; i++)
        if (p->ids[i] >= vocab)
            return api_fail(e, 400, a->surface->prompt_field,
                            "token id %u is outside the vocabulary (0 to %u)", p->ids[i], vocab - 1);
    return 0;
}

/* Vocabularies put a mark or a space in front of a text, which the client has not written. */
static size_t echo_skip(const struct answer *a, const struct answer_prompt *p)
{
    struct buf text = {0};
    model_text(&a->gw->model, p->ids, p->n, &text);
    size_t more = text.n > p->text_n ? text.n - p->text_n : 0;
    bool same = text.n >= p->text_n && memcmp(text.p + more, p->text, p->text_n) == 0;
    buf_fini(&text);
    return same ? more : 0;
}

/* The prompt comes back with the log-probabilities of all its ids but the first, which nothing is in front of. */
static void echo_prompt(struct choice *c, const struct answer_prompt *p)
{
    c->job.tr.n_forced = p->n - 1;
    c->echo_skip = echo_skip(c->a, p);
    echo_id(c, p->ids[0]);
    c->head_chars = c->chars;
}

static int init_choice(struct answer *a, unsigned i, uint32_t window, struct api_err *e)
{
    struct choice *c = &a->choices[i];
    const struct answer_prompt *p = &a->prompts[i / a->n_per_prompt];
    const struct params *q = &a->p;
    uint32_t *ids = malloc(p->n * sizeof *ids);
    c->a = a;
    c->index = i;
    c->stop_hit = -1;
    if (!ids || stop_init(&c->stop, q->stop)) {
        free(ids);
        return api_fail(e, 500, NULL, "out of memory");
    }
    memcpy(ids, p->ids, p->n * sizeof *ids);
    transcript_init(&c->job.tr, ids, p->n, a->o.logprobs, a->o.n_top);
    if (a->o.echo && a->o.logprobs)
        echo_prompt(c, p);
    const bool frames =
        a->gw->model.dialect->body == BODY_HARMONY && (a->o.think || a->o.tools || a->o.show_think);
    c->parse = a->o.think || a->o.tools || frames;
    const struct scan_rules rules = {.dialect = a->o.tools ? a->gw->model.dialect : NULL,
                                     .think = a->o.think ? a->gw->model.think : NULL,
                                     .tools = a->o.tool_list,
                                     .frames = frames,
                                     .think_open = a->o.think_open,
                                     .forced = a->o.forced,
                                     .single = !a->o.parallel_tools};
    scanner_init(&c->scan, &rules, &parts, c);
    uint32_t room = window - (uint32_t)p->n;
    c->job.ops = &job_ops;
    c->job.arg = c;
    c->job.label = a->id;
    c->job.max_new = q->n_predict < 0 || q->n_predict > room ? room : (uint32_t)q->n_predict;
    c->job.slot = (int32_t)q->id_slot;
    c->job.reuse = q->cache_prompt;
    c->job.grammar = q->constrain.bytes;
    c->job.n_grammar = q->constrain.n_bytes;
    /* Choices of one request differ by their seeds, in a way that repeats when the request is. */
    c->job.sampling = q->s;
    c->job.sampling.seed = (q->s.seed + i) & INT64_MAX;
    return 0;
}

/* A stream tells them as they come, a whole answer holds all of them at once. */
static int check_echo(const struct answer *a, struct api_err *e)
{
    enum { MOST = 131072 };
    uint64_t n = 0;
    for (unsigned i = 0; i < a->n_prompts; i++)
        n += (uint64_t)a->prompts[i].n * a->n_per_prompt * (1 + a->o.n_top);
    if (!a->o.echo || !a->o.logprobs || a->p.stream || n <= MOST)
        return 0;
    return api_fail(
        e, 400, "logprobs",
        "Field 'logprobs': with 'echo' the answer would hold %llu log-probabilities of the prompt, "
        "at most %d are possible; ask for fewer alternatives or for a stream",
        (unsigned long long)n, MOST);
}

static int prepare(struct answer *a, struct api_err *e)
{
    uint32_t window = router_window(&a->gw->router);
    unsigned want = a->n_prompts * a->n_per_prompt;
    for (unsigned i = 0; i < a->n_prompts; i++)
        if (check_prompt(a, &a->prompts[i], window, e))
            return -1;
    if (check_echo(a, e) || router_admit(&a->gw->router, want, e))
        return -1;
    a->choices = calloc(want, sizeof *a->choices);
    if (!a->choices)
        return api_fail(e, 500, NULL, "out of memory");
    for (; a->n_choices < want; a->n_choices++)
        if (init_choice(a, a->n_choices, window, e))
            return -1;
    for (unsigned i = 0; i < a->n_choices; i++)
        if (blame_check(&a->gw->router, &a->choices[i].job, e))
            return -1;
    return 0;
}

void answer_start(struct gateway *gw, struct http_req *r, const struct surface *s, struct params *p,
                  const struct answer_opts *o, struct answer_prompt *prompts, unsigned n_prompts)
{
    struct api_err e;
    struct answer *a = calloc(1, sizeof *a);
    struct answer_prompt *copy = malloc(n_prompts * sizeof *copy);
    if (!a || !copy) {
        for (unsigned i = 0; i < n_prompts; i++) {
            free(prompts[i].ids);
            free(prompts[i].text);
        }
        params_fini(p);
        json_decref(o->extra);
        json_decref(o->tool_list);
        free(a);
        free(copy);
        api_fail(&e, 500, NULL, "out of memory");
        api_error_reply(r, &e);
        return;
    }
    memcpy(copy, prompts, n_prompts * sizeof *copy);
    a->gw = gw;
    a->http = r;
    a->surface = s;
    a->p = *p;
    a->o = *o;
    a->prompts = copy;
    a->n_prompts = n_prompts;
    a->n_per_prompt = (unsigned)p->n;
    a->start_us = vt_mono(&gw->clock);
    a->created = (int64_t)(vt_wall(&gw->clock) / 1000000);
    make_id(a);
    a->next = gw->answers;
    if (gw->answers)
        gw->answers->prev = a;
    gw->answers = a;
    if (prepare(a, &e)) {
        answer_fail(a, &e);
        return;
    }
    const struct http_claim claim = {.gone = on_gone, .drained = on_drained, .arg = a};
    http_claim(r, &claim);
    for (unsigned i = 0; i < a->n_choices; i++)
        router_start(&gw->router, &a->choices[i].job);
}

void answers_ping(struct gateway *gw)
{
    uint64_t now = vt_mono(&gw->clock);
    int64_t usual = vt_config_int(gw->cfg, VT_CFG_HTTP_KEEPALIVE_S);
    for (struct answer *a = gw->answers; a; a = a->next) {
        int64_t every = a->p.ping_s ? a->p.ping_s : usual;
        if (!a->begun || every < 0 || now - http_last_write(a->http) < VT_SEC(every) ||
            http_pending(a->http) > 0)
            continue;
        http_write(a->http, ":\n\n", 3);
        gw->stats.pings++;
    }
}
