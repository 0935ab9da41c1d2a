#include "caps.h"

#include <stdlib.h>
#include <string.h>

/* A conversation must be small work: a template that needs more is not usable anyway. */
static const struct jinja_limits small = {.steps = 500000, .output = 1 << 20, .memory = 16 << 20};

/* The text for the variables, which are used up; NULL when the template refuses them. */
static char *show(const struct jinja *t, json_t *vars)
{
    char *out = NULL;
    size_t n;
    if (!vars)
        return NULL;
    json_object_set_new(vars, "bos_token", json_string("<bos>"));
    json_object_set_new(vars, "eos_token", json_string("<eos>"));
    if (!json_object_get(vars, "add_generation_prompt"))
        json_object_set_new(vars, "add_generation_prompt", json_true());
    if (jinja_render(t, vars, &small, 0, &out, &n, NULL))
        out = NULL;
    json_decref(vars);
    return out;
}

/* Whether the text is there and holds `needle`, and does not hold `absent` (may be NULL). */
static bool shows(const struct jinja *t, json_t *vars, const char *needle, const char *absent)
{
    char *s = show(t, vars);
    const bool yes = s && strstr(s, needle) && !(absent && strstr(s, absent));
    free(s);
    return yes;
}

static json_t *user(json_t *content)
{
    return json_pack("{s:s, s:o}", "role", "user", "content", content);
}

static json_t *parts(const char *text)
{
    return json_pack("[{s:s, s:s}]", "type", "text", "text", text);
}

static json_t *content(bool as_parts, const char *text)
{
    return as_parts ? parts(text) : json_string(text);
}

/* A question, a call of probe_call and its result. */
static json_t *call_talk(const struct template_caps *c, json_t *arguments, bool null_content)
{
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", "callabcde", "type", "function", "function",
                             "name", "probe_call", "arguments", arguments);
    json_t *assistant =
        json_pack("{s:s, s:o, s:[o]}", "role", "assistant", "content",
                  null_content ? json_null() : content(c->parts_only, ""), "tool_calls", call);
    json_t *result = json_pack("{s:s, s:s, s:s, s:o}", "role", "tool", "tool_call_id", "callabcde", "name",
                               "probe_call", "content", content(c->parts_only, "probe_result"));
    return json_pack("{s:[o, o, o]}", "messages", user(content(c->parts_only, "probe_user")), assistant,
                     result);
}

static const char raw_arguments[] = "{\"probe_key\": \"probe_value\"}";

static bool shows_string(const struct jinja *t, const struct template_caps *c, bool null_content)
{
    /* as it is: not inside a JSON string once more */
    return shows(t, call_talk(c, json_string(raw_arguments), null_content), raw_arguments, "None");
}

static bool shows_object(const struct jinja *t, const struct template_caps *c, bool null_content)
{
    json_t *arguments = json_pack("{s:s}", "probe_key", "probe_value");
    /* 'probe_key' in single quotes is a dict that was printed and not written as JSON */
    return shows(t, call_talk(c, arguments, null_content), "probe_key", "'probe_key'");
}

static void find_calls(const struct jinja *t, struct template_caps *c)
{
    for (int null_content = 0; null_content < 2 && !c->tool_calls; null_content++) {
        const bool string = shows_string(t, c, null_content),
                   object = !string && shows_object(t, c, null_content);
        c->tool_calls = string || object;
        c->object_arguments = object;
        c->null_content = c->tool_calls && null_content;
    }
}

static void find_thinking(const struct jinja *t, struct template_caps *c)
{
    char *text[2];
    for (int think = 0; think < 2; think++)
        text[think] =
            show(t, json_pack("{s:[o], s:b}", "messages", user(content(c->parts_only, "probe_user")),
                              "enable_thinking", think));
    c->thinking_switch = text[0] && text[1] && strcmp(text[0], text[1]) != 0;
    free(text[0]);
    free(text[1]);
}

void template_caps_find(const struct jinja *t, const char *text, size_t len, struct template_caps *out)
{
    *out = (struct template_caps){0};
    out->parts_only =
        !shows(t, json_pack("{s:[o]}", "messages", user(json_string("probe_user"))), "probe_user", NULL) &&
        shows(t, json_pack("{s:[o]}", "messages", user(parts("probe_user"))), "probe_user", NULL);
    out->system = shows(t,
                        json_pack("{s:[{s:s, s:o}, o]}", "messages", "role", "system", "content",
                                  content(out->parts_only, "probe_system"),
                                  user(content(out->parts_only, "probe_user"))),
                        "probe_system", NULL);
    out->developer = memmem(text, len, "developer", 9) != NULL;
    out->tools = shows(t,
                       json_pack("{s:[o], s:[{s:s, s:{s:s, s:s, s:{s:s, s:{}}}}]}", "messages",
                                 user(content(out->parts_only, "probe_user")), "tools", "type", "function",
                                 "function", "name", "probe_tool", "description", "probe", "parameters",
                                 "type", "object", "properties"),
                       "probe_tool", NULL);
    find_calls(t, out);
    find_thinking(t, out);
}
