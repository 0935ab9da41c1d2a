/* DeepSeek: function<｜tool▁sep｜>NAME, a line break, and the arguments in a fence of ```json (V3, R1); or
 * NAME<｜tool▁sep｜>{arguments} (V3.1). */
#include "call.h"

#include <string.h>

enum { D_HEAD, D_SEP, D_NAME, D_FENCE, D_ARGS, D_TAIL };
enum { FENCE_MAX = 32 };

static const char sep[] = "<\uff5ctool\u2581sep\uff5c>";

static enum call_step in_head(struct call *c, char b)
{
    const size_t n = sizeof sep - 1;
    buf_add(&c->text, &b, 1);
    if (b == '>' && c->text.n > n && memcmp(c->text.p + c->text.n - n, sep, n) == 0) {
        c->text.n -= n;
        c->state = D_SEP;
        return CALL_MORE;
    }
    return c->text.n <= CALL_NAME_MAX + n && (unsigned char)b >= 0x20 ? CALL_MORE : CALL_BAD;
}

static enum call_step begin_args(struct call *c)
{
    while (c->name_n > 0 && json_blank(c->name[c->name_n - 1]))
        c->name_n--;
    if (c->name_n == 0)
        return CALL_BAD;
    call_announce(c);
    c->state = D_ARGS;
    return call_fenced_feed(c, '{');
}

/* Behind the separator: the arguments at once, or the name. */
static enum call_step behind_sep(struct call *c, char b)
{
    static const char kind[] = "function";
    if (json_blank(b))
        return CALL_MORE;
    if (b == '{') {
        for (size_t i = 0; i < c->text.n; i++)
            if (!call_name_add(c, c->text.p[i]))
                return CALL_BAD;
        return begin_args(c);
    }
    if (c->text.n != sizeof kind - 1 || memcmp(c->text.p, kind, sizeof kind - 1) != 0)
        return CALL_BAD;
    c->state = D_NAME;
    return call_name_add(c, b) ? CALL_MORE : CALL_BAD;
}

enum call_step call_fenced_feed(struct call *c, char b)
{
    switch (c->state) {
    case D_HEAD: return in_head(c, b);
    case D_SEP: return behind_sep(c, b);
    case D_NAME:
        if (b != '\n')
            return call_name_add(c, b) ? CALL_MORE : CALL_BAD;
        c->state = D_FENCE;
        return CALL_MORE;
    case D_FENCE:
        if (b == '{')
            return begin_args(c);
        return ++c->matched <= FENCE_MAX && (json_blank(b) || memchr("`json", b, 5)) ? CALL_MORE : CALL_BAD;
    case D_ARGS: {
        const enum jscan_step r = jscan_feed(&c->json, b, &c->args);
        if (r != JSCAN_DONE)
            return r == JSCAN_BAD ? CALL_BAD : CALL_MORE;
        c->whole = true;
        c->matched = 0;
        c->state = D_TAIL;
        return CALL_MORE;
    }
    default: return (json_blank(b) || b == '`') && ++c->matched <= FENCE_MAX ? CALL_MORE : CALL_BACK;
    }
}
