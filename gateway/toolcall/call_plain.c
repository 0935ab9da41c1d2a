/* A name and its arguments behind it: get_weather[ARGS]{"city": "Oslo"}, with [CALL_ID]… between them or not. */
#include "call.h"

#include <string.h>

enum { P_NAME, P_ID, P_ARGS_MARK, P_ARGS };

static const char args_mark[] = "[ARGS]", id_mark[] = "[CALL_ID]";

static enum call_step begin_args(struct call *c)
{
    while (c->name_n > 0 && json_blank(c->name[c->name_n - 1]))
        c->name[--c->name_n] = '\0';
    if (c->name_n == 0)
        return CALL_BAD;
    c->state = P_ARGS;
    return CALL_MORE;
}

/* Inside of "[…": the marks share their first byte only. */
static enum call_step in_mark(struct call *c, char b)
{
    buf_add(&c->text, &b, 1);
    const size_t n = c->text.n;
    const bool args = n <= strlen(args_mark) && memcmp(c->text.p, args_mark, n) == 0;
    const bool id = n <= strlen(id_mark) && memcmp(c->text.p, id_mark, n) == 0 && c->state == P_NAME;
    if (!args && !id)
        return CALL_BAD;
    if (args && n == strlen(args_mark)) {
        buf_clear(&c->text);
        return begin_args(c);
    }
    if (id && n == strlen(id_mark)) {
        buf_clear(&c->text);
        c->state = P_ID;
    }
    return CALL_MORE;
}

void call_plain_named(struct call *c, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        call_name_add(c, name[i]);
    c->state = P_ARGS;
}

enum call_step call_plain_feed(struct call *c, char b)
{
    if (c->state == P_ARGS) {
        if (!c->named && json_blank(b))
            return CALL_MORE;
        if (!c->named && b != '{')
            return CALL_BAD;
        call_announce(c);
        const enum jscan_step r = jscan_feed(&c->json, b, &c->args);
        c->whole = r == JSCAN_DONE;
        return r == JSCAN_BAD ? CALL_BAD : c->whole ? CALL_DONE : CALL_MORE;
    }
    if (c->text.n > 0 || b == '[')
        return in_mark(c, b);
    if (c->state == P_ID) /* the model's own id: each call gets one that is surely unique */
        return b == '{' || ++c->matched > CALL_NAME_MAX ? CALL_BAD : CALL_MORE;
    if (b == '{')
        return begin_args(c) == CALL_BAD ? CALL_BAD : call_plain_feed(c, b);
    return (json_blank(b) && c->name_n == 0) || call_name_add(c, b) ? CALL_MORE : CALL_BAD;
}
