#include "tools/args.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 8 << 20 };

static void say(struct text *remark, const char *what)
{
    text_printf(remark, "%s%s", remark->len ? "; " : "", what);
}

/* A lone \ud800–\udfff escape becomes \ufffd; pairs stay. Returns how many were mended. */
static int mend_surrogates(const char *in, size_t n, struct text *out)
{
    int mended = 0;
    for (size_t i = 0; i < n;) {
        if (in[i] != '\\' || i + 1 >= n) {
            text_add(out, in + i++, 1);
            continue;
        }
        unsigned v = 0, w = 0;
        size_t left = n - i;
        char hex[5] = "";
        if (in[i + 1] != 'u' || left < 6) {
            text_add(out, in + i, 2);
            i += 2;
            continue;
        }
        memcpy(hex, in + i + 2, 4);
        v = (unsigned)strtoul(hex, NULL, 16);
        if (left >= 12 && in[i + 6] == '\\' && in[i + 7] == 'u') {
            memcpy(hex, in + i + 8, 4);
            w = (unsigned)strtoul(hex, NULL, 16);
        }
        bool high = v >= 0xd800 && v < 0xdc00, low = v >= 0xdc00 && v < 0xe000;
        bool pair = high && w >= 0xdc00 && w < 0xe000;
        if (low || (high && !pair)) {
            text_puts(out, "\\ufffd");
            mended++;
        } else {
            text_add(out, in + i, pair ? 12 : 6);
        }
        i += pair ? 12 : 6;
    }
    return mended;
}

static void trim(const char **s, size_t *n)
{
    while (*n && strchr(" \t\r\n", **s)) {
        ++*s;
        --*n;
    }
    while (*n && strchr(" \t\r\n", (*s)[*n - 1]))
        --*n;
}

/* ```json … ``` around the object. */
static bool unfence(const char **s, size_t *n)
{
    if (*n < 6 || memcmp(*s, "```", 3) != 0 || memcmp(*s + *n - 3, "```", 3) != 0)
        return false;
    const char *nl = memchr(*s, '\n', *n);
    size_t skip = nl ? (size_t)(nl - *s) + 1 : 3;
    if (skip > *n - 3)
        return false;
    *s += skip;
    *n -= skip + 3;
    trim(s, n);
    return true;
}

static json_t *load(const char *s, size_t n, json_error_t *e)
{
    return json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, e);
}

static json_t *read_object(const char *bytes, size_t n, struct text *remark)
{
    json_error_t e;
    struct text mended = {0};
    trim(&bytes, &n);
    if (unfence(&bytes, &n))
        say(remark, "a code fence around the arguments was taken off");
    if (!n) {
        say(remark, "empty arguments were read as {}");
        return json_object();
    }
    if (mend_surrogates(bytes, n, &mended))
        say(remark, "a lone surrogate became U+FFFD");
    json_t *v = load(text_str(&mended), mended.len, &e);
    text_free(&mended);
    if (!v) {
        text_clear(remark);
        text_printf(remark, "the arguments are no valid JSON: %s (line %d, column %d)", e.text, e.line,
                    e.column);
        return NULL;
    }
    if (json_is_string(v)) {
        json_t *inner = load(json_string_value(v), json_string_length(v), &e);
        if (json_is_object(inner)) {
            say(remark, "the object was taken out of a string");
            json_decref(v);
            return inner;
        }
        json_decref(inner);
    }
    if (json_is_object(v))
        return v;
    json_decref(v);
    text_clear(remark);
    text_puts(remark, "the arguments must be one JSON object");
    return NULL;
}

static const char *type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "object";
    case JSON_ARRAY: return "array";
    case JSON_STRING: return "string";
    case JSON_INTEGER: return "integer";
    case JSON_REAL: return "number";
    case JSON_TRUE:
    case JSON_FALSE: return "boolean";
    default: return "null";
    }
}

static bool fits(const json_t *v, const char *type)
{
    const char *is = type_of(v);
    return !type || strcmp(is, type) == 0 || (strcmp(type, "number") == 0 && json_is_number(v));
}

/* A value of another type that can only mean one thing; NULL when there is none. */
static json_t *convert(const json_t *v, const char *type)
{
    const char *s = json_string_value(v);
    char *end;
    if (strcmp(type, "boolean") == 0 && s)
        return strcmp(s, "true") == 0 ? json_true() : strcmp(s, "false") == 0 ? json_false() : NULL;
    if (strcmp(type, "integer") == 0 && s && *s) {
        errno = 0;
        long long n = strtoll(s, &end, 10);
        return *end || errno ? NULL : json_integer(n);
    }
    if (strcmp(type, "integer") == 0 && json_is_real(v)) {
        double d = json_real_value(v);
        return d > -9e15 && d < 9e15 && d == (double)(json_int_t)d ? json_integer((json_int_t)d) : NULL;
    }
    if (strcmp(type, "number") == 0 && s && *s) {
        double d = strtod(s, &end);
        return *end ? NULL : json_real(d);
    }
    if (strcmp(type, "string") == 0 && (json_is_number(v) || json_is_boolean(v))) {
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        json_t *out = json_string(text);
        free(text);
        return out;
    }
    return NULL;
}

static bool in_list(const json_t *list, const json_t *v)
{
    size_t i;
    json_t *e;
    json_array_foreach(list, i, e) if (json_equal(e, v)) return true;
    return false;
}

static int check_member(json_t *o, const char *key, const json_t *schema, struct text *remark)
{
    json_t *v = json_object_get(o, key);
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (json_is_null(v)) {
        json_object_del(o, key);
        return 0;
    }
    if (!fits(v, type)) {
        json_t *other = convert(v, type);
        if (!other) {
            text_clear(remark);
            text_printf(remark, "'%s' must be of type %s, it is %s", key, type, type_of(v));
            return -1;
        }
        text_printf(remark, "%s'%s' was read as %s", remark->len ? "; " : "", key, type);
        json_object_set_new(o, key, other);
        v = other;
    }
    const json_t *list = json_object_get(schema, "enum");
    if (!list || in_list(list, v))
        return 0;
    char *words = json_dumps(list, JSON_COMPACT);
    text_clear(remark);
    text_printf(remark, "'%s' must be one of %s", key, words ? words : "its list");
    free(words);
    return -1;
}

static int fit(json_t *o, const json_t *schema, struct text *remark)
{
    json_t *props = json_object_get(schema, "properties"), *v, *need;
    const char *key;
    void *tmp;
    size_t i;
    if (!json_is_object(props))
        return 0;
    json_object_foreach_safe(o, tmp, key, v)
    {
        json_t *s = json_object_get(props, key);
        if (!s) {
            text_printf(remark, "%s'%.60s' is no argument of this tool and was dropped",
                        remark->len ? "; " : "", key);
            json_object_del(o, key);
        } else if (check_member(o, key, s, remark) < 0) {
            return -1;
        }
    }
    json_array_foreach(json_object_get(schema, "required"), i,
                       need) if (!json_object_get(o, json_string_value(need)))
    {
        text_clear(remark);
        text_printf(remark, "'%s' is missing", json_string_value(need));
        return -1;
    }
    return 0;
}

int args_read(const char *schema, const char *bytes, size_t n, struct text *out, struct text *remark)
{
    text_clear(out);
    text_clear(remark);
    if (n > MAX_ARGS) {
        text_printf(remark, "the arguments have %zu bytes, more than 8 MiB", n);
        return -1;
    }
    json_t *o = read_object(bytes, n, remark);
    if (!o)
        return -1;
    json_t *s = json_loads(schema, 0, NULL);
    int rc = fit(o, s, remark);
    char *dump = rc == 0 ? json_dumps(o, JSON_COMPACT) : NULL;
    if (dump)
        text_puts(out, dump);
    free(dump);
    json_decref(s);
    json_decref(o);
    return rc;
}
