#include "calls.h"

#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void call_free(struct tool_call *t)
{
    free(t->name);
    buf_fini(&t->args);
}

void calls_fini(struct calls *c)
{
    for (size_t i = 0; i < c->n; i++)
        call_free(&c->v[i]);
    free(c->v);
    *c = (struct calls){0};
}

static void make_id(char *out, size_t size, bool short_id)
{
    static const char alnum[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    uint8_t raw[24];
    size_t n = short_id ? 0 : (size_t)snprintf(out, size, "call_");
    vt_random(raw, sizeof raw);
    for (int i = 0; i < (short_id ? 9 : 24); i++)
        out[n++] = alnum[raw[i] % 62];
    out[n] = '\0';
}

int calls_begin(struct calls *c, const char *name, bool short_ids)
{
    if (c->n == c->cap) {
        const size_t cap = c->cap * 2 + 4;
        struct tool_call *v = realloc(c->v, cap * sizeof *v);
        if (!v)
            return -1;
        c->v = v;
        c->cap = cap;
    }
    struct tool_call *t = &c->v[c->n];
    *t = (struct tool_call){.name = strdup(name)};
    if (!t->name)
        return -1;
    make_id(t->id, sizeof t->id, short_ids);
    c->n++;
    c->news = true;
    return 0;
}

int calls_args(struct calls *c, const char *text, size_t n)
{
    struct buf *b = &c->v[c->n - 1].args;
    buf_add(b, text, n);
    c->news = true;
    return b->failed ? -1 : 0;
}

void calls_whole(struct calls *c)
{
    c->v[c->n - 1].whole = true;
}

bool calls_undo(struct calls *c)
{
    if (c->v[c->n - 1].told)
        return false;
    call_free(&c->v[--c->n]);
    return true;
}

bool calls_are_whole(const struct calls *c)
{
    return c->n > 0 && c->v[c->n - 1].whole;
}

json_t *calls_json(const struct calls *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:{s:s, s:s%}}", "id", c->v[i].id, "type",
                                              "function", "function", "name", c->v[i].name, "arguments",
                                              c->v[i].args.p ? c->v[i].args.p : "", c->v[i].args.n));
    return list;
}
