#include "tool_text.h"

#include "../http/buf.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct api_err *e)
{
    return api_fail(e, 500, NULL, "out of memory");
}

static void add_json(struct buf *b, const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text)
        buf_puts(b, text);
    else
        b->failed = true;
    free(text);
}

static const char *role_of(const json_t *m)
{
    return json_string_value(json_object_get(m, "role"));
}

static bool is(const json_t *m, const char *role)
{
    return m && strcmp(role_of(m), role) == 0;
}

/* Takes b's text for the message's content. */
static int set_content(json_t *m, struct buf *b, struct api_err *e)
{
    json_t *s = b->failed ? NULL : json_stringn(b->p ? b->p : "", b->n);
    buf_fini(b);
    return !s || json_object_set_new(m, "content", s) ? no_memory(e) : 0;
}

static void add_content(struct buf *b, const json_t *m)
{
    const json_t *c = json_object_get(m, "content");
    if (json_string_length(c) == 0)
        return;
    if (b->n > 0)
        buf_puts(b, "\n\n");
    buf_add(b, json_string_value(c), json_string_length(c));
}

/* An assistant message's calls go behind its content. Arguments may be text of JSON or an object. */
static int write_calls(json_t *m, struct api_err *e)
{
    struct buf b = {0};
    size_t i;
    json_t *call, *calls = json_object_get(m, "tool_calls");
    add_content(&b, m);
    json_array_foreach(calls, i, call)
    {
        const json_t *f = json_object_get(call, "function"), *args = json_object_get(f, "arguments");
        buf_puts(&b, b.n > 0 ? "\n<tool_call>\n{\"name\":" : "<tool_call>\n{\"name\":");
        add_json(&b, json_object_get(f, "name"));
        buf_puts(&b, ",\"arguments\":");
        if (json_is_string(args))
            buf_add(&b, json_string_value(args), json_string_length(args));
        else
            add_json(&b, args);
        buf_puts(&b, "}\n</tool_call>");
    }
    json_object_del(m, "tool_calls");
    return set_content(m, &b, e);
}

/* A result becomes a user's message; results in a row, and what the user says behind them, become one, since many templates
 * want the roles to alternate. *merged: message i has become part of the one before. */
static int write_result(json_t *messages, size_t i, bool *merged, struct api_err *e)
{
    json_t *m = json_array_get(messages, i), *before = i > 0 ? json_array_get(messages, i - 1) : NULL;
    bool result = is(m, "tool");
    struct buf b = {0};
    *merged = is(before, "user") && (result || (is(m, "user") && json_object_get(before, "result")));
    if (!result && !*merged)
        return 0;
    if (*merged)
        add_content(&b, before);
    if (result) {
        const json_t *c = json_object_get(m, "content");
        buf_puts(&b, b.n > 0 ? "\n<tool_response>\n" : "<tool_response>\n");
        buf_add(&b, json_string_value(c), json_string_length(c));
        buf_puts(&b, "\n</tool_response>");
        json_object_set_new(m, "role", json_string("user"));
        json_object_set_new(*merged ? before : m, "result", json_true());
    } else {
        add_content(&b, m);
    }
    return set_content(*merged ? before : m, &b, e);
}

static int write_tools(json_t *messages, const json_t *tools, const struct template_caps *caps,
                       struct api_err *e)
{
    struct buf b = {0};
    size_t i;
    json_t *t, *first = json_array_get(messages, 0);
    buf_puts(&b, "You may call functions. Each line between <tools> and </tools> describes one:\n<tools>");
    json_array_foreach(tools, i, t)
    {
        buf_puts(&b, "\n");
        add_json(&b, json_object_get(t, "function"));
    }
    buf_puts(
        &b,
        "\n</tools>\nTo call one, write nothing else than its name and its arguments in this "
        "form:\n<tool_call>\n"
        "{\"name\":\"…\",\"arguments\":{…}}\n</tool_call>\nIts result comes back between <tool_response> and "
        "</tool_response>.");
    if (is(first, "system") || (!caps->system && is(first, "user"))) {
        add_content(&b, first);
        return set_content(first, &b, e);
    }
    json_t *m = json_pack("{s:s}", "role", caps->system ? "system" : "user");
    if (!m || json_array_insert_new(messages, 0, m)) {
        buf_fini(&b);
        return no_memory(e);
    }
    return set_content(m, &b, e);
}

int tool_text_write(json_t *messages, const json_t *tools, const struct template_caps *caps,
                    struct api_err *e)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        bool merged = false;
        if (json_object_get(m, "tool_calls") ? write_calls(m, e) : write_result(messages, i, &merged, e))
            return -1;
        if (merged)
            json_array_remove(messages, i--);
    }
    for (size_t i = 0; i < json_array_size(messages); i++)
        json_object_del(json_array_get(messages, i), "result");
    return tools ? write_tools(messages, tools, caps, e) : 0;
}
