/* POST /v1/messages and /v1/messages/count_tokens: the Messages API over the chat surface. */
#include "api.h"
#include "messages_body.h"
#include "openai_chat.h"
#include "scribe.h"

#include <stdlib.h>
#include <string.h>

/* ---- the object ---- */

static const char *reason(const struct choice *c)
{
    if (c->why == JOB_LENGTH)
        return "max_tokens";
    if (calls_are_whole(&c->calls))
        return "tool_use";
    return c->stop_hit >= 0 ? "stop_sequence" : "end_turn";
}

static json_t *stop_sequence(const struct choice *c)
{
    size_t n;
    const char *text = choice_stop_text(c, &n);
    return n > 0 ? json_stringn(text, n) : json_null();
}

static json_t *text_of(const struct buf *b)
{
    return json_stringn(b->p ? b->p : "", b->n);
}

/* What was taken from the cache is counted apart here. */
static json_t *usage(const struct choice *c)
{
    const struct job *j = &c->job;
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", (json_int_t)j->tr.n_prompt - j->reused,
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens",
                     (json_int_t)j->reused, "output_tokens", (json_int_t)transcript_made(&j->tr));
}

static json_t *message(const struct choice *c, json_t *content, bool over)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", c->a->id, "type", "message", "role",
                     "assistant", "model", c->a->gw->model.alias, "content", content, "stop_reason",
                     over ? json_string(reason(c)) : json_null(), "stop_sequence",
                     over ? stop_sequence(c) : json_null(), "usage", usage(c));
}

static json_t *blocks(const struct choice *c)
{
    json_t *list = json_array();
    if (c->reasoning.n > 0)
        json_array_append_new(list, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                              text_of(&c->reasoning), "signature", ""));
    if (c->content.n > 0)
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "text", "text", text_of(&c->content)));
    for (size_t i = 0; i < c->calls.n; i++) {
        const struct tool_call *t = &c->calls.v[i];
        json_t *input =
            t->args.n > 0 ? json_loadb(t->args.p, t->args.n, JSON_ALLOW_NUL, NULL) : json_object();
        if (input) /* one that a limit has cut is no call */
            json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", t->id,
                                                  "name", t->name, "input", input));
    }
    return list;
}

/* ---- the stream: blocks one behind the other, each opened and closed ---- */

enum { NONE, THINKING, TEXT, TOOL };

static int get(const struct answer *a, const char *key)
{
    return (int)json_integer_value(json_object_get(a->o.extra, key));
}

static void put(struct answer *a, const char *key, int v)
{
    json_object_set_new(a->o.extra, key, json_integer(v));
}

static void block_close(struct answer *a)
{
    int index = get(a, "index");
    if (get(a, "open") == NONE)
        return;
    if (get(a, "open") == THINKING)
        answer_event(a, json_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_delta", "index", index,
                                  "delta", "type", "signature_delta", "signature", ""));
    answer_event(a, json_pack("{s:s, s:i}", "type", "content_block_stop", "index", index));
    put(a, "open", NONE);
    put(a, "index", index + 1);
}

static void block_open(struct answer *a, int kind, json_t *block)
{
    block_close(a);
    answer_event(a, json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", get(a, "index"),
                              "content_block", block));
    put(a, "open", kind);
}

static void block_delta(struct answer *a, const char *type, const char *key, const struct buf *text)
{
    answer_event(a, json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                              get(a, "index"), "delta", "type", type, key, text_of(text)));
}

static void begin(struct answer *a)
{
    const struct choice *c = &a->choices[0];
    answer_event(
        a, json_pack("{s:s, s:o}", "type", "message_start", "message", message(c, json_array(), false)));
}

static void tell_call(struct choice *c, struct tool_call *t)
{
    if (!t->told)
        block_open(
            c->a, TOOL,
            json_pack("{s:s, s:s, s:s, s:{}}", "type", "tool_use", "id", t->id, "name", t->name, "input"));
    t->told = true;
    if (t->args.n > 0)
        block_delta(c->a, "input_json_delta", "partial_json", &t->args);
    buf_clear(&t->args);
}

static void delta(struct choice *c)
{
    struct answer *a = c->a;
    if (c->reasoning.n > 0) {
        if (get(a, "open") != THINKING)
            block_open(a, THINKING,
                       json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
        block_delta(a, "thinking_delta", "thinking", &c->reasoning);
    }
    if (c->content.n > 0) {
        if (get(a, "open") != TEXT)
            block_open(a, TEXT, json_pack("{s:s, s:s}", "type", "text", "text", ""));
        block_delta(a, "text_delta", "text", &c->content);
    }
    for (size_t i = 0; i < c->calls.n && c->calls.news; i++) {
        struct tool_call *t = &c->calls.v[i];
        if (!t->told || t->args.n > 0)
            tell_call(c, t);
    }
}

static void finish(struct choice *c)
{
    block_close(c->a);
    answer_event(c->a, json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta", "stop_reason",
                                 reason(c), "stop_sequence", stop_sequence(c), "usage", usage(c)));
}

static void end(struct answer *a)
{
    if (a->p.stream)
        answer_event(a, json_pack("{s:s}", "type", "message_stop"));
    else
        api_reply_json(a->http, 200, message(&a->choices[0], blocks(&a->choices[0]), true));
}

static const struct surface surface = {
    .prefix = "msg_",
    .object = "message",
    .terminator = NULL,
    .named = true,
    .prompt_field = "messages",
    .begin = begin,
    .delta = delta,
    .finish = finish,
    .end = end,
};

/* ---- the request ---- */

static int draft(struct draft *d, struct api_err *e)
{
    if (draft_converted(d, messages_body, chat_draft, e))
        return -1;
    d->o.extra = json_pack("{s:i, s:i}", "open", NONE, "index", 0);
    return d->o.extra ? 0 : api_fail(e, 500, NULL, "out of memory");
}

void api_messages(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft, &surface);
}

static int draft_count(struct draft *d, struct api_err *e)
{
    if (draft_converted(d, messages_body, chat_draft_count, e))
        return -1;
    json_object_del(d->reply, "object");
    return 0;
}

void api_messages_count(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft_count, NULL);
}
