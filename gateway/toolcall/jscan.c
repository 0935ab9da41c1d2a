#include "jscan.h"

#include <stdio.h>
#include <string.h>

enum {
    S_VALUE,
    S_ARRAY_FIRST,  /* a value or ']' */
    S_OBJECT_FIRST, /* a key or '}' */
    S_KEY,
    S_COLON,
    S_AFTER, /* ',' or the end of the level */
    S_STRING,
    S_ESCAPE,
    S_HEX,
    S_LITERAL,
    S_MINUS,
    S_ZERO,
    S_INTEGER,
    S_POINT,
    S_FRACTION,
    S_E,
    S_E_SIGN,
    S_EXPONENT,
    S_OVER
};

void jscan_init(struct jscan *j)
{
    *j = (struct jscan){.state = S_VALUE};
}

static void put(struct buf *out, char c)
{
    if (out)
        buf_add(out, &c, 1);
}

static bool in_object(const struct jscan *j)
{
    const unsigned d = j->depth - 1;
    return j->depth > 0 && (j->object[d / 8] >> d % 8 & 1);
}

/* A value is whole: what follows depends on where it stood. */
static enum jscan_step ended(struct jscan *j, enum jscan_step how)
{
    j->state = j->depth > 0 ? S_AFTER : S_OVER;
    return j->depth > 0 ? JSCAN_MORE : how;
}

static enum jscan_step open_level(struct jscan *j, bool object)
{
    if (j->depth == JSCAN_DEPTH)
        return JSCAN_BAD;
    const unsigned d = j->depth++;
    j->object[d / 8] = (uint8_t)((j->object[d / 8] & ~(1u << d % 8)) | (unsigned)object << d % 8);
    j->state = object ? S_OBJECT_FIRST : S_ARRAY_FIRST;
    return JSCAN_MORE;
}

static enum jscan_step close_level(struct jscan *j)
{
    j->depth--;
    return ended(j, JSCAN_DONE);
}

static enum jscan_step begin_value(struct jscan *j, char c)
{
    switch (c) {
    case '{': return open_level(j, true);
    case '[': return open_level(j, false);
    case '"':
        j->state = S_STRING;
        j->key = false;
        return JSCAN_MORE;
    case 't':
    case 'f':
    case 'n':
        j->literal = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
        j->state = S_LITERAL;
        return JSCAN_MORE;
    case '-': j->state = S_MINUS; return JSCAN_MORE;
    case '0': j->state = S_ZERO; return JSCAN_MORE;
    default: break;
    }
    if (c < '1' || c > '9')
        return JSCAN_BAD;
    j->state = S_INTEGER;
    return JSCAN_MORE;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The next state of a number, or -1 when c is no part of it. */
static int number_state(unsigned state, char c)
{
    const bool e = c == 'e' || c == 'E';
    switch (state) {
    case S_MINUS: return c == '0' ? S_ZERO : digit(c) ? S_INTEGER : -1;
    case S_ZERO: return c == '.' ? S_POINT : e ? S_E : -1;
    case S_INTEGER: return digit(c) ? S_INTEGER : c == '.' ? S_POINT : e ? S_E : -1;
    case S_POINT: return digit(c) ? S_FRACTION : -1;
    case S_FRACTION: return digit(c) ? S_FRACTION : e ? S_E : -1;
    case S_E: return c == '+' || c == '-' ? S_E_SIGN : digit(c) ? S_EXPONENT : -1;
    default: return digit(c) ? S_EXPONENT : -1;
    }
}

static enum jscan_step in_string(struct jscan *j, char c, struct buf *out)
{
    char text[8];
    if (j->state == S_HEX) {
        if (!digit(c) && !((c | 32) >= 'a' && (c | 32) <= 'f'))
            return JSCAN_BAD;
        if (--j->hex == 0)
            j->state = S_STRING;
    } else if (j->state == S_ESCAPE) {
        if (!c || !strchr("\"\\/bfnrtu", c))
            return JSCAN_BAD;
        j->hex = 4;
        j->state = c == 'u' ? S_HEX : S_STRING;
    } else if (c == '"') {
        put(out, c);
        if (!j->key)
            return ended(j, JSCAN_DONE);
        j->state = S_COLON;
        return JSCAN_MORE;
    } else if (c == '\\') {
        j->state = S_ESCAPE;
    } else if ((unsigned char)c < 0x20) {
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
        if (out)
            buf_puts(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : text);
        return JSCAN_MORE;
    }
    put(out, c);
    return JSCAN_MORE;
}

/* Outside of strings, numbers and literals. */
static enum jscan_step between(struct jscan *j, char c)
{
    switch (j->state) {
    case S_VALUE: return begin_value(j, c);
    case S_ARRAY_FIRST: return c == ']' ? close_level(j) : begin_value(j, c);
    case S_OBJECT_FIRST:
    case S_KEY:
        if (c == '}' && j->state == S_OBJECT_FIRST)
            return close_level(j);
        if (c != '"')
            return JSCAN_BAD;
        j->state = S_STRING;
        j->key = true;
        return JSCAN_MORE;
    case S_COLON: j->state = S_VALUE; return c == ':' ? JSCAN_MORE : JSCAN_BAD;
    default: break;
    }
    if (c == ',') {
        j->state = in_object(j) ? S_KEY : S_VALUE;
        return JSCAN_MORE;
    }
    return c == (in_object(j) ? '}' : ']') ? close_level(j) : JSCAN_BAD;
}

enum jscan_step jscan_feed(struct jscan *j, char c, struct buf *out)
{
    if (j->state == S_STRING || j->state == S_ESCAPE || j->state == S_HEX)
        return in_string(j, c, out);
    if (j->state == S_OVER)
        return JSCAN_BAD;
    if (j->state == S_LITERAL) {
        if (c != *j->literal)
            return JSCAN_BAD;
        put(out, c);
        return *++j->literal ? JSCAN_MORE : ended(j, JSCAN_DONE);
    }
    if (j->state >= S_MINUS) {
        const int next = number_state(j->state, c);
        if (next >= 0) {
            j->state = (uint8_t)next;
            put(out, c);
            return JSCAN_MORE;
        }
        if (j->state != S_ZERO && j->state != S_INTEGER && j->state != S_FRACTION && j->state != S_EXPONENT)
            return JSCAN_BAD;
        if (ended(j, JSCAN_BACK) == JSCAN_BACK)
            return JSCAN_BACK;
    }
    if (json_blank(c)) {
        put(out, c);
        return JSCAN_MORE;
    }
    const enum jscan_step r = between(j, c);
    if (r != JSCAN_BAD)
        put(out, c);
    return r;
}

bool jscan_valid(const char *s, size_t n)
{
    struct jscan j;
    enum jscan_step r = JSCAN_MORE;
    size_t i = 0;
    jscan_init(&j);
    while (i < n && r == JSCAN_MORE)
        r = jscan_feed(&j, s[i++], NULL);
    if (r == JSCAN_MORE) /* a number ends with the text */
        return jscan_feed(&j, ' ', NULL) == JSCAN_BACK;
    for (i -= r == JSCAN_BACK; i < n && json_blank(s[i]); i++)
        ;
    return r != JSCAN_BAD && i == n;
}

void json_escape(const char *s, size_t n, struct buf *out)
{
    char text[8];
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        if (c == '"' || c == '\\') {
            buf_add(out, "\\", 1);
            buf_add(out, &c, 1);
        } else if ((unsigned char)c < 0x20) {
            snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
            buf_puts(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : text);
        } else {
            buf_add(out, &c, 1);
        }
    }
}
