#include "tool_list.h"

#include "../toolcall/call.h"
#include "params.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TOOLS = 4096 };

/* The place tools[i]what, with why it is wrong. */
static int wrong(struct api_err *e, size_t i, const char *what, const char *why)
{
    char param[64];
    snprintf(param, sizeof param, "tools[%zu]%s", i, what);
    return api_fail(e, 400, param, "Field '%s': %s", param, why);
}

static bool absent_or(const json_t *v, bool right)
{
    return !v || json_is_null(v) || right;
}

static int check_parameters(const json_t *p, size_t i, struct api_err *e)
{
    const json_t *properties = json_object_get(p, "properties"), *required = json_object_get(p, "required");
    const json_t *v;
    size_t k;
    const char *key;
    if (!absent_or(p, json_is_object(p)))
        return wrong(e, i, ".function.parameters", "must be an object, the JSON schema of the arguments");
    if (!absent_or(properties, json_is_object(properties)))
        return wrong(e, i, ".function.parameters.properties", "must be an object");
    if (!absent_or(required, json_is_array(required)))
        return wrong(e, i, ".function.parameters.required", "must be an array of strings");
    json_object_foreach((json_t *)properties, key,
                        v) if (!json_is_object(v) &&
                               !json_is_boolean(v)) return wrong(e, i, ".function.parameters.properties",
                                                                 "must hold schemas: objects, true or false");
    json_array_foreach((json_t *)required, k, v) if (!json_is_string(v)) return wrong(
        e, i, ".function.parameters.required", "must be an array of strings");
    return 0;
}

static int check_tool(const json_t *t, size_t i, struct api_err *e)
{
    const json_t *f = json_object_get(t, "function"), *name = json_object_get(f, "name"),
                 *about = json_object_get(f, "description"), *strict = json_object_get(f, "strict");
    const char *type = json_string_value(json_object_get(t, "type"));
    if (!json_is_object(t))
        return wrong(e, i, "", "must be an object");
    if (!type || strcmp(type, "function") != 0)
        return wrong(e, i, ".type", "must be \"function\"");
    if (!json_is_object(f))
        return wrong(e, i, ".function", "must be an object with a name");
    if (!json_is_string(name) || json_string_length(name) == 0 || json_string_length(name) > CALL_NAME_MAX)
        return wrong(e, i, ".function.name", "must be a string of 1 to 256 bytes");
    for (size_t k = 0; k < json_string_length(name); k++)
        if ((unsigned char)json_string_value(name)[k] < 0x20)
            return wrong(e, i, ".function.name", "must not hold control characters");
    if (!absent_or(about, json_is_string(about)))
        return wrong(e, i, ".function.description", "must be a string");
    if (!absent_or(strict, json_is_boolean(strict)))
        return wrong(e, i, ".function.strict", "must be true or false");
    return check_parameters(json_object_get(f, "parameters"), i, e);
}

int tool_list_check(const json_t *body, struct api_err *e)
{
    const json_t *tools = field(body, "tools"), *t;
    size_t i;
    if (!tools)
        return 0;
    if (!json_is_array(tools))
        return api_fail(e, 400, "tools", "Field 'tools': must be an array");
    if (json_array_size(tools) > MAX_TOOLS)
        return api_fail(e, 400, "tools", "Field 'tools': at most %d tools", MAX_TOOLS);
    json_array_foreach((json_t *)tools, i, t) if (check_tool(t, i, e)) return -1;
    return 0;
}
