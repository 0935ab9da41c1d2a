#include "body.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 256 };

/* The parser recurses: how deep is decided here. */
static bool too_deep(const char *s, size_t n)
{
    unsigned depth = 0;
    bool text = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                text = false;
        } else if (c == '"') {
            text = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

/* ---- where a value stands ---- */

struct level {
    bool object;
    size_t index;      /* of an array */
    size_t key, key_n; /* of an object: what stands between the quotes */
};

/* Behind the string that begins at i. */
static size_t behind_string(const char *s, size_t n, size_t i)
{
    for (i++; i < n && s[i] != '"'; i++)
        i += s[i] == '\\';
    return i < n ? i + 1 : n;
}

/* The levels around s + at. The text before it is valid and not nested too deep. */
static unsigned walk(const char *s, size_t at, struct level *v)
{
    unsigned depth = 0;
    size_t from = 0, to = 0;
    for (size_t i = 0; i < at;) {
        struct level *top = depth > 0 ? &v[depth - 1] : NULL;
        const char c = s[i];
        if (c == '"') {
            from = i + 1;
            i = behind_string(s, at, i);
            to = i - 1;
            continue;
        }
        i++;
        if ((c == '{' || c == '[') && depth < MAX_DEPTH)
            v[depth++] = (struct level){.object = c == '{'};
        else if ((c == '}' || c == ']') && depth > 0)
            depth--;
        else if (c == ':' && top)
            top->key = from, top->key_n = to - from;
        else if (c == ',' && top)
            top->index++;
    }
    return depth;
}

/* tools[0].function.parameters.maximum */
static void write_path(const char *s, const struct level *v, unsigned depth, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < depth && n + 1 < size; i++) {
        const int k = v[i].object ? snprintf(out + n, size - n, "%s%.*s", n > 0 ? "." : "",
                                             v[i].key_n > 64 ? 64 : (int)v[i].key_n, s + v[i].key)
                                  : snprintf(out + n, size - n, "[%zu]", v[i].index);
        n += k > 0 ? (size_t)k : 0;
    }
}

/* end: somewhere behind the number. */
static void number_fail(const char *s, size_t n, size_t end, struct api_err *e)
{
    static const char of_numbers[] = "0123456789+-.eE";
    struct level levels[MAX_DEPTH];
    char path[sizeof e->param];
    end = end < n ? end : n;
    while (end > 0 && !memchr(of_numbers, s[end - 1], sizeof of_numbers - 1))
        end--;
    size_t from = end;
    while (from > 0 && memchr(of_numbers, s[from - 1], sizeof of_numbers - 1))
        from--;
    write_path(s, levels, walk(s, from, levels), path, sizeof path);
    const size_t len = end - from;
    api_fail(
        e, 400, path,
        "Field '%s': the number %.*s%s is out of range; whole numbers have at most 64 bit, others at most "
        "1.8e308",
        path, len > 40 ? 40 : (int)len, s + from, len > 40 ? "..." : "");
}

json_t *body_parse(const char *text, size_t n, struct api_err *e)
{
    json_error_t je;
    if (n == 0) {
        api_fail(e, 400, NULL, "the request has no body; a JSON object is expected");
        return NULL;
    }
    if (too_deep(text, n)) {
        api_fail(e, 400, NULL, "the JSON body is nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    json_t *v = json_loadb(text, n, JSON_ALLOW_NUL, &je);
    if (!v && json_error_code(&je) == json_error_numeric_overflow) {
        number_fail(text, n, je.position > 0 ? (size_t)je.position : 0, e);
        return NULL;
    }
    if (!v) {
        api_fail(e, 400, NULL, "the body is not valid JSON: line %d, column %d: %.200s", je.line, je.column,
                 je.text);
        return NULL;
    }
    if (!json_is_object(v)) {
        json_decref(v);
        api_fail(e, 400, NULL, "the body must be a JSON object");
        return NULL;
    }
    return v;
}
