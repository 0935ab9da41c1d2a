/* {"name": "f", "arguments": {…}}, also with "parameters", with its keys in any order, and with the arguments as a string. */
#include "call.h"

#include <string.h>

enum {
    J_OPEN,
    J_KEY_OR_END,
    J_KEY,
    J_IN_KEY,
    J_COLON,
    J_VALUE,
    J_NAME,
    J_ARGS,
    J_ARGS_TEXT,
    J_SKIP,
    J_AFTER
};
enum { K_OTHER, K_NAME, K_ARGS };

/* The string literal in text, decoded into text itself. */
static bool decode(struct call *c)
{
    json_t *s = json_loadb(c->text.p ? c->text.p : "", c->text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const bool good = json_is_string(s);
    buf_clear(&c->text);
    if (good)
        buf_add(&c->text, json_string_value(s), json_string_length(s));
    json_decref(s);
    return good;
}

static bool text_is(const struct call *c, const char *s)
{
    return c->text.n == strlen(s) && memcmp(c->text.p, s, c->text.n) == 0;
}

static bool key_known(struct call *c)
{
    c->kind = text_is(c, "name") && !c->has_name                                      ? K_NAME
              : (text_is(c, "arguments") || text_is(c, "parameters")) && !c->has_args ? K_ARGS
                                                                                      : K_OTHER;
    return c->kind != K_OTHER || !c->strict || text_is(c, "type") || text_is(c, "id");
}

static bool take_name(struct call *c)
{
    if (!decode(c) || c->text.n == 0)
        return false;
    for (size_t i = 0; i < c->text.n; i++)
        if (!call_name_add(c, c->text.p[i]))
            return false;
    if (c->strict && !call_tool(c->tools, c->name))
        return false;
    c->has_name = true;
    if (c->has_args) {
        call_announce(c);
        c->whole = true;
        buf_add(&c->args, c->early.p ? c->early.p : "", c->early.n);
    }
    return true;
}

/* Arguments that were no object: a string that holds one, or nothing. */
static bool take_args(struct call *c, const char *s, size_t n)
{
    c->has_args = true;
    buf_add(c->has_name ? &c->args : &c->early, s, n);
    if (c->has_name) {
        call_announce(c);
        c->whole = true;
    }
    return true;
}

static bool take_args_text(struct call *c)
{
    if (text_is(c, "null"))
        return take_args(c, "{}", 2);
    if (!decode(c))
        return false;
    size_t at = 0;
    while (at < c->text.n && json_blank(c->text.p[at]))
        at++;
    if (at == c->text.n)
        return take_args(c, "{}", 2);
    return c->text.p[at] == '{' && jscan_valid(c->text.p, c->text.n) && take_args(c, c->text.p, c->text.n);
}

static enum call_step begin_value(struct call *c, char b)
{
    jscan_init(&c->json);
    buf_clear(&c->text);
    c->state = J_SKIP;
    if (c->kind == K_NAME) {
        c->state = J_NAME;
        if (b != '"')
            return CALL_BAD;
    } else if (c->kind == K_ARGS) {
        c->state = b == '{' ? J_ARGS : J_ARGS_TEXT;
        if (b != '{' && b != '"' && b != 'n')
            return CALL_BAD;
        if (b == '{' && c->has_name)
            call_announce(c);
    }
    return call_json_feed(c, b);
}

static enum call_step in_value(struct call *c, char b)
{
    struct buf *out = c->state == J_SKIP   ? NULL
                      : c->state != J_ARGS ? &c->text
                      : c->has_name        ? &c->args
                                           : &c->early;
    const enum jscan_step r = jscan_feed(&c->json, b, out);
    if (r == JSCAN_BAD)
        return CALL_BAD;
    if (r == JSCAN_MORE)
        return CALL_MORE;
    const unsigned was = c->state;
    c->state = J_AFTER;
    if (was == J_NAME && !take_name(c))
        return CALL_BAD;
    if (was == J_ARGS_TEXT && !take_args_text(c))
        return CALL_BAD;
    if (was == J_ARGS) {
        c->has_args = true;
        c->whole = c->has_name;
    }
    return r == JSCAN_BACK ? call_json_feed(c, b) : CALL_MORE;
}

/* The object is closed: without arguments it is a call with none, if nothing but a mark could have meant a call. */
static enum call_step closed(struct call *c)
{
    if (!c->has_name || (c->strict && !c->has_args))
        return CALL_BAD;
    if (!c->has_args)
        take_args(c, "{}", 2);
    return CALL_DONE;
}

static enum call_step in_key(struct call *c, char b)
{
    const enum jscan_step r = jscan_feed(&c->json, b, &c->text);
    if (r == JSCAN_MORE)
        return CALL_MORE;
    c->state = J_COLON;
    return r == JSCAN_DONE && decode(c) && key_known(c) ? CALL_MORE : CALL_BAD;
}

enum call_step call_json_feed(struct call *c, char b)
{
    if (c->state == J_IN_KEY)
        return in_key(c, b);
    if (c->state >= J_NAME && c->state <= J_SKIP)
        return in_value(c, b);
    if (json_blank(b))
        return CALL_MORE;
    switch (c->state) {
    case J_OPEN: c->state = J_KEY_OR_END; return b == '{' ? CALL_MORE : CALL_BAD;
    case J_KEY_OR_END:
    case J_KEY:
        if (b == '}' && c->state == J_KEY_OR_END)
            return closed(c);
        if (b != '"')
            return CALL_BAD;
        jscan_init(&c->json);
        buf_clear(&c->text);
        c->state = J_IN_KEY;
        return in_key(c, b);
    case J_COLON: c->state = J_VALUE; return b == ':' ? CALL_MORE : CALL_BAD;
    case J_VALUE: return begin_value(c, b);
    default: break;
    }
    if (b == '}')
        return closed(c);
    c->state = J_KEY;
    return b == ',' ? CALL_MORE : CALL_BAD;
}
