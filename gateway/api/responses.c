/* POST /v1/responses and /v1/responses/input_tokens: the Responses API over the chat surface. */
#include "api.h"
#include "openai_chat.h"
#include "responses_body.h"
#include "scribe.h"

#include <stdlib.h>
#include <string.h>

/* ---- items ---- */

enum { NONE, THOUGHT, TEXT, CALL };

static const char *const id_of[] = {"", "rs_", "msg_", "fc_"};
static const char *const part_of[] = {"", "reasoning_text", "output_text", ""};

static json_t *item_id(const struct answer *a, int kind, int index)
{
    return json_sprintf("%s%s_%d", id_of[kind], a->id + strlen(a->surface->prefix), index);
}

static json_t *part(int kind, json_t *text)
{
    return kind == TEXT ? json_pack("{s:s, s:o, s:[], s:[]}", "type", part_of[kind], "text", text,
                                    "annotations", "logprobs")
                        : json_pack("{s:s, s:o}", "type", part_of[kind], "text", text);
}

/* text: steals; NULL: an item that only begins. */
static json_t *text_item(const struct answer *a, int kind, int index, json_t *text)
{
    json_t *o =
        json_pack("{s:o, s:s, s:s, s:o}", "id", item_id(a, kind, index), "type",
                  kind == TEXT ? "message" : "reasoning", "status", text ? "completed" : "in_progress",
                  "content", text ? json_pack("[o]", part(kind, text)) : json_array());
    if (kind == TEXT)
        json_object_set_new(o, "role", json_string("assistant"));
    else
        json_object_set_new(o, "summary", json_array());
    return o;
}

static json_t *call_item(const struct answer *a, int index, const struct tool_call *t, json_t *args,
                         bool over)
{
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:o}", "id", item_id(a, CALL, index), "type", "function_call",
                     "status", over ? "completed" : "in_progress", "call_id", t->id, "name", t->name,
                     "arguments", args);
}

static json_t *string_of(const struct buf *b)
{
    return json_stringn(b->p ? b->p : "", b->n);
}

static json_t *whole_output(const struct choice *c)
{
    json_t *list = json_array();
    int n = 0;
    if (c->reasoning.n > 0)
        json_array_append_new(list, text_item(c->a, THOUGHT, n++, string_of(&c->reasoning)));
    if (c->content.n > 0 || c->calls.n == 0)
        json_array_append_new(list, text_item(c->a, TEXT, n++, string_of(&c->content)));
    for (size_t i = 0; i < c->calls.n; i++)
        json_array_append_new(
            list, call_item(c->a, n++, &c->calls.v[i], string_of(&c->calls.v[i].args), c->calls.v[i].whole));
    return list;
}

/* ---- the response ---- */

static json_t *usage(const struct answer *a)
{
    const struct choice *c = &a->choices[0];
    json_int_t in = (json_int_t)c->job.tr.n_prompt, out = (json_int_t)transcript_made(&c->job.tr);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "input_tokens", in, "output_tokens", out,
                     "total_tokens", in + out, "input_tokens_details", "cached_tokens",
                     (json_int_t)c->job.reused, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)c->reasoning_tokens);
}

static const char *status(const struct choice *c)
{
    return !c->over ? "in_progress" : c->why == JOB_LENGTH ? "incomplete" : "completed";
}

static json_t *response(const struct answer *a, json_t *output)
{
    const struct choice *c = &a->choices[0];
    bool cut = c->over && c->why == JOB_LENGTH;
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:n, s:s, s:o, s:b, s:s}", "id", a->id, "object", "response",
                          "created_at", (json_int_t)a->created, "status", status(c), "error", "model",
                          a->gw->model.alias, "output", output, "parallel_tool_calls", a->o.parallel_tools,
                          "tool_choice", a->o.forced ? "required" : "auto");
    json_object_set_new(o, "incomplete_details",
                        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    json_object_set_new(o, "tools", json_array());
    json_object_set_new(o, "metadata", json_object());
    json_object_set_new(o, "store", json_false());
    json_object_set_new(o, "temperature", json_real(a->p.s.temperature));
    json_object_set_new(o, "top_p", json_real(a->p.s.top_p));
    json_object_set_new(o, "usage", c->over ? usage(a) : json_null());
    if (c->over)
        json_object_set_new(o, "completed_at", json_integer((json_int_t)(vt_wall(&a->gw->clock) / 1000000)));
    return o;
}

/* ---- the stream. a->o.extra: the open item, the pieces of its text, the items that are over, the number of events ---- */

static int get(const struct answer *a, const char *key)
{
    return (int)json_integer_value(json_object_get(a->o.extra, key));
}

static void put(struct answer *a, const char *key, int v)
{
    json_object_set_new(a->o.extra, key, json_integer(v));
}

static void event(struct answer *a, const char *type, json_t *o)
{
    int n = get(a, "events");
    json_object_set_new(o, "type", json_string(type));
    json_object_set_new(o, "sequence_number", json_integer(n));
    put(a, "events", n + 1);
    answer_event(a, o);
}

/* Where an event belongs. */
static json_t *at(const struct answer *a)
{
    int kind = get(a, "open"), index = get(a, "index");
    json_t *o = json_pack("{s:o, s:i}", "item_id", item_id(a, kind, index), "output_index", index);
    if (kind != CALL)
        json_object_set_new(o, "content_index", json_integer(0));
    return o;
}

static json_t *with(json_t *o, const char *key, json_t *v)
{
    json_object_set_new(o, key, v);
    return o;
}

static json_t *pieces_joined(const struct answer *a)
{
    struct buf all = {0};
    size_t i;
    json_t *piece;
    json_array_foreach(json_object_get(a->o.extra, "pieces"), i, piece)
        buf_add(&all, json_string_value(piece), json_string_length(piece));
    json_t *text = all.failed ? NULL : string_of(&all);
    buf_fini(&all);
    return text;
}

static void text_over(struct answer *a, int kind, json_t *text)
{
    event(a, kind == TEXT ? "response.output_text.done" : "response.reasoning_text.done",
          with(at(a), "text", json_incref(text)));
    event(a, "response.content_part.done", with(at(a), "part", part(kind, json_incref(text))));
}

static void item_close(struct choice *c)
{
    struct answer *a = c->a;
    int kind = get(a, "open"), index = get(a, "index");
    json_t *text = kind == NONE ? NULL : pieces_joined(a), *item;
    if (kind == NONE)
        return;
    if (kind == CALL) {
        const struct tool_call *t = &c->calls.v[get(a, "call")];
        event(a, "response.function_call_arguments.done",
              with(with(at(a), "arguments", json_incref(text)), "name", json_string(t->name)));
        item = call_item(a, index, t, json_incref(text), t->whole);
    } else {
        text_over(a, kind, text);
        item = text_item(a, kind, index, json_incref(text));
    }
    event(a, "response.output_item.done", json_pack("{s:i, s:O}", "output_index", index, "item", item));
    json_array_append_new(json_object_get(a->o.extra, "items"), item);
    json_decref(text);
    json_array_clear(json_object_get(a->o.extra, "pieces"));
    put(a, "open", NONE);
    put(a, "index", index + 1);
}

/* item: the one that begins; steals. */
static void item_open(struct choice *c, int kind, json_t *item)
{
    struct answer *a = c->a;
    put(a, "open", kind);
    event(a, "response.output_item.added",
          json_pack("{s:i, s:o}", "output_index", get(a, "index"), "item", item));
    if (kind != CALL)
        event(a, "response.content_part.added", with(at(a), "part", part(kind, json_string(""))));
}

static void tell(struct answer *a, const char *type, const struct buf *text)
{
    json_t *piece = string_of(text);
    json_array_append(json_object_get(a->o.extra, "pieces"), piece);
    event(a, type, with(at(a), "delta", piece));
}

static void tell_text(struct choice *c, int kind, const char *type, const struct buf *text)
{
    struct answer *a = c->a;
    if (text->n == 0)
        return;
    if (get(a, "open") != kind) {
        item_close(c);
        item_open(c, kind, text_item(a, kind, get(a, "index"), NULL));
    }
    tell(a, type, text);
}

static void tell_call(struct choice *c, size_t i)
{
    struct tool_call *t = &c->calls.v[i];
    struct answer *a = c->a;
    if (!t->told) {
        item_close(c);
        put(a, "call", (int)i);
        item_open(c, CALL, call_item(a, get(a, "index"), t, json_string(""), false));
    }
    t->told = true;
    if (t->args.n > 0)
        tell(a, "response.function_call_arguments.delta", &t->args);
    buf_clear(&t->args);
}

static void begin(struct answer *a)
{
    event(a, "response.created", json_pack("{s:o}", "response", response(a, json_array())));
    event(a, "response.in_progress", json_pack("{s:o}", "response", response(a, json_array())));
}

static void delta(struct choice *c)
{
    tell_text(c, THOUGHT, "response.reasoning_text.delta", &c->reasoning);
    tell_text(c, TEXT, "response.output_text.delta", &c->content);
    for (size_t i = 0; i < c->calls.n && c->calls.news; i++)
        if (!c->calls.v[i].told || c->calls.v[i].args.n > 0)
            tell_call(c, i);
}

static void finish(struct choice *c)
{
    struct answer *a = c->a;
    item_close(c);
    event(a, c->why == JOB_LENGTH ? "response.incomplete" : "response.completed",
          json_pack("{s:o}", "response", response(a, json_incref(json_object_get(a->o.extra, "items")))));
}

/* One terminal event in every case. */
static void fail(struct answer *a, const struct api_err *e)
{
    json_t *r = response(a, json_incref(json_object_get(a->o.extra, "items"))), *err = api_error_json(e),
           *why = json_object_get(err, "error");
    json_object_set_new(r, "status", json_string("failed"));
    json_object_set_new(r, "error",
                        json_pack("{s:O, s:O}", "code", json_object_get(why, "type"), "message",
                                  json_object_get(why, "message")));
    json_decref(err);
    event(a, "response.failed", json_pack("{s:o}", "response", r));
}

static void end(struct answer *a)
{
    if (!a->p.stream)
        api_reply_json(a->http, 200, response(a, whole_output(&a->choices[0])));
}

static const struct surface surface = {
    .prefix = "resp_",
    .object = "response",
    .terminator = NULL,
    .named = true,
    .prompt_field = "input",
    .begin = begin,
    .delta = delta,
    .finish = finish,
    .end = end,
    .fail = fail,
};

/* ---- the request ---- */

static int draft(struct draft *d, struct api_err *e)
{
    if (draft_converted(d, responses_body, chat_draft, e))
        return -1;
    d->o.extra = json_pack("{s:i, s:i, s:i, s:i, s:[], s:[]}", "open", NONE, "index", 0, "call", 0, "events",
                           0, "pieces", "items");
    return d->o.extra ? 0 : api_fail(e, 500, NULL, "out of memory");
}

void api_responses(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft, &surface);
}

static int draft_count(struct draft *d, struct api_err *e)
{
    return draft_converted(d, responses_body, chat_draft_count, e);
}

void api_responses_count(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft_count, NULL);
}
