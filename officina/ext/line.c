#include "ext/line.h"

#include "util/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void line_free(struct line *l)
{
    free(l->method);
    free(l->words);
    json_decref(l->body);
    memset(l, 0, sizeof *l);
}

static json_t *object(const char *s, size_t n)
{
    json_t *o = n <= LINE_MAX_BYTES ? js_parse(s, n, NULL, 0) : NULL;
    if (json_is_object(o))
        return o;
    json_decref(o);
    return NULL;
}

static char *fault_words(const json_t *e)
{
    struct text t = {0};
    const char *m = js_str(e, "message");
    text_printf(&t, "%.2000s", m ? m : "the server failed without words");
    if (json_is_integer(json_object_get(e, "code")))
        text_printf(&t, " (code %lld)", (long long)js_int(e, "code", 0));
    return text_take(&t);
}

void line_read_rpc(struct line *l, const char *s, size_t n)
{
    memset(l, 0, sizeof *l);
    json_t *o = object(s, n), *id = json_object_get(o, "id");
    const char *method = js_str(o, "method"), *version = js_str(o, "jsonrpc");
    if (!o || !version || strcmp(version, "2.0") != 0) {
        json_decref(o);
        return;
    }
    if (method) {
        l->kind = id && !json_is_null(id) ? LINE_REQUEST : LINE_NOTICE;
        l->method = mem_dup(method);
        l->body = json_incref(id ? id : json_object_get(o, "params"));
    } else if (json_is_integer(id)) {
        json_t *fault = json_object_get(o, "error"), *result = json_object_get(o, "result");
        l->id = json_integer_value(id);
        l->kind = json_is_object(fault) ? LINE_FAULT : json_is_object(result) ? LINE_RESULT : LINE_NOISE;
        l->words = l->kind == LINE_FAULT ? fault_words(fault) : NULL;
        l->body = l->kind == LINE_RESULT ? json_incref(result) : NULL;
    }
    json_decref(o);
}

void line_read_own(struct line *l, const char *s, size_t n)
{
    memset(l, 0, sizeof *l);
    json_t *o = object(s, n);
    const char *type = js_str(o, "type");
    static const char *const answers[] = {"hello", "result", "verdict", "note"};
    bool answer = false;
    for (size_t i = 0; type && i < sizeof answers / sizeof *answers; i++)
        answer = answer || strcmp(type, answers[i]) == 0;
    if (answer && json_is_integer(json_object_get(o, "id")))
        l->kind = LINE_RESULT;
    else if (type && (strcmp(type, "progress") == 0 || strcmp(type, "panel") == 0))
        l->kind = LINE_NOTICE;
    if (l->kind != LINE_NOISE) {
        l->id = js_int(o, "id", 0);
        l->method = mem_dup(type);
        l->body = json_incref(o);
    }
    json_decref(o);
}

static const char *const events[TELL_KINDS] = {
    [TELL_SESSION_START] = "session_start", [TELL_BEFORE_TOOL] = "before_tool",
    [TELL_AFTER_TOOL] = "after_tool",       [TELL_BEFORE_REQUEST] = "before_request",
    [TELL_TURN_END] = "turn_end",
};

const char *ext_event_name(enum ext_event e)
{
    return events[e];
}

int ext_event_find(const char *name)
{
    for (int i = 0; name && i < TELL_KINDS; i++)
        if (strcmp(events[i], name) == 0)
            return i;
    return -1;
}

void line_result_text(const json_t *result, struct text *out, bool *failed)
{
    const json_t *list = json_object_get(result, "content"), *part;
    size_t i;
    *failed = js_bool(result, "isError", false) || js_bool(result, "failed", false);
    if (js_str(result, "text"))
        text_puts(out, js_str(result, "text"));
    json_array_foreach(list, i, part)
    {
        const char *type = js_str(part, "type"), *text = js_str(part, "text");
        if (!text)
            text = js_str(json_object_get(part, "resource"), "text");
        if (out->len && out->s[out->len - 1] != '\n')
            text_puts(out, "\n");
        if (text)
            text_puts(out, text);
        else
            text_printf(out, "[%.40s left out]", type ? type : "content without a type");
    }
    if (!out->len && json_object_get(result, "structuredContent")) {
        char *s = json_dumps(json_object_get(result, "structuredContent"), JSON_COMPACT | JSON_ENCODE_ANY);
        text_puts(out, s ? s : "");
        free(s);
    }
}

bool line_name_ok(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-./", name[i]))
            return false;
    return n >= 1 && n <= 64;
}
