/* <function=NAME> <parameter=KEY> value </parameter> … </function>. */
#include "call.h"

#include <string.h>

enum { X_OPEN, X_NAME, X_BETWEEN, X_KEY, X_VALUE, X_ENDED };
enum { BLANKS_MAX = 256 };

static const char open_mark[] = "<function=", close_mark[] = "</function>",
                  param_mark[] = "<parameter=", param_end[] = "</parameter>";

static void begin_value(struct call *c)
{
    call_value_begin(c);
    c->typed = false; /* a line break at the head of the value is the form's */
    c->state = X_VALUE;
}

/* How many bytes at the end of the value may belong to its end mark, with the line break before it. */
static size_t held_back(const struct buf *t)
{
    static const char mark[] = "\n</parameter>";
    for (size_t k = t->n < sizeof mark - 1 ? t->n : sizeof mark - 1; k > 0; k--)
        if (memcmp(t->p + t->n - k, mark, k) == 0 ||
            (k < sizeof mark - 1 && memcmp(t->p + t->n - k, mark + 1, k) == 0))
            return k;
    return 0;
}

/* text holds the value (or what is left of it) without its end mark. */
static void end_value(struct call *c)
{
    if (c->text.n > 0 && c->text.p[c->text.n - 1] == '\n')
        c->text.n--;
    call_value_end(c);
}

static enum call_step in_value(struct call *c, char b)
{
    if (!c->typed) {
        c->typed = true;
        if (b == '\n')
            return CALL_MORE;
    }
    buf_add(&c->text, &b, 1);
    const size_t n = sizeof param_end - 1;
    if (b == '>' && c->text.n >= n && memcmp(c->text.p + c->text.n - n, param_end, n) == 0) {
        c->matched = c->text.n; /* whether this is the end shows in what follows */
        c->state = X_ENDED;
        return CALL_MORE;
    }
    if (c->kind == VALUE_STRING) {
        const size_t ready = c->text.n - held_back(&c->text);
        json_escape(c->text.p, ready, &c->args);
        buf_drop(&c->text, ready);
    }
    return CALL_MORE;
}

/* Whether the bytes s may become one of the two marks that can follow a parameter. */
static bool may_follow(const char *s, size_t n)
{
    return (n <= strlen(param_mark) && memcmp(s, param_mark, n) == 0) ||
           (n <= strlen(close_mark) && memcmp(s, close_mark, n) == 0);
}

static enum call_step finish(struct call *c)
{
    buf_puts(&c->args, c->comma ? "}" : "{}");
    c->whole = true;
    return CALL_DONE;
}

/* What looked like the end of the value was a part of it: the mark, and what was read behind it. */
static enum call_step value_goes_on(struct call *c)
{
    struct buf rest = c->early;
    enum call_step r = CALL_MORE;
    c->early = (struct buf){0};
    c->state = X_VALUE;
    if (c->kind == VALUE_STRING) {
        json_escape(c->text.p, c->text.n, &c->args);
        buf_clear(&c->text);
    }
    for (size_t i = 0; i < rest.n && r == CALL_MORE; i++)
        r = call_xml_feed(c, rest.p[i]);
    c->early.failed |= rest.failed;
    buf_fini(&rest);
    return r;
}

/* Behind </parameter>: the text of a value may hold that mark, but not with a mark of the form behind it. */
static enum call_step after_value(struct call *c, char b)
{
    size_t at = 0;
    buf_add(&c->early, &b, 1);
    if (c->early.failed)
        return CALL_BAD;
    while (at < c->early.n && json_blank(c->early.p[at]))
        at++;
    if (at > BLANKS_MAX || !may_follow(c->early.p + at, c->early.n - at))
        return value_goes_on(c);
    if (b != '>' && b != '=')
        return CALL_MORE;
    c->text.n = c->matched - (sizeof param_end - 1);
    buf_clear(&c->early);
    end_value(c);
    if (b == '>')
        return finish(c);
    c->state = X_KEY;
    return CALL_MORE;
}

enum call_step call_xml_feed(struct call *c, char b)
{
    switch (c->state) {
    case X_OPEN:
        if (c->matched == 0 && json_blank(b))
            return CALL_MORE;
        if (b != open_mark[c->matched])
            return CALL_BAD;
        if (!open_mark[++c->matched])
            c->state = X_NAME;
        return CALL_MORE;
    case X_NAME:
        if (b != '>')
            return call_name_add(c, b) ? CALL_MORE : CALL_BAD;
        if (c->name_n == 0)
            return CALL_BAD;
        c->state = X_BETWEEN;
        return CALL_MORE;
    case X_BETWEEN:
        if (c->text.n == 0 && json_blank(b))
            return CALL_MORE;
        buf_add(&c->text, &b, 1);
        if (!may_follow(c->text.p, c->text.n))
            return CALL_BAD;
        if (b == '>') {
            call_announce(c);
            return finish(c);
        }
        if (b == '=') {
            buf_clear(&c->text);
            c->state = X_KEY;
        }
        return CALL_MORE;
    case X_KEY:
        if (b == '>' && c->text.n > 0) {
            call_announce(c);
            begin_value(c);
            return CALL_MORE;
        }
        buf_add(&c->text, &b, 1);
        return c->text.n <= CALL_NAME_MAX && b != '>' && b != '\n' ? CALL_MORE : CALL_BAD;
    case X_VALUE: return in_value(c, b);
    default: return after_value(c, b);
    }
}
