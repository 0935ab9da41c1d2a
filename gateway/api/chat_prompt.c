#include "chat_prompt.h"

#include "params.h"
#include "tool_list.h"
#include "tool_text.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGES = 16384 };

static int bad(struct api_err *e, size_t i, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]", i);
    return api_fail(e, 400, param, "Field 'messages[%zu]%s", i, what);
}

/* Text parts become one string, joined by newlines. NULL: e says why. */
static json_t *content_text(const json_t *parts, size_t at, struct api_err *e)
{
    struct buf text = {0};
    size_t i;
    json_t *part;
    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *t = json_object_get(part, "text");
        if (type && (strcmp(type, "image_url") == 0 || strcmp(type, "input_audio") == 0 ||
                     strcmp(type, "input_video") == 0)) {
            bad(e, at, ".content': image, audio and video input is not supported by this model");
            goto fail;
        }
        if (!type || strcmp(type, "text") != 0 || !json_is_string(t)) {
            bad(e, at, ".content': each part must be {\"type\":\"text\",\"text\":…}");
            goto fail;
        }
        if (i > 0)
            buf_puts(&text, "\n");
        buf_add(&text, json_string_value(t), json_string_length(t));
    }
    json_t *s = text.failed ? NULL : json_stringn(text.p ? text.p : "", text.n);
    buf_fini(&text);
    if (!s)
        api_fail(e, 500, NULL, "out of memory");
    return s;
fail:
    buf_fini(&text);
    return NULL;
}

/* Calls of an earlier turn. Templates that walk over the arguments need an object, others print what they are given. */
static int fix_calls(json_t *calls, size_t at, bool objects, struct api_err *e)
{
    size_t i;
    json_t *call;
    if (!json_is_array(calls))
        return bad(e, at, ".tool_calls': must be an array");
    json_array_foreach(calls, i, call)
    {
        json_t *f = json_object_get(call, "function");
        json_t *args = json_object_get(f, "arguments");
        if (!json_is_string(json_object_get(f, "name")))
            return bad(e, at, ".tool_calls': each call needs function.name");
        if (args && !json_is_string(args) && !json_is_object(args) && !json_is_null(args))
            return bad(e, at, ".tool_calls': function.arguments must be a string of JSON");
        if (!args || json_is_null(args))
            json_object_set_new(f, "arguments", objects ? json_object() : json_string("{}"));
        if (!objects || !json_is_string(args))
            continue;
        json_t *parsed = json_loadb(json_string_value(args), json_string_length(args), JSON_ALLOW_NUL, NULL);
        if (json_is_object(parsed))
            json_object_set(f, "arguments", parsed);
        json_decref(parsed);
    }
    return 0;
}

static int fix_message(json_t *m, size_t i, const struct template_caps *caps, struct api_err *e)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = json_object_get(m, "content"), *calls = field(m, "tool_calls");
    bool known = false;
    if (!json_is_object(m))
        return bad(e, i, "': must be an object");
    if (!role)
        return bad(e, i, ".role': is required");
    for (size_t k = 0; k < 5; k++)
        known |= strcmp(role, roles[k]) == 0;
    if (!known)
        return bad(e, i, ".role': must be system, developer, user, assistant or tool");
    bool assistant = strcmp(role, "assistant") == 0;
    if (strcmp(role, "developer") == 0 && !caps->developer)
        json_object_set_new(m, "role", json_string("system"));
    if (calls && json_is_array(calls) && json_array_size(calls) == 0) {
        json_object_del(m, "tool_calls");
        calls = NULL;
    }
    if (json_is_array(content)) {
        json_t *text = content_text(content, i, e);
        if (!text || json_object_set_new(m, "content", text))
            return -1;
    } else if (!json_is_string(content)) {
        if (content && !json_is_null(content))
            return bad(e, i, ".content': must be a string or an array of parts");
        if (!assistant || !calls)
            return bad(e, i,
                       assistant ? "': an assistant message needs content or tool_calls"
                                 : ".content': is required");
        json_object_set_new(m, "content", caps->null_content ? json_null() : json_string(""));
    }
    if (field(m, "reasoning") && !field(m, "reasoning_content"))
        json_object_set(m, "reasoning_content", field(m, "reasoning"));
    return calls ? fix_calls(calls, i, caps->object_arguments, e) : 0;
}

/* The template of harmony knows the thoughts before a call by another name, and refuses them beside content. */
static void name_thoughts(json_t *m)
{
    json_t *thoughts = json_object_get(m, "reasoning_content");
    if (json_is_string(thoughts) && json_array_size(json_object_get(m, "tool_calls")) > 0 &&
        json_string_length(json_object_get(m, "content")) == 0 && !json_object_get(m, "thinking"))
        json_object_set(m, "thinking", thoughts);
}

static bool is_assistant(const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* A trailing assistant message is the beginning of the answer: *prefill is its text (owned), and it leaves the list. */
static int take_prefill(json_t *messages, json_t **prefill, struct api_err *e)
{
    size_t n = json_array_size(messages);
    json_t *last = json_array_get(messages, n - 1);
    *prefill = NULL;
    if (!is_assistant(last) || field(last, "tool_calls"))
        return 0;
    if (n > 1 && is_assistant(json_array_get(messages, n - 2)))
        return api_fail(e, 400, "messages",
                        "Field 'messages': two assistant messages at the end cannot be continued");
    *prefill = json_incref(json_object_get(last, "content"));
    json_array_remove(messages, n - 1);
    return 0;
}

static int add_tools(json_t *vars, const json_t *body, struct api_err *e)
{
    json_t *tools = field(body, "tools");
    if (tool_list_check(body, e))
        return -1;
    const char *choice = json_string_value(field(body, "tool_choice"));
    if (json_array_size(tools) > 0 && !(choice && strcmp(choice, "none") == 0))
        json_object_set(vars, "tools", tools);
    return 0;
}

/* The template's own switches. What the request says in fields of its own cannot be said a second time here. */
static int add_kwargs(json_t *vars, json_t *kw, struct api_err *e)
{
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                        "eos_token"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (json_object_get(kw, taken[i]))
            return api_fail(e, 400, "chat_template_kwargs",
                            "Field 'chat_template_kwargs': '%s' is not a switch of the template", taken[i]);
    if (json_object_update(vars, kw))
        return api_fail(e, 500, NULL, "out of memory");
    return 0;
}

static int add_thinking(json_t *vars, const json_t *body, struct api_err *e)
{
    json_t *kw = field(body, "chat_template_kwargs");
    const char *effort = NULL;
    bool think;
    if (kw && !json_is_object(kw))
        return api_fail(e, 400, "chat_template_kwargs", "Field 'chat_template_kwargs': must be an object");
    if (kw && add_kwargs(vars, kw, e))
        return -1;
    int r = field_bool(body, "enable_thinking", &think, e);
    if (r < 0)
        return -1;
    if (r == 0)
        json_object_set_new(vars, "enable_thinking", json_boolean(think));
    if (field_str(body, "reasoning_effort", &effort, e) < 0)
        return -1;
    if (effort) {
        if (strcmp(effort, "none") == 0)
            json_object_set_new(vars, "enable_thinking", json_false());
        else
            json_object_set_new(vars, "reasoning_effort", json_string(effort));
    }
    json_t *et = json_object_get(vars, "enable_thinking");
    if (et && !json_is_boolean(et))
        return api_fail(e, 400, "chat_template_kwargs", "Field 'enable_thinking': must be true or false");
    return 0;
}

static json_t *token_string(const struct model *m, int32_t id)
{
    size_t n = 0;
    const char *s = id < 0 ? NULL : tok_text(m->tok, (uint32_t)id, &n);
    return json_stringn(s ? s : "", n);
}

/* The template's variables. On success *prefill may hold the beginning of the answer. */
static json_t *variables(const struct model *mod, const json_t *body, json_t **prefill, struct api_err *e)
{
    json_t *messages = field(body, "messages");
    bool generate = true;
    *prefill = NULL;
    if (!messages || !json_is_array(messages) || json_array_size(messages) == 0 ||
        json_array_size(messages) > MAX_MESSAGES) {
        api_fail(e, 400, "messages", "Field 'messages': must be a non-empty array of messages");
        return NULL;
    }
    json_t *vars = json_object(), *list = json_deep_copy(messages);
    size_t i;
    json_t *m;
    if (!list || json_object_set_new(vars, "messages", list)) {
        api_fail(e, 500, NULL, "out of memory");
        goto fail;
    }
    json_array_foreach(list, i, m)
    {
        if (fix_message(m, i, &mod->caps, e))
            goto fail;
        if (mod->dialect->body == BODY_HARMONY)
            name_thoughts(m);
    }
    if (field_bool(body, "add_generation_prompt", &generate, e) < 0 || take_prefill(list, prefill, e))
        goto fail;
    json_object_set_new(vars, "add_generation_prompt", json_boolean(generate || *prefill));
    if (add_tools(vars, body, e) ||
        (!mod->caps.tools && tool_text_write(list, json_object_get(vars, "tools"), &mod->caps, e)) ||
        add_thinking(vars, body, e))
        goto fail;
    return vars;
fail:
    json_decref(*prefill);
    *prefill = NULL;
    json_decref(vars);
    return NULL;
}

static bool ends_open(const char *s, size_t n, const char *mark)
{
    while (n > 0 && (s[n - 1] == '\n' || s[n - 1] == ' '))
        n--;
    return n >= strlen(mark) && memcmp(s + n - strlen(mark), mark, strlen(mark)) == 0;
}

/* What only the model's file may say. */
static json_t *trusted_variables(const struct model *m)
{
    return json_pack("{s:o, s:o}", "bos_token", token_string(m, tok_bos(m->tok)), "eos_token",
                     token_string(m, tok_eos(m->tok)));
}

static int append(struct jinja_text *t, const json_t *prefill)
{
    size_t n = json_string_length(prefill);
    char *all = realloc(t->text, t->len + n + 1);
    struct jinja_span *spans = realloc(t->spans, (t->n_spans + 1) * sizeof *spans);
    if (all)
        t->text = all;
    if (spans)
        t->spans = spans;
    if (!all || !spans)
        return -1;
    memcpy(all + t->len, json_string_value(prefill), n);
    t->len += n;
    all[t->len] = '\0';
    if (n > 0)
        spans[t->n_spans++] = (struct jinja_span){.end = t->len, .input = true};
    return 0;
}

int chat_prompt_make(struct chat_prompt *p, const struct draft *d, struct api_err *e)
{
    const struct model *m = d->model;
    struct vt_err err;
    json_t *prefill;
    *p = (struct chat_prompt){0};
    if (!m->tmpl)
        return api_fail(e, 400, "messages", "this model cannot chat: %s",
                        m->tmpl_error[0] ? m->tmpl_error : "its file has no chat template");
    json_t *vars = variables(m, d->body, &prefill, e), *trusted = trusted_variables(m);
    if (!vars) {
        json_decref(trusted);
        return -1;
    }
    int r = jinja_render_spans(m->tmpl, vars, trusted, NULL, d->wall_us, &p->t, &err);
    json_t *list = json_object_get(vars, "messages");
    if (r && prefill && json_array_size(list) == 0) {
        /* Nothing but the beginning of an answer: many templates want somebody who is answered. */
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", ""));
        r = jinja_render_spans(m->tmpl, vars, trusted, NULL, d->wall_us, &p->t, &err);
    }
    json_decref(vars);
    json_decref(trusted);
    if (r)
        r = api_fail(e, err.code == VT_E_NOMEM ? 500 : 400, "messages",
                     "the chat template refuses the messages: %s", err.text);
    else if (prefill && append(&p->t, prefill))
        r = api_fail(e, 500, NULL, "out of memory");
    json_decref(prefill);
    if (r) {
        chat_prompt_fini(p);
        return -1;
    }
    p->open_think = ends_open(p->t.text, p->t.len, m->think->open);
    return 0;
}

int chat_prompt_encode(const struct chat_prompt *p, const struct model *m, struct tok_ids *out,
                       struct api_err *e)
{
    size_t n = 0;
    struct vt_err err;
    /* A template that writes the first token itself does not get a second one. */
    int32_t bos = tok_bos(m->tok);
    const char *s = bos < 0 ? NULL : tok_text(m->tok, (uint32_t)bos, &n);
    bool has_bos = s && n > 0 && p->t.len >= n && memcmp(p->t.text, s, n) == 0;
    struct tok_span *spans = malloc((p->t.n_spans ? p->t.n_spans : 1) * sizeof *spans);
    if (!spans)
        return api_fail(e, 500, NULL, "out of memory");
    for (size_t i = 0; i < p->t.n_spans; i++)
        spans[i] = (struct tok_span){.end = p->t.spans[i].end, .trusted = !p->t.spans[i].input};
    int r = tok_encode_spans(m->tok, p->t.text, p->t.len, spans, p->t.n_spans, has_bos ? 0 : TOK_ADD_SPECIAL,
                             out, &err);
    free(spans);
    if (r)
        api_from_err(e, &err, 0);
    return r;
}

void chat_prompt_fini(struct chat_prompt *p)
{
    jinja_text_fini(&p->t);
    *p = (struct chat_prompt){0};
}
