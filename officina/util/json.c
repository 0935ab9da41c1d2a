#include "util/json.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define DEEPEST 64

static bool too_deep(const char *s, size_t n)
{
    int depth = 0;
    bool in = false;
    for (size_t i = 0; i < n; i++) {
        if (in) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                in = false;
        } else if (s[i] == '"') {
            in = true;
        } else if (s[i] == '{' || s[i] == '[') {
            if (++depth > DEEPEST)
                return true;
        } else if (s[i] == '}' || s[i] == ']') {
            depth--;
        }
    }
    return false;
}

json_t *js_parse(const char *bytes, size_t n, char *why, size_t size)
{
    json_error_t e;
    if (too_deep(bytes, n)) {
        if (why != NULL)
            snprintf(why, size, "nested deeper than %d levels", DEEPEST);
        return NULL;
    }
    json_t *v = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (v == NULL && why != NULL)
        snprintf(why, size, "line %d, column %d: %s", e.line, e.column, e.text);
    return v;
}

const char *js_str(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

int64_t js_int(const json_t *o, const char *key, int64_t dflt)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v)
           : json_is_real(v) && json_real_value(v) > -9e15 && json_real_value(v) < 9e15
               ? (int64_t)json_real_value(v)
               : dflt;
}

double js_num(const json_t *o, const char *key, double dflt)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : dflt;
}

bool js_bool(const json_t *o, const char *key, bool dflt)
{
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

char *utf8_mend(const char *s, size_t n)
{
    struct text t = {0};
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)s;
    size_t i = 0;
    while (i < n) {
        utf8proc_int32_t c;
        utf8proc_ssize_t k = utf8proc_iterate(p + i, (utf8proc_ssize_t)(n - i), &c);
        if (k > 0 && p[i] != 0) {
            text_add(&t, s + i, (size_t)k);
            i += (size_t)k;
        } else {
            text_puts(&t, "\xef\xbf\xbd");
            i++;
        }
    }
    return text_take(&t);
}

void js_set_strn(json_t *o, const char *key, const char *s, size_t n)
{
    json_t *v = memchr(s, 0, n) != NULL ? NULL : json_stringn(s, n); /* js_parse() refuses a NUL */
    if (v == NULL) {
        char *good = utf8_mend(s, n);
        v = json_string(good);
        free(good);
    }
    json_object_set_new(o, key, v);
}

void js_set_str(json_t *o, const char *key, const char *s)
{
    if (s != NULL)
        js_set_strn(o, key, s, strlen(s));
}

void js_set_int(json_t *o, const char *key, int64_t v)
{
    json_object_set_new(o, key, json_integer((json_int_t)v));
}

char *js_dump(json_t *o)
{
    char *s = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(o);
    return s != NULL ? s : mem_dup("null");
}

void js_quote(struct text *t, const char *s, size_t n)
{
    json_t *v = json_stringn(s, n);
    if (v == NULL) {
        char *good = utf8_mend(s, n);
        v = json_string(good);
        free(good);
    }
    char *q = js_dump(v);
    text_puts(t, q);
    free(q);
}
