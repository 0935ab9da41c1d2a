#include "core/args.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void remark(struct args *a, const char *words)
{
    struct text t = {0};
    text_printf(&t, "%s%s%s",
                a->repair != NULL ? a->repair : "Arguments mended: ", a->repair != NULL ? "; " : "", words);
    free(a->repair);
    a->repair = text_take(&t);
}

static void trim(const char **s, size_t *n)
{
    while (*n > 0 && isspace((unsigned char)**s))
        (*s)++, (*n)--;
    while (*n > 0 && isspace((unsigned char)(*s)[*n - 1]))
        (*n)--;
}

/* ```json … ``` around the object. */
static int fenced(const char **s, size_t *n)
{
    if (*n < 6 || memcmp(*s, "```", 3) != 0 || memcmp(*s + *n - 3, "```", 3) != 0)
        return 0;
    const char *nl = memchr(*s, '\n', *n - 3);
    if (nl == NULL)
        return 0;
    *n = (size_t)(*s + *n - 3 - (nl + 1));
    *s = nl + 1;
    trim(s, n);
    return 1;
}

/* \ud800 without its partner is no character; jansson refuses it. Returns whether anything was replaced. */
static int lone_surrogates(const char *s, size_t n, struct text *out)
{
    int changed = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\' || i + 1 >= n) {
            text_add(out, s + i, 1);
            i++;
            continue;
        }
        size_t len = s[i + 1] == 'u' && i + 6 <= n ? 6 : 2;
        char hex[5] = {0};
        if (len == 6)
            memcpy(hex, s + i + 2, 4);
        unsigned v = len == 6 ? (unsigned)strtoul(hex, NULL, 16) : 0;
        bool high = v >= 0xd800 && v < 0xdc00, low = v >= 0xdc00 && v < 0xe000;
        if (high && i + 12 <= n && s[i + 6] == '\\' && s[i + 7] == 'u') {
            memcpy(hex, s + i + 8, 4);
            unsigned w = (unsigned)strtoul(hex, NULL, 16);
            if (w >= 0xdc00 && w < 0xe000) {
                text_add(out, s + i, 12);
                i += 12;
                continue;
            }
        }
        if (high || low) {
            text_puts(out, "\\ufffd");
            changed = 1;
        } else {
            text_add(out, s + i, len);
        }
        i += len;
    }
    return changed;
}

/* A value written as a string where the schema wants another type, and the reverse for numbers. */
static json_t *retyped(const json_t *v, const char *want)
{
    const char *s = json_string_value(v);
    if (s == NULL)
        return NULL;
    if (strcmp(want, "boolean") == 0 && (strcmp(s, "true") == 0 || strcmp(s, "false") == 0))
        return json_boolean(s[0] == 't');
    if (strcmp(want, "integer") == 0 || strcmp(want, "number") == 0) {
        char *end;
        errno = 0;
        long long i = strtoll(s, &end, 10);
        if (end != s && *end == '\0' && errno == 0)
            return json_integer(i);
        double d = strtod(s, &end);
        if (strcmp(want, "number") == 0 && end != s && *end == '\0' && errno == 0)
            return json_real(d);
    }
    if (strcmp(want, "array") == 0 || strcmp(want, "object") == 0) {
        json_t *in = js_parse(s, strlen(s), NULL, 0);
        if (in != NULL && (strcmp(want, "array") == 0 ? json_is_array(in) : json_is_object(in)))
            return in;
        json_decref(in);
    }
    return NULL;
}

static bool is_type(const json_t *v, const char *want)
{
    return strcmp(want, "string") == 0    ? json_is_string(v)
           : strcmp(want, "boolean") == 0 ? json_is_boolean(v)
           : strcmp(want, "integer") == 0 ? json_is_integer(v)
           : strcmp(want, "number") == 0  ? json_is_number(v)
           : strcmp(want, "array") == 0   ? json_is_array(v)
           : strcmp(want, "object") == 0  ? json_is_object(v)
                                          : true;
}

static void fault(struct args *a, const char *fmt, const char *key, const char *more)
{
    struct text t = {0};
    text_printf(&t, fmt, key, more);
    free(a->fault);
    a->fault = text_take(&t);
}

static void fit(struct args *a, const json_t *schema)
{
    const json_t *props = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(a->value, next, key, v)
    {
        const json_t *p = json_object_get(props, key);
        if (p == NULL) {
            struct text t = {0};
            text_printf(&t, "unknown key \"%.60s\" dropped", key);
            remark(a, text_str(&t));
            text_free(&t);
            json_object_del(a->value, key);
            continue;
        }
        const char *want = js_str(p, "type");
        if (json_is_null(v)) { /* null means that it is not given */
            json_object_del(a->value, key);
            continue;
        }
        if (want == NULL || is_type(v, want))
            continue;
        json_t *other = retyped(v, want);
        if (other == NULL) {
            fault(a, "the argument \"%.60s\" must be of type %s", key, want);
            return;
        }
        remark(a, "a value was written as a string");
        json_object_set_new(a->value, key, other);
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name != NULL && json_object_get(a->value, name) == NULL) {
            fault(a, "the argument \"%.60s\" is missing%s", name, "");
            return;
        }
    }
}

void args_read(struct args *a, const char *bytes, size_t n, const char *schema)
{
    char why[200];
    struct text mended = {0};
    *a = (struct args){0};
    trim(&bytes, &n);
    if (n == 0) {
        a->value = json_object();
        if (schema != NULL)
            remark(a, "empty arguments read as {}");
    } else {
        if (fenced(&bytes, &n))
            remark(a, "a code fence around the object");
        a->value = js_parse(bytes, n, why, sizeof why);
        if (a->value == NULL && lone_surrogates(bytes, n, &mended)) {
            a->value = js_parse(text_str(&mended), mended.len, why, sizeof why);
            remark(a, "half a character replaced");
        }
        if (json_is_string(a->value)) {
            json_t *in = js_parse(json_string_value(a->value), json_string_length(a->value), NULL, 0);
            if (json_is_object(in)) {
                remark(a, "the object stood inside a string");
                json_decref(a->value);
                a->value = in;
            } else {
                json_decref(in);
            }
        }
    }
    text_free(&mended);
    if (a->value == NULL)
        fault(a, "the arguments are no valid JSON: %s%s", why, "");
    else if (!json_is_object(a->value))
        fault(a, "the arguments must be a JSON object%s%s", "", "");
    json_t *s = a->fault == NULL && schema != NULL ? js_parse(schema, strlen(schema), NULL, 0) : NULL;
    if (s != NULL)
        fit(a, s);
    json_decref(s);
    if (a->fault != NULL) {
        json_decref(a->value);
        a->value = NULL;
    }
}

void args_free(struct args *a)
{
    json_decref(a->value);
    free(a->repair);
    free(a->fault);
    *a = (struct args){0};
}
