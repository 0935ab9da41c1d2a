/* Values that stand without quotes, in the forms that are not JSON. */
#include "call.h"

#include <string.h>

static bool listed(const json_t *types, const char *name)
{
    size_t i;
    json_t *t;
    json_array_foreach(types, i,
                       t) if (json_is_string(t) && strcmp(json_string_value(t), name) == 0) return true;
    return false;
}

static uint8_t kind_of(const struct call *c, const char *key)
{
    const json_t *type = json_object_get(call_parameter(c->tools, c->name, key), "type");
    const char *word = json_string_value(type);
    if (word)
        return strcmp(word, "string") == 0    ? VALUE_STRING
               : strcmp(word, "boolean") == 0 ? VALUE_BOOLEAN
                                              : VALUE_ANY;
    return listed(type, "string") ? listed(type, "null") ? VALUE_STRING_OR_NULL : VALUE_STRING : VALUE_ANY;
}

void call_value_begin(struct call *c)
{
    char key[CALL_NAME_MAX + 1];
    memcpy(key, c->text.p ? c->text.p : "", c->text.n);
    key[c->text.n] = '\0';
    c->kind = kind_of(c, key);
    buf_puts(&c->args, c->comma ? ", \"" : "{\"");
    json_escape(key, c->text.n, &c->args);
    buf_puts(&c->args, c->kind == VALUE_STRING ? "\": \"" : "\": ");
    buf_clear(&c->text);
    c->comma = true;
}

static void put_any(struct call *c)
{
    const char *s = c->text.p;
    size_t n = c->text.n, from = 0, to = n;
    while (from < to && json_blank(s[from]))
        from++;
    while (to > from && json_blank(s[to - 1]))
        to--;
    const size_t len = to - from;
    const bool null = len == 4 && memcmp(s + from, "null", 4) == 0;
    if (c->kind == VALUE_BOOLEAN && (len == 4 || len == 5) &&
        (strncmp(s + from, "True", len) == 0 || strncmp(s + from, "False", len) == 0)) {
        buf_puts(&c->args, len == 4 ? "true" : "false");
    } else if (c->kind == VALUE_STRING_OR_NULL ? null
                                               : len > 0 && s[from] != '"' && jscan_valid(s + from, len)) {
        buf_add(&c->args, s + from, len);
    } else {
        buf_add(&c->args, "\"", 1);
        json_escape(s, n, &c->args);
        buf_add(&c->args, "\"", 1);
    }
}

void call_value_end(struct call *c)
{
    if (c->kind == VALUE_STRING) {
        json_escape(c->text.p ? c->text.p : "", c->text.n, &c->args);
        buf_add(&c->args, "\"", 1);
    } else {
        buf_add(&c->text, "", 1); /* has an address also when empty */
        c->text.n--;
        put_any(c);
    }
    buf_clear(&c->text);
}
