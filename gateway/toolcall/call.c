#include "call.h"

#include <string.h>

void call_init(struct call *c, enum call_form form, const json_t *tools)
{
    *c = (struct call){.form = form, .tools = tools};
    jscan_init(&c->json);
}

void call_fini(struct call *c)
{
    buf_fini(&c->args);
    buf_fini(&c->text);
    buf_fini(&c->early);
}

bool call_failed(const struct call *c)
{
    return c->args.failed || c->text.failed || c->early.failed;
}

enum call_step call_feed(struct call *c, char byte)
{
    switch (c->form) {
    case CALL_JSON: return call_json_feed(c, byte);
    case CALL_XML: return call_xml_feed(c, byte);
    case CALL_PLAIN: return call_plain_feed(c, byte);
    case CALL_GEMMA: return call_gemma_feed(c, byte);
    case CALL_PAIRS: return call_pairs_feed(c, byte);
    case CALL_FENCED: return call_fenced_feed(c, byte);
    }
    return CALL_BAD;
}

bool call_end(struct call *c, bool cut)
{
    return c->whole || (c->form == CALL_PAIRS && !cut && call_pairs_end(c));
}

void call_announce(struct call *c)
{
    c->named = true;
    c->name[c->name_n] = '\0';
}

bool call_name_add(struct call *c, char byte)
{
    if (c->name_n == CALL_NAME_MAX || (unsigned char)byte < 0x20)
        return false;
    c->name[c->name_n++] = byte;
    c->name[c->name_n] = '\0';
    return true;
}

const json_t *call_tool(const json_t *tools, const char *name)
{
    size_t i;
    json_t *t;
    json_array_foreach(tools, i, t)
    {
        const json_t *f = json_object_get(t, "function");
        const char *s = json_string_value(json_object_get(f, "name"));
        if (s && strcmp(s, name) == 0)
            return f;
    }
    return NULL;
}

const json_t *call_parameter(const json_t *tools, const char *name, const char *key)
{
    const json_t *f = call_tool(tools, name);
    return json_object_get(json_object_get(json_object_get(f, "parameters"), "properties"), key);
}
