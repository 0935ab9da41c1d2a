#include "check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void problem(json_t *list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void problem(json_t *list, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    json_t *s = json_vsprintf(fmt, ap);
    va_end(ap);
    json_array_append_new(list, s ? s : json_string("a fault whose text is no UTF-8"));
}

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* The text of a message: a string, or the texts of its parts behind each other. malloc'd. */
static char *content_text(const json_t *m)
{
    const json_t *c = json_object_get(m, "content"), *part;
    if (!json_is_array(c))
        return strdup(json_is_string(c) ? json_string_value(c) : "");
    size_t i, n = 1;
    json_array_foreach(c, i, part) n += strlen(str(part, "text"));
    char *out = calloc(n, 1);
    json_array_foreach(c, i, part) strcat(out, str(part, "text"));
    return out;
}

struct walk {
    json_t *problems;
    json_t *open; /* ids of calls that have no result yet, as keys */
    json_t *seen; /* all ids */
    const char *role;
    size_t at;
    bool provider;
    int status;
};

static void fault400(struct walk *w)
{
    if (w->status == 200)
        w->status = 400;
}

static void check_call(struct walk *w, const json_t *c)
{
    const char *id = str(c, "id"), *args = str(json_object_get(c, "function"), "arguments");
    if (!*id || !*str(json_object_get(c, "function"), "name") || strcmp(str(c, "type"), "function") != 0) {
        problem(w->problems, "message %zu: a tool call without id, type or name", w->at);
        fault400(w);
    }
    if (json_object_get(w->seen, id)) {
        problem(w->problems, "message %zu: the call id %s was used before", w->at, id);
        fault400(w);
    }
    json_object_set_new(w->seen, id, json_true());
    json_object_set_new(w->open, id, json_true());
    json_t *v = json_loads(args, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(v)) {
        problem(w->problems, "message %zu: Failed to parse tool call arguments as JSON: %.60s", w->at, args);
        w->status = 500;
    }
    json_decref(v);
    bool nine = strlen(id) == 9;
    for (const char *p = id; *p; p++)
        nine = nine && isalnum((unsigned char)*p);
    if (w->provider && !nine) {
        problem(w->problems, "message %zu: the call id %s is not nine letters or digits", w->at, id);
        fault400(w);
    }
}

static void check_role(struct walk *w, const json_t *m, const char *role)
{
    static const char *const known[] = {"system", "user", "assistant", "tool"};
    bool ok = false;
    for (size_t i = 0; i < 4; i++)
        ok = ok || strcmp(role, known[i]) == 0;
    if (!ok)
        problem(w->problems, "message %zu: the role '%s' is not known", w->at, role);
    else if (strcmp(role, "system") == 0 && w->at)
        problem(w->problems, "message %zu: a system message that is not the first", w->at);
    else if (w->role && strcmp(role, w->role) == 0 && strcmp(role, "tool") != 0)
        problem(w->problems, "message %zu: two messages of the role %s in a row", w->at, role);
    else if (w->provider && w->role && strcmp(role, "user") == 0 && strcmp(w->role, "tool") == 0)
        problem(w->problems, "message %zu: a user message behind a tool's", w->at);
    else
        return;
    fault400(w);
}

static void check_members(struct walk *w, const json_t *m)
{
    static const char *const known[] = {"role", "content", "tool_calls", "tool_call_id", "name"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)m, key, v)
    {
        bool ok = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            ok = ok || strcmp(key, known[i]) == 0;
        if (!ok) {
            problem(w->problems, "message %zu: the member '%s' is not known", w->at, key);
            fault400(w);
        }
    }
}

static void check_message(struct walk *w, const json_t *m)
{
    const char *role = str(m, "role"), *id = str(m, "tool_call_id"), *key;
    const json_t *calls = json_object_get(m, "tool_calls"), *content = json_object_get(m, "content");
    json_t *v;
    check_role(w, m, role);
    if (w->provider)
        check_members(w, m);
    if (strcmp(role, "tool") == 0) {
        if (!json_object_get(w->open, id)) {
            problem(w->problems, "message %zu: a result for '%s', which is no open call", w->at, id);
            fault400(w);
        }
        json_object_del(w->open, id);
    } else {
        json_object_foreach(w->open, key, v)
        {
            problem(w->problems, "message %zu: the call %s has no result", w->at, key);
            fault400(w);
        }
        json_object_clear(w->open);
    }
    if (!json_is_string(content) && !json_is_array(content) && !json_array_size(calls)) {
        problem(w->problems, "message %zu: no content", w->at);
        fault400(w);
    }
    size_t i;
    json_array_foreach(calls, i, v) check_call(w, v);
    w->role = role;
}

int check_chat(const json_t *body, bool provider, json_t *problems)
{
    struct walk w = {problems, json_object(), json_object(), NULL, 0, provider, 200};
    const json_t *list = json_object_get(body, "messages");
    json_t *m;
    if (!json_array_size(list)) {
        problem(problems, "the request has no messages");
        w.status = 400;
    }
    json_array_foreach(list, w.at, m) check_message(&w, m);
    const char *key;
    json_object_foreach(w.open, key, m)
    {
        problem(problems, "the call %s has no result at the end", key);
        fault400(&w);
    }
    if (w.role && (strcmp(w.role, "assistant") == 0 || strcmp(w.role, "system") == 0)) {
        problem(problems, "the last message is of the role %s", w.role);
        fault400(&w);
    }
    json_decref(w.open);
    json_decref(w.seen);
    return w.status;
}

static bool has_tool(const json_t *body, const char *name)
{
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(body, "tools"), i,
                       t) if (strcmp(str(json_object_get(t, "function"), "name"), name) == 0) return true;
    return false;
}

/* 1: the text is in a message that counts, 0: it is not, -1: there is no message that counts. */
static int find(const json_t *body, const struct expect *e)
{
    const json_t *list = json_object_get(body, "messages");
    size_t i, n = json_array_size(list);
    int found = -1;
    json_t *m;
    json_array_foreach(list, i, m)
    {
        if (e->kind == EXPECT_LAST && i + 1 < n)
            continue;
        if (e->id && strcmp(str(m, "tool_call_id"), e->id) != 0)
            continue;
        char *text = content_text(m);
        found = found == 1 || strstr(text, e->text) != NULL;
        free(text);
    }
    return found;
}

static const char *const WORDS[] = {"last", "result contains", "result lacks", "any", "none"};

void check_expects(const struct block *b, const json_t *body, size_t common, size_t before, json_t *problems)
{
    for (size_t i = 0; i < b->n_expects; i++) {
        const struct expect *e = &b->expects[i];
        size_t n = json_array_size(json_object_get(body, "messages"));
        if (e->kind == EXPECT_TOOL && !has_tool(body, e->text))
            problem(problems, "ON %d: expected the tool %s", b->number, e->text);
        else if (e->kind == EXPECT_MESSAGES && n != (size_t)e->n)
            problem(problems, "ON %d: expected %ld messages, not %zu", b->number, e->n, n);
        else if (e->kind == EXPECT_EXTENDS && common != before)
            problem(problems, "ON %d: the prompt parts from the one before at byte %zu of %zu", b->number,
                    common, before);
        else if (e->kind == EXPECT_CUT && common == before)
            problem(problems, "ON %d: the prompt before is a prefix of this one", b->number);
        if (e->kind > EXPECT_NONE)
            continue;
        bool want = e->kind != EXPECT_LACKS && e->kind != EXPECT_NONE;
        int found = find(body, e);
        if (found < 0 || (found == 1) != want)
            problem(problems, "ON %d: expected %s %s \"%.80s\"%s", b->number, WORDS[e->kind],
                    e->id ? e->id : "", e->text, found < 0 ? "; there is no such message" : "");
    }
}

char *check_prompt(const json_t *body)
{
    size_t i, len = 0;
    char *out = json_dumps(json_object_get(body, "tools"), JSON_COMPACT | JSON_ENCODE_ANY);
    if (!out)
        out = strdup("");
    len = strlen(out);
    json_t *m;
    json_array_foreach(json_object_get(body, "messages"), i, m)
    {
        char *s = json_dumps(m, JSON_COMPACT);
        size_t n = s ? strlen(s) : 0;
        out = realloc(out, len + n + 2);
        out[len] = '\n';
        memcpy(out + len + 1, s ? s : "", n + 1);
        len += n + 1;
        free(s);
    }
    return out;
}

size_t check_common(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}
