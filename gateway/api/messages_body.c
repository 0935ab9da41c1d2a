#include "messages_body.h"

#include "params.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 4096 /* when the request does not say */ };

static int bad(struct api_err *e, size_t i, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]", i);
    return api_fail(e, 400, param, "Field 'messages[%zu]%s", i, what);
}

static json_t *text_part(const json_t *block)
{
    json_t *text = json_object_get(block, "text");
    return json_pack("{s:s, s:O}", "type", "text", "text", text);
}

/* A client of this API puts a line of its own accounting first; it changes with every request, and with it every prefix. */
static bool is_accounting(const json_t *text)
{
    return json_string_length(text) >= 12 && memcmp(json_string_value(text), "x-anthropic-", 12) == 0;
}

static int add_system(const json_t *system, json_t *out, struct api_err *e)
{
    size_t i;
    json_t *block, *parts;
    if (!system)
        return 0;
    if (json_is_string(system))
        return json_array_append_new(out, json_pack("{s:s, s:O}", "role", "system", "content", system));
    if (!json_is_array(system))
        return api_fail(e, 400, "system", "Field 'system': must be a string or an array of text blocks");
    parts = json_array();
    json_array_foreach(system, i, block)
    {
        const json_t *text = json_object_get(block, "text");
        if (!field_type_is(block, "text") || !json_is_string(text)) {
            json_decref(parts);
            return api_fail(e, 400, "system", "Field 'system[%zu]': must be a text block", i);
        }
        if (!is_accounting(text))
            json_array_append_new(parts, text_part(block));
    }
    if (json_array_size(parts) == 0) {
        json_decref(parts);
        return 0;
    }
    return json_array_append_new(out, json_pack("{s:s, s:o}", "role", "system", "content", parts));
}

/* ---- one message's blocks ---- */

struct parts {
    size_t at;        /* of the message */
    json_t *text;     /* text parts */
    json_t *calls;    /* tool_calls */
    struct buf think; /* of an assistant */
};

static int add_result(const struct parts *p, const json_t *block, json_t *out, struct api_err *e)
{
    json_t *id = json_object_get(block, "tool_use_id"), *content = field(block, "content"), *one;
    size_t i;
    if (!json_is_string(id))
        return bad(e, p->at, ".content': a tool_result needs tool_use_id");
    json_array_foreach(content, i, one)
    {
        if (!field_type_is(one, "text"))
            return bad(e, p->at,
                       ".content': a tool_result may hold text only, images are not supported by this model");
    }
    json_t *text = !content                                                  ? json_string("")
                   : json_is_array(content) && json_array_size(content) == 0 ? json_string("")
                                                                             : json_incref(content);
    return json_array_append_new(
        out, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text));
}

static int add_use(struct parts *p, const json_t *block, struct api_err *e)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
           *input = field(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || (input && !json_is_object(input)))
        return bad(e, p->at, ".content': a tool_use needs id, name and input, an object");
    char *args = input ? json_dumps(input, JSON_COMPACT) : strdup("{}");
    if (!args)
        return api_fail(e, 500, NULL, "out of memory");
    json_array_append_new(p->calls, json_pack("{s:O, s:s, s:{s:O, s:s}}", "id", id, "type", "function",
                                              "function", "name", name, "arguments", args));
    free(args);
    return 0;
}

static int add_block(struct parts *p, const json_t *block, bool assistant, json_t *out, struct api_err *e)
{
    if (field_type_is(block, "text") && json_is_string(json_object_get(block, "text")))
        return json_array_append_new(p->text, text_part(block));
    if (!assistant && field_type_is(block, "tool_result"))
        return add_result(p, block, out, e);
    if (assistant && field_type_is(block, "tool_use"))
        return add_use(p, block, e);
    if (assistant && field_type_is(block, "thinking")) {
        buf_puts(&p->think, field_word(block, "thinking"));
        return 0;
    }
    if (assistant && field_type_is(block, "redacted_thinking"))
        return 0;
    if (field_type_is(block, "image") || field_type_is(block, "document"))
        return bad(e, p->at, ".content': images and documents are not supported by this model");
    return bad(e, p->at, ".content': a block must be text, tool_use, tool_result or thinking");
}

/* Results of tools come before what else the user says: they answer the message before. */
static int add_parts(struct parts *p, const char *role, json_t *out)
{
    json_t *m = json_pack("{s:s}", "role", role);
    bool calls = json_array_size(p->calls) > 0, text = json_array_size(p->text) > 0,
         user = strcmp(role, "user") == 0;
    if (user && !text && json_array_size(out) > 0 &&
        strcmp(field_word(json_array_get(out, json_array_size(out) - 1), "role"), "tool") == 0) {
        json_decref(m);
        return 0; /* results alone */
    }
    if (text)
        json_object_set(m, "content", p->text);
    else
        json_object_set_new(m, "content", calls ? json_null() : json_string(""));
    if (calls)
        json_object_set(m, "tool_calls", p->calls);
    if (p->think.n > 0)
        json_object_set_new(m, "reasoning_content", json_stringn(p->think.p, p->think.n));
    return json_array_append_new(out, m);
}

static int add_message(const json_t *m, size_t at, json_t *out, struct api_err *e)
{
    const char *role = field_word(m, "role");
    json_t *content = json_object_get(m, "content"), *block;
    bool assistant = strcmp(role, "assistant") == 0;
    if (!assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0)
        return bad(e, at, ".role': must be user or assistant");
    if (json_is_string(content))
        return json_array_append_new(out, json_pack("{s:s, s:O}", "role", role, "content", content));
    if (!json_is_array(content))
        return bad(e, at, ".content': must be a string or an array of blocks");
    struct parts p = {.at = at, .text = json_array(), .calls = json_array()};
    size_t i;
    int r = 0;
    json_array_foreach(content, i, block)
    {
        r = add_block(&p, block, assistant, out, e);
        if (r)
            break;
    }
    if (r == 0)
        r = add_parts(&p, role, out);
    json_decref(p.text);
    json_decref(p.calls);
    buf_fini(&p.think);
    return r;
}

/* ---- the rest ---- */

/* Tools that a service of its own would run are left out: a model cannot call them here. */
static int set_tools(const json_t *body, json_t *out, struct api_err *e)
{
    json_t *tools = field(body, "tools"), *list, *one;
    size_t i;
    if (!tools)
        return 0;
    if (!json_is_array(tools))
        return api_fail(e, 400, "tools", "Field 'tools': must be an array");
    list = json_array();
    json_array_foreach(tools, i, one)
    {
        json_t *schema = field(one, "input_schema"), *about = field(one, "description"), *f;
        if (!schema && field(one, "type") && !field_type_is(one, "custom"))
            continue;
        f = json_object();
        json_object_set(f, "name", json_object_get(one, "name"));
        if (about)
            json_object_set(f, "description", about);
        if (schema)
            json_object_set(f, "parameters", schema);
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    return json_object_set_new(out, "tools", list);
}

static int set_choice(const json_t *body, json_t *out, struct api_err *e)
{
    const json_t *choice = field(body, "tool_choice");
    bool alone = false;
    if (!choice)
        return 0;
    if (field_bool(choice, "disable_parallel_tool_use", &alone, e) < 0)
        return -1;
    if (alone)
        json_object_set_new(out, "parallel_tool_calls", json_false());
    if (field_type_is(choice, "auto") || field_type_is(choice, "none"))
        return json_object_set_new(out, "tool_choice", json_string(field_word(choice, "type")));
    if (field_type_is(choice, "any"))
        return json_object_set_new(out, "tool_choice", json_string("required"));
    if (!field_type_is(choice, "tool") || !json_is_string(json_object_get(choice, "name")))
        return api_fail(
            e, 400, "tool_choice",
            "Field 'tool_choice': must be an object of type auto, any, none, or tool with a name");
    return json_object_set_new(
        out, "tool_choice",
        json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", json_object_get(choice, "name")));
}

static void set_thinking(const json_t *body, json_t *out)
{
    const json_t *think = field(body, "thinking");
    if (think && !field(body, "enable_thinking"))
        json_object_set_new(out, "enable_thinking", json_boolean(!field_type_is(think, "disabled")));
}

static int fill(const json_t *body, json_t *out, struct api_err *e)
{
    static const char *const own[] = {
        "system",      "messages", "tools", "tool_choice",         "stop_sequences",
        "thinking",    "metadata", "n",     "parallel_tool_calls", "output_config",
        "service_tier"};
    json_t *messages = field(body, "messages"), *list = json_array(), *m;
    size_t i;
    for (size_t k = 0; k < sizeof own / sizeof *own; k++)
        json_object_del(out, own[k]);
    if (json_object_set_new(out, "messages", list))
        return api_fail(e, 500, NULL, "out of memory");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_fail(e, 400, "messages", "Field 'messages': must be a non-empty array of messages");
    if (add_system(field(body, "system"), list, e))
        return -1;
    json_array_foreach(messages, i, m)
    {
        if (add_message(m, i, list, e))
            return -1;
    }
    if (!field(body, "max_tokens"))
        json_object_set_new(out, "max_tokens", json_integer(MAX_TOKENS));
    if (field(body, "stop_sequences"))
        json_object_set(out, "stop", field(body, "stop_sequences"));
    set_thinking(body, out);
    return set_tools(body, out, e) || set_choice(body, out, e) ? -1 : 0;
}

json_t *messages_body(const json_t *body, struct api_err *e)
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
