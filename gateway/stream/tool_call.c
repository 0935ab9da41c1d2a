#include "tool_call.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void strip(const char **s, size_t *n)
{
    while (*n > 0 && blank(**s)) {
        (*s)++;
        (*n)--;
    }
    while (*n > 0 && blank((*s)[*n - 1]))
        (*n)--;
}

/* Arguments as the text of an object: an object, a string that holds one, or nothing at all. */
static char *arguments_text(json_t *args)
{
    if (!args || json_is_null(args))
        return strdup("{}");
    if (json_is_object(args))
        return json_dumps(args, JSON_COMPACT);
    if (!json_is_string(args))
        return NULL;
    json_t *inner = json_loadb(json_string_value(args), json_string_length(args), 0, NULL);
    char *text = json_is_object(inner) ? strdup(json_string_value(args)) : NULL;
    json_decref(inner);
    return text;
}

static int parse_json(const char *text, size_t n, char **name, char **args)
{
    json_t *call = json_loadb(text, n, 0, NULL);
    const char *nm = json_string_value(json_object_get(call, "name"));
    json_t *a = json_object_get(call, "arguments");
    if (!a)
        a = json_object_get(call, "parameters");
    *name = nm && *nm ? strdup(nm) : NULL;
    *args = *name ? arguments_text(a) : NULL;
    json_decref(call);
    if (*args)
        return 0;
    free(*name);
    *name = NULL;
    return -1;
}

static const char *find(const char *s, const char *end, const char *mark)
{
    return memmem(s, (size_t)(end - s), mark, strlen(mark));
}

/* A value is JSON where it reads as number, boolean, object or array, and a string otherwise: the form has no quotes. */
static json_t *parameter_value(const char *s, size_t n)
{
    if (n > 0 && s[0] == '\n') {
        s++;
        n--;
    }
    if (n > 0 && s[n - 1] == '\n')
        n--;
    const char *t = s;
    size_t tn = n;
    strip(&t, &tn);
    json_t *v = tn > 0 && *t != '"' ? json_loadb(t, tn, JSON_DECODE_ANY, NULL) : NULL;
    return v ? v : json_stringn(s, n);
}

static int parse_xml(const char *s, size_t n, char **name, char **args)
{
    static const char fn[] = "<function=", fn_end[] = "</function>",
                      par[] = "<parameter=", par_end[] = "</parameter>";
    const char *end = s + n;
    s += strlen(fn);
    const char *gt = memchr(s, '>', (size_t)(end - s));
    if (!gt || gt == s)
        return -1;
    const char *stop = find(gt, end, fn_end);
    if (!stop)
        return -1;
    json_t *o = json_object();
    const char *nm = s;
    size_t nm_len = (size_t)(gt - s);
    s = gt + 1;
    const char *p;
    while (o && (p = find(s, end, par))) {
        const char *key = p + strlen(par);
        const char *kend = memchr(key, '>', (size_t)(end - key));
        const char *vend = kend ? find(kend, end, par_end) : NULL;
        char *k = vend ? strndup(key, (size_t)(kend - key)) : NULL;
        if (!k || json_object_set_new(o, k, parameter_value(kend + 1, (size_t)(vend - kend - 1)))) {
            free(k);
            json_decref(o);
            return -1;
        }
        free(k);
        s = vend + strlen(par_end);
    }
    *name = strndup(nm, nm_len);
    *args = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (*name && *args)
        return 0;
    free(*name);
    free(*args);
    *name = *args = NULL;
    return -1;
}

int tool_call_parse(const char *text, size_t n, char **name, char **args)
{
    strip(&text, &n);
    if (n > 10 && memcmp(text, "<function=", 10) == 0)
        return parse_xml(text, n, name, args);
    return parse_json(text, n, name, args);
}

bool tool_call_unfinished(const char *text, size_t n)
{
    json_error_t e;
    strip(&text, &n);
    if (n > 10 && memcmp(text, "<function=", 10) == 0)
        return find(text, text + n, "</function>") == NULL;
    json_t *v = json_loadb(text, n, 0, &e);
    if (v) {
        json_decref(v);
        return false;
    }
    return json_error_code(&e) == json_error_premature_end_of_input;
}
