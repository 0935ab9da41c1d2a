#include "responses_body.h"

#include "params.h"

#include <stdlib.h>
#include <string.h>

static int bad(struct api_err *e, size_t i, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "input[%zu]", i);
    return api_fail(e, 400, param, "Field 'input[%zu]%s", i, what);
}

/* Text parts in the words of chat; NULL: e says why. */
static json_t *text_parts(const json_t *content, size_t at, struct api_err *e)
{
    json_t *parts = json_array(), *part;
    size_t i;
    json_array_foreach(content, i, part)
    {
        json_t *text = json_object_get(part, "text");
        bool known = field_type_is(part, "input_text") || field_type_is(part, "output_text") ||
                     field_type_is(part, "text") || field_type_is(part, "reasoning_text") ||
                     field_type_is(part, "summary_text");
        if (!known || !json_is_string(text)) {
            json_decref(parts);
            bad(e, at,
                field_type_is(part, "input_image") || field_type_is(part, "input_file")
                    ? ".content': images and files are not supported by this model"
                    : ".content': each part must be {\"type\":\"input_text\",\"text\":…}");
            return NULL;
        }
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    }
    return parts;
}

/* A string as it is, parts as text parts; NULL: e says why. */
static json_t *text_of(json_t *v, size_t at, struct api_err *e)
{
    if (json_is_string(v))
        return json_incref(v);
    if (json_is_array(v) && json_array_size(v) == 0)
        return json_string("");
    if (json_is_array(v))
        return text_parts(v, at, e);
    bad(e, at, "': its text must be a string or an array of parts");
    return NULL;
}

/* ---- items ---- */

/* Calls and thoughts that stand alone here belong to one message of the assistant there. */
static json_t *assistant_at_end(json_t *out)
{
    json_t *last = json_array_get(out, json_array_size(out) - 1);
    if (json_array_size(out) > 0 && strcmp(field_word(last, "role"), "assistant") == 0)
        return last;
    json_t *m = json_pack("{s:s, s:n}", "role", "assistant", "content");
    json_array_append_new(out, m);
    return m;
}

static int add_call(const json_t *item, size_t at, json_t *out, struct api_err *e)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"),
           *args = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(args))
        return bad(e, at, "': a function_call needs call_id, name and arguments, strings");
    json_t *m = assistant_at_end(out);
    if (!json_object_get(m, "tool_calls"))
        json_object_set_new(m, "tool_calls", json_array());
    return json_array_append_new(json_object_get(m, "tool_calls"),
                                 json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function",
                                           "function", "name", name, "arguments", args));
}

static int add_output(const json_t *item, size_t at, json_t *out, struct api_err *e)
{
    json_t *id = json_object_get(item, "call_id");
    if (!json_is_string(id))
        return bad(e, at, "': a function_call_output needs call_id");
    json_t *text = text_of(json_object_get(item, "output"), at, e);
    return !text ? -1
                 : json_array_append_new(out, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id,
                                                        "content", text));
}

static int add_thought(const json_t *item, json_t *out)
{
    json_t *content = json_object_get(item, "content"), *part;
    struct buf text = {0};
    size_t i;
    json_array_foreach(content, i, part) buf_puts(&text, field_word(part, "text"));
    if (text.n > 0)
        json_array_append_new(out, json_pack("{s:s, s:n, s:s%}", "role", "assistant", "content",
                                             "reasoning_content", text.p, text.n));
    buf_fini(&text);
    return 0;
}

static int add_message(const json_t *item, size_t at, json_t *out, struct api_err *e)
{
    json_t *role = json_object_get(item, "role");
    if (!json_is_string(role))
        return bad(e, at, "': a message needs a role");
    json_t *text = text_of(json_object_get(item, "content"), at, e);
    if (!text)
        return -1;
    json_t *last = json_array_get(out, json_array_size(out) - 1);
    bool thought = json_array_size(out) > 0 && json_object_get(last, "reasoning_content") &&
                   json_is_null(json_object_get(last, "content")) && !json_object_get(last, "tool_calls");
    if (thought && strcmp(json_string_value(role), "assistant") == 0)
        return json_object_set_new(last, "content", text);
    return json_array_append_new(out, json_pack("{s:O, s:o}", "role", role, "content", text));
}

static int add_item(const json_t *item, size_t at, json_t *out, struct api_err *e)
{
    const char *type = field_word(item, "type");
    if (!json_is_object(item))
        return bad(e, at, "': must be an object");
    if (strcmp(type, "message") == 0 || (!*type && json_object_get(item, "role")))
        return add_message(item, at, out, e);
    if (strcmp(type, "function_call") == 0)
        return add_call(item, at, out, e);
    if (strcmp(type, "function_call_output") == 0)
        return add_output(item, at, out, e);
    if (strcmp(type, "reasoning") == 0)
        return add_thought(item, out);
    if (strcmp(type, "item_reference") == 0)
        return bad(e, at, "': earlier responses are not kept here; send the item itself");
    return *type ? 0 : bad(e, at, "': needs a type"); /* what services of their own have done */
}

static int set_messages(const json_t *body, json_t *out, struct api_err *e)
{
    json_t *input = field(body, "input"), *about = field(body, "instructions"), *list = json_array(), *item;
    size_t i;
    if (json_object_set_new(out, "messages", list))
        return api_fail(e, 500, NULL, "out of memory");
    if (about && !json_is_string(about))
        return api_fail(e, 400, "instructions", "Field 'instructions': must be a string");
    if (json_string_length(about) > 0)
        json_array_append_new(list, json_pack("{s:s, s:O}", "role", "system", "content", about));
    if (json_is_string(input))
        return json_array_append_new(list, json_pack("{s:s, s:O}", "role", "user", "content", input));
    if (input && !json_is_array(input))
        return api_fail(e, 400, "input", "Field 'input': must be a string or an array of items");
    json_array_foreach(input, i, item)
    {
        if (add_item(item, i, list, e))
            return -1;
    }
    if (json_array_size(input) == 0) /* clients look in this way whether somebody is there */
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", ""));
    return 0;
}

/* ---- the rest ---- */

/* Tools that a service of its own would run are left out: a model cannot call them here. */
static int set_tools(const json_t *body, json_t *out, struct api_err *e)
{
    static const char *const keys[] = {"name", "description", "parameters", "strict"};
    json_t *tools = field(body, "tools"), *list, *one;
    size_t i;
    if (!tools)
        return 0;
    if (!json_is_array(tools))
        return api_fail(e, 400, "tools", "Field 'tools': must be an array");
    list = json_array();
    json_array_foreach(tools, i, one)
    {
        if (!field_type_is(one, "function"))
            continue;
        json_t *f = json_object();
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (field(one, keys[k]))
                json_object_set(f, keys[k], field(one, keys[k]));
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    return json_object_set_new(out, "tools", list);
}

static void set_choice(const json_t *body, json_t *out)
{
    const json_t *choice = field(body, "tool_choice");
    if (json_is_string(choice))
        json_object_set(out, "tool_choice", (json_t *)(uintptr_t)choice);
    else if (field_type_is(choice, "function"))
        json_object_set_new(
            out, "tool_choice",
            json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", field_word(choice, "name")));
}

static int set_format(const json_t *body, json_t *out, struct api_err *e)
{
    json_t *format = field(field(body, "text"), "format");
    if (!format)
        return 0;
    if (!field_type_is(format, "json_schema"))
        return json_object_set(out, "response_format", format);
    json_t *schema = json_copy(format);
    if (!schema || json_object_del(schema, "type"))
        return api_fail(e, 500, NULL, "out of memory");
    return json_object_set_new(out, "response_format",
                               json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", schema));
}

static int fill(const json_t *body, json_t *out, struct api_err *e)
{
    static const char *const own[] = {
        "input",   "instructions",      "tools",     "tool_choice", "text",       "metadata",     "n",
        "include", "max_output_tokens", "reasoning", "store",       "background", "top_logprobs", "logprobs"};
    static const char *const kept[] = {"previous_response_id", "conversation"};
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
        if (field(body, kept[k]))
            return api_fail(e, 400, kept[k],
                            "Field '%s': earlier responses are not kept here; send their items as input",
                            kept[k]);
    for (size_t k = 0; k < sizeof own / sizeof *own; k++)
        json_object_del(out, own[k]);
    if (field(body, "max_output_tokens"))
        json_object_set(out, "max_tokens", field(body, "max_output_tokens"));
    if (field(field(body, "reasoning"), "effort"))
        json_object_set(out, "reasoning_effort", field(field(body, "reasoning"), "effort"));
    set_choice(body, out);
    return set_messages(body, out, e) || set_tools(body, out, e) || set_format(body, out, e) ? -1 : 0;
}

json_t *responses_body(const json_t *body, struct api_err *e)
{
    json_t *out = json_copy((json_t *)(uintptr_t)body); /* its top alone; reads only */
    *e = (struct api_err){0};
    if (out && fill(body, out, e) == 0)
        return out;
    json_decref(out);
    if (!e->status)
        api_fail(e, 500, NULL, "out of memory");
    return NULL;
}
