#include "constrain.h"

#include "params.h"

#include <stdlib.h>
#include <string.h>

/* An error of the grammar as one of the request. */
static int refuse(const struct constrain *c, const struct vt_err *err, struct api_err *e)
{
    if (err->code == VT_E_NOMEM)
        return api_fail(e, 500, NULL, "%s", err->text);
    return api_fail(e, 400, c->param, "Field '%s': %s", c->param, err->text);
}

int constrain_begin(struct constrain *c, const char *param, struct api_err *e)
{
    if (c->g)
        return api_fail(e, 400, param,
                        "Field '%s': the answer is constrained by '%s' already; only one of them is possible",
                        param, c->param);
    c->param = param;
    c->g = grammar_new();
    return c->g ? 0 : api_fail(e, 500, NULL, "out of memory");
}

static int check(const struct constrain *c, struct api_err *e)
{
    struct vt_err err;
    return grammar_error(c->g, &err) < 0 ? refuse(c, &err, e) : 0;
}

static int schema(struct constrain *c, const char *param, const json_t *v, struct api_err *e)
{
    if (!json_is_object(v))
        return api_fail(e, 400, param, "Field '%s': a schema must be an object", param);
    if (constrain_begin(c, param, e))
        return -1;
    c->root = grammar_schema(c->g, v, "the schema");
    return check(c, e);
}

static int gbnf(struct constrain *c, const json_t *body, struct api_err *e)
{
    const json_t *v = field(body, "grammar");
    if (v && !json_is_string(v))
        return api_fail(e, 400, "grammar", "Field 'grammar': must be a string");
    if (!v || json_string_length(v) == 0)
        return 0;
    if (json_array_size(field(body, "tools")) > 0)
        return api_fail(e, 400, "grammar", "Field 'grammar': cannot go with tools");
    if (constrain_begin(c, "grammar", e))
        return -1;
    c->root = grammar_gbnf(c->g, json_string_value(v), json_string_length(v));
    c->text = strdup(json_string_value(v));
    return c->text ? check(c, e) : api_fail(e, 500, NULL, "out of memory");
}

/* {"type":"json_schema","json_schema":{"schema":…}}, or flat {"type":"json_schema","schema":…}. */
static const json_t *schema_of(const json_t *format)
{
    const json_t *inner = field(format, "json_schema");
    return inner ? field(inner, "schema") : field(format, "schema");
}

static int response_format(struct constrain *c, const json_t *body, struct api_err *e)
{
    static const char name[] = "response_format";
    const json_t *format = field(body, name);
    const char *type = NULL;
    if (!format)
        return 0;
    if (!json_is_object(format) || field_str(format, "type", &type, e) != 0)
        return api_fail(e, 400, name, "Field 'response_format': must be an object with a type");
    if (strcmp(type, "text") == 0)
        return 0;
    if (strcmp(type, "json_schema") == 0) {
        if (!schema_of(format))
            return api_fail(e, 400, name,
                            "Field 'response_format': type json_schema needs json_schema.schema");
        return schema(c, name, schema_of(format), e);
    }
    if (strcmp(type, "json_object") != 0)
        return api_fail(e, 400, name,
                        "Field 'response_format': type '%.40s' is not text, json_object or json_schema",
                        type);
    if (field(format, "schema"))
        return schema(c, name, field(format, "schema"), e);
    if (constrain_begin(c, name, e))
        return -1;
    c->root = grammar_object(c->g);
    return check(c, e);
}

/* A grammar that waits for a trigger would leave the answer free until then. */
static int refuse_lazy(const json_t *body, struct api_err *e)
{
    bool lazy = false;
    if (field_bool(body, "grammar_lazy", &lazy, e) < 0)
        return -1;
    if (lazy || json_array_size(field(body, "grammar_triggers")) > 0)
        return api_fail(e, 400, lazy ? "grammar_lazy" : "grammar_triggers",
                        "Field '%s': grammars that wait for a trigger are not supported; a grammar holds "
                        "from the first token",
                        lazy ? "grammar_lazy" : "grammar_triggers");
    return 0;
}

int constrain_read(struct constrain *c, const json_t *body, struct api_err *e)
{
    const json_t *plain = field(body, "json_schema");
    bool ignore_eos = false;
    if (refuse_lazy(body, e) || gbnf(c, body, e) || (plain && schema(c, "json_schema", plain, e)) ||
        response_format(c, body, e))
        return -1;
    if (c->g && field_bool(body, "ignore_eos", &ignore_eos, e) == 0 && ignore_eos)
        return api_fail(e, 400, "ignore_eos",
                        "Field 'ignore_eos': cannot go with '%s', which says where the answer ends",
                        c->param);
    return 0;
}

int constrain_finish(struct constrain *c, struct api_err *e)
{
    struct vt_err err;
    if (!c->g)
        return 0;
    int r = grammar_finish(c->g, c->root, &c->bytes, &c->n_bytes, &err);
    grammar_free(c->g);
    c->g = NULL;
    return r < 0 ? refuse(c, &err, e) : 0;
}

void constrain_fini(struct constrain *c)
{
    grammar_free(c->g);
    free(c->text);
    free(c->bytes);
    *c = (struct constrain){0};
}
