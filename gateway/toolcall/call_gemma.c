/* call:NAME{key:<quote>text<quote>,n:1,list:[…],o:{…}}: keys and values without quotes, strings between marks of their own. */
#include "call.h"

#include <string.h>

enum { G_PREFIX, G_NAME, G_KEY, G_IN_KEY, G_VALUE, G_QUOTE, G_STRING, G_BARE, G_JSON, G_AFTER };

static const char prefix[] = "call:";

static bool in_object(const struct call *c)
{
    const unsigned d = c->depth - 1;
    return c->depth > 0 && (c->object[d / 8] >> d % 8 & 1);
}

static enum call_step open_level(struct call *c, bool object)
{
    if (c->depth == JSCAN_DEPTH)
        return CALL_BAD;
    const unsigned d = c->depth++;
    c->object[d / 8] = (uint8_t)((c->object[d / 8] & ~(1u << d % 8)) | (unsigned)object << d % 8);
    buf_puts(&c->args, object ? "{" : "[");
    c->comma = false;
    c->state = object ? G_KEY : G_VALUE;
    return CALL_MORE;
}

static enum call_step close_level(struct call *c, char b)
{
    if (b != (in_object(c) ? '}' : ']'))
        return CALL_BAD;
    buf_add(&c->args, &b, 1);
    c->depth--;
    c->comma = true;
    c->state = G_AFTER;
    c->whole = c->depth == 0;
    return c->whole ? CALL_DONE : CALL_MORE;
}

static void separate(struct call *c)
{
    if (c->comma)
        buf_puts(&c->args, ", ");
    c->comma = true;
}

static void put_string(struct call *c, const char *s, size_t n)
{
    buf_puts(&c->args, "\"");
    json_escape(s, n, &c->args);
    buf_puts(&c->args, "\"");
}

static enum call_step begin_value(struct call *c, char b)
{
    if (json_blank(b))
        return CALL_MORE;
    if (b == ']' && !in_object(c))
        return close_level(c, b);
    if (!in_object(c))
        separate(c);
    if (b == '{' || b == '[')
        return open_level(c, b == '{');
    if (b == ',' || b == '}' || b == ']')
        return CALL_BAD;
    c->state = b == '"' ? G_JSON : b == c->quote[0] ? G_QUOTE : G_BARE;
    jscan_init(&c->json);
    return call_gemma_feed(c, b);
}

/* A string: its bytes, but for what may be its end mark. */
static enum call_step in_string(struct call *c, char b)
{
    const size_t n = strlen(c->quote);
    buf_add(&c->text, &b, 1);
    if (c->text.failed)
        return CALL_BAD;
    size_t k = c->text.n < n ? c->text.n : n;
    while (k > 0 && memcmp(c->text.p + c->text.n - k, c->quote, k) != 0)
        k--;
    json_escape(c->text.p, c->text.n - k, &c->args);
    buf_drop(&c->text, c->text.n - k);
    if (k == n) {
        buf_clear(&c->text);
        buf_puts(&c->args, "\"");
        c->state = G_AFTER;
    }
    return CALL_MORE;
}

static enum call_step in_bare(struct call *c, char b)
{
    if (b != ',' && b != '}' && b != ']') {
        buf_add(&c->text, &b, 1);
        return CALL_MORE;
    }
    while (c->text.n > 0 && json_blank(c->text.p[c->text.n - 1]))
        c->text.n--;
    if (jscan_valid(c->text.p, c->text.n))
        buf_add(&c->args, c->text.p, c->text.n);
    else
        put_string(c, c->text.p, c->text.n);
    buf_clear(&c->text);
    c->state = G_AFTER;
    return call_gemma_feed(c, b);
}

static enum call_step in_key(struct call *c, char b)
{
    if (b != ':') {
        buf_add(&c->text, &b, 1);
        return c->text.n <= CALL_NAME_MAX && b != '{' && b != '}' && b != ',' ? CALL_MORE : CALL_BAD;
    }
    while (c->text.n > 0 && json_blank(c->text.p[c->text.n - 1]))
        c->text.n--;
    separate(c);
    put_string(c, c->text.p, c->text.n);
    buf_puts(&c->args, ": ");
    buf_clear(&c->text);
    c->state = G_VALUE;
    return CALL_MORE;
}

static enum call_step in_quote(struct call *c, char b)
{
    if (b != c->quote[c->text.n])
        return CALL_BAD;
    buf_add(&c->text, &b, 1);
    if (!c->quote[c->text.n]) {
        buf_clear(&c->text);
        buf_puts(&c->args, "\"");
        c->state = G_STRING;
    }
    return CALL_MORE;
}

enum call_step call_gemma_feed(struct call *c, char b)
{
    enum jscan_step r;
    switch (c->state) {
    case G_PREFIX:
        if (c->matched == 0 && json_blank(b))
            return CALL_MORE;
        if (b != prefix[c->matched])
            return CALL_BAD;
        if (!prefix[++c->matched])
            c->state = G_NAME;
        return CALL_MORE;
    case G_NAME:
        if (b != '{')
            return call_name_add(c, b) ? CALL_MORE : CALL_BAD;
        if (c->name_n == 0)
            return CALL_BAD;
        call_announce(c);
        return open_level(c, true);
    case G_KEY:
        if (json_blank(b))
            return CALL_MORE;
        if (b == '}')
            return close_level(c, b);
        c->state = G_IN_KEY;
        return b == ':' || b == ',' ? CALL_BAD : in_key(c, b);
    case G_IN_KEY: return in_key(c, b);
    case G_VALUE: return begin_value(c, b);
    case G_QUOTE: return in_quote(c, b);
    case G_STRING: return in_string(c, b);
    case G_BARE: return in_bare(c, b);
    case G_JSON:
        r = jscan_feed(&c->json, b, &c->args);
        if (r == JSCAN_DONE)
            c->state = G_AFTER;
        return r == JSCAN_BAD ? CALL_BAD : CALL_MORE;
    default: break;
    }
    if (json_blank(b))
        return CALL_MORE;
    if (b != ',')
        return close_level(c, b);
    c->state = in_object(c) ? G_KEY : G_VALUE;
    return CALL_MORE;
}
