/* GLM: NAME <arg_key>KEY</arg_key> <arg_value>value</arg_value> … </tool_call>. The mark that closes the call is read here, as
 * only it says that no pair follows. */
#include "call.h"

#include <string.h>

enum { G_NAME, G_BETWEEN, G_KEY, G_TO_VALUE, G_VALUE };

static const char key_open[] = "<arg_key>", key_close[] = "</arg_key>", value_open[] = "<arg_value>",
                  value_close[] = "</arg_value>", call_close[] = "</tool_call>";

static bool begins(const char *mark, const struct buf *t)
{
    return t->n <= strlen(mark) && memcmp(mark, t->p, t->n) == 0;
}

static bool ends_with(const struct buf *t, const char *mark)
{
    const size_t n = strlen(mark);
    return t->n >= n && memcmp(t->p + t->n - n, mark, n) == 0;
}

static void finish(struct call *c)
{
    buf_puts(&c->args, c->comma ? "}" : "{}");
    c->whole = true;
}

static enum call_step named(struct call *c)
{
    while (c->name_n > 0 && json_blank(c->name[c->name_n - 1]))
        c->name_n--;
    if (c->name_n == 0)
        return CALL_BAD;
    call_announce(c);
    c->state = G_BETWEEN;
    return CALL_MORE;
}

/* Between pairs: one of two marks, blanks around it. */
static enum call_step between(struct call *c, char b)
{
    if (c->text.n == 0 && json_blank(b))
        return CALL_MORE;
    buf_add(&c->text, &b, 1);
    if (!begins(key_open, &c->text) && !begins(call_close, &c->text))
        return CALL_BAD;
    if (b != '>')
        return CALL_MORE;
    const bool over = c->text.n == strlen(call_close);
    buf_clear(&c->text);
    c->state = G_KEY;
    if (over)
        finish(c);
    return over ? CALL_DONE : CALL_MORE;
}

static enum call_step in_key(struct call *c, char b)
{
    buf_add(&c->text, &b, 1);
    if (ends_with(&c->text, key_close)) {
        c->text.n -= strlen(key_close);
        c->state = G_TO_VALUE;
        c->matched = 0;
        if (c->text.n == 0 || c->text.n > CALL_NAME_MAX)
            return CALL_BAD;
        call_value_begin(c);
        return CALL_MORE;
    }
    return c->text.n <= CALL_NAME_MAX + strlen(key_close) && b != '\n' ? CALL_MORE : CALL_BAD;
}

static enum call_step to_value(struct call *c, char b)
{
    if (c->matched == 0 && json_blank(b))
        return CALL_MORE;
    if (b != value_open[c->matched])
        return CALL_BAD;
    if (!value_open[++c->matched])
        c->state = G_VALUE;
    return CALL_MORE;
}

static enum call_step in_value(struct call *c, char b)
{
    buf_add(&c->text, &b, 1);
    if (b == '>' && ends_with(&c->text, value_close)) {
        c->text.n -= strlen(value_close);
        call_value_end(c);
        c->state = G_BETWEEN;
        return CALL_MORE;
    }
    if (c->kind != VALUE_STRING)
        return CALL_MORE;
    size_t held = c->text.n < strlen(value_close) ? c->text.n : strlen(value_close);
    while (held > 0 && memcmp(c->text.p + c->text.n - held, value_close, held) != 0)
        held--;
    json_escape(c->text.p, c->text.n - held, &c->args);
    buf_drop(&c->text, c->text.n - held);
    return CALL_MORE;
}

enum call_step call_pairs_feed(struct call *c, char b)
{
    switch (c->state) {
    case G_NAME:
        if (c->name_n == 0 && json_blank(b))
            return CALL_MORE;
        if (b != '<' && b != '\n')
            return call_name_add(c, b) ? CALL_MORE : CALL_BAD;
        if (named(c) == CALL_BAD)
            return CALL_BAD;
        return b == '<' ? between(c, b) : CALL_MORE;
    case G_BETWEEN: return between(c, b);
    case G_KEY: return in_key(c, b);
    case G_TO_VALUE: return to_value(c, b);
    default: return in_value(c, b);
    }
}

bool call_pairs_end(struct call *c)
{
    if (c->state != G_BETWEEN || c->text.n > 0)
        return false;
    finish(c);
    return true;
}
