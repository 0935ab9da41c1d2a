#include "tool_choice.h"

#include "frames.h"
#include "tool_list.h"

#include <stdlib.h>
#include <string.h>

static const char field_name[] = "tool_choice";

static uint32_t words(struct grammar *g, const char *text)
{
    return grammar_text(g, text, strlen(text));
}

/* Arguments are an object, also where the schema does not say so. */
static uint32_t arguments(struct grammar *g, const json_t *function)
{
    const json_t *schema = field(function, "parameters");
    if (!json_is_object(schema) || json_object_size(schema) == 0)
        return grammar_object(g);
    json_t *copy = json_copy((json_t *)(uintptr_t)schema); /* reads only, but does not say so */
    if (copy && !json_object_get(copy, "type"))
        json_object_set_new(copy, "type", json_string("object"));
    const uint32_t part = grammar_schema(g, copy, "the parameters of a tool");
    json_decref(copy);
    return part;
}

static uint32_t message_call(const struct model *m, struct grammar *g, const json_t *function)
{
    const uint32_t parts[] = {frame_call(m, g, json_string_value(json_object_get(function, "name"))),
                              arguments(g, function)};
    return grammar_seq(g, parts, 2);
}

static uint32_t one_call(struct grammar *g, const struct dialect *dl, const json_t *function)
{
    struct buf head = {0};
    char *name = json_dumps(json_object_get(function, "name"), JSON_ENCODE_ANY);
    buf_puts(&head, dl->body == BODY_PLAIN ? "[{\"name\": " : "{\"name\": ");
    buf_puts(&head, name ? name : "");
    buf_puts(&head, dl->bare ? ", \"parameters\": " : ", \"arguments\": ");
    const uint32_t parts[] = {grammar_text(g, head.p ? head.p : "", head.n), arguments(g, function),
                              words(g, dl->body == BODY_PLAIN ? "}]" : "}")};
    buf_fini(&head);
    free(name);
    return grammar_seq(g, parts, 3);
}

/* A call of any of the tools, or of the one that is named, with the dialect's marks around it. */
static int call_rule(struct draft *d, const char *named, uint32_t *out, struct api_err *e)
{
    const struct dialect *dl = d->model->dialect;
    struct grammar *g = d->p.constrain.g;
    const json_t *tools = field(d->body, "tools");
    const size_t n = json_array_size(tools);
    const bool messages = dl->body == BODY_HARMONY;
    uint32_t *ways = malloc((n ? n : 1) * sizeof *ways);
    size_t k = 0;
    if (!ways)
        return api_fail(e, 500, NULL, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!named || strcmp(name, named) == 0)
            ways[k++] = messages ? message_call(d->model, g, f) : one_call(g, dl, f);
    }
    const uint32_t any = grammar_any_of(g, ways, k);
    free(ways);
    if (k == 0)
        return api_fail(e, 400, field_name, "Field 'tool_choice': there is no tool '%.100s' in 'tools'",
                        named);
    if (messages) {
        *out = any;
        return 0;
    }
    const uint32_t parts[] = {dl->bare ? words(g, "") : frame_mark(d->model, g, dl->open[0]), any,
                              dl->close ? frame_mark(d->model, g, dl->close) : words(g, "")};
    *out = grammar_seq(g, parts, 3);
    return 0;
}

static int force(struct draft *d, const char *named, struct api_err *e)
{
    struct constrain *c = &d->p.constrain;
    struct vt_err err;
    uint32_t call = 0;
    if (!d->o.tools)
        return api_fail(e, 400, field_name,
                        "Field 'tool_choice': a call is demanded, but there are no tools");
    if (constrain_begin(c, field_name, e) || call_rule(d, named, &call, e))
        return -1;
    const uint32_t more[] = {words(c->g, d->model->dialect->bare ? "; " : "\n"), call};
    const uint32_t all[] = {call, grammar_repeat(c->g, grammar_seq(c->g, more, 2), 0, GRAMMAR_MANY)};
    /* a message of harmony ends the answer */
    const bool several = d->o.parallel_tools && d->model->dialect->body != BODY_HARMONY;
    c->root = several ? grammar_seq(c->g, all, 2) : call;
    d->o.forced = true;
    if (grammar_error(c->g, &err) == 0)
        return 0;
    return api_fail(e, err.code == VT_E_NOMEM ? 500 : 400, "tools", "Field 'tools': %s", err.text);
}

int tool_choice_read(struct draft *d, struct api_err *e)
{
    const json_t *choice = field(d->body, field_name);
    const char *word = json_string_value(choice);
    struct answer_opts *o = &d->o;
    o->parallel_tools = true;
    if (tool_list_check(d->body, e))
        return -1;
    o->tools = json_array_size(field(d->body, "tools")) > 0;
    if (o->tools)
        o->tool_list = json_incref(field(d->body, "tools"));
    if (field_bool(d->body, "parallel_tool_calls", &o->parallel_tools, e) < 0)
        return -1;
    if (!choice || (word && strcmp(word, "auto") == 0))
        return 0;
    if (word && strcmp(word, "none") == 0) {
        o->tools = false;
        return 0;
    }
    if (word && strcmp(word, "required") == 0)
        return force(d, NULL, e);
    const char *type = json_string_value(json_object_get(choice, "type")),
               *name = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (!type || strcmp(type, "function") != 0 || !name)
        return api_fail(e, 400, field_name,
                        "Field 'tool_choice': must be auto, none, required or "
                        "{\"type\":\"function\",\"function\":{\"name\":…}}");
    return force(d, name, e);
}
