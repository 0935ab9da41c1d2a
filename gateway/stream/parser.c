#include "parser.h"

#include "tool_call.h"

#include <stdlib.h>
#include <string.h>

static const char think_open[] = "<think>", think_close[] = "</think>";
static const char call_open[] = "<tool_call>", call_close[] = "</tool_call>";

static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

void parser_init(struct parser *p, const struct parser_ops *ops, void *arg, bool think, bool open, bool tools)
{
    *p = (struct parser){.ops = ops, .arg = arg, .think = think, .tools = tools, .fresh = true};
    p->state = think ? open ? PARSER_THINK : PARSER_START : PARSER_CONTENT;
    if (!think)
        p->fresh = false;
}

void parser_fini(struct parser *p)
{
    buf_fini(&p->held);
}

bool parser_failed(const struct parser *p)
{
    return p->held.failed;
}

/* Offset of mark in held at or behind from; held.n when it is not there. */
static size_t find(const struct parser *p, size_t from, const char *mark)
{
    size_t n = strlen(mark);
    if (p->held.n >= n)
        for (size_t i = from; i + n <= p->held.n; i++)
            if (memcmp(p->held.p + i, mark, n) == 0)
                return i;
    return p->held.n;
}

/* How many bytes at the end of held may be the beginning of mark. */
static size_t partial(const struct parser *p, const char *mark)
{
    size_t n = strlen(mark);
    size_t k = p->held.n < n - 1 ? p->held.n : n - 1;
    for (; k > 0; k--)
        if (memcmp(p->held.p + p->held.n - k, mark, k) == 0)
            return k;
    return 0;
}

static void emit(struct parser *p, void (*to)(void *, const char *, size_t), size_t n)
{
    if (n > 0 && to)
        to(p->arg, p->held.p, n);
    buf_drop(&p->held, n);
}

/* While fresh, leading blanks of held are dropped. True when something else has come. */
static bool drop_blanks(struct parser *p, bool only_newlines)
{
    if (!p->fresh)
        return true;
    size_t i = 0;
    while (i < p->held.n &&
           (only_newlines ? p->held.p[i] == '\n' || p->held.p[i] == '\r' : blank(p->held.p[i])))
        i++;
    buf_drop(&p->held, i);
    if (p->held.n == 0)
        return false;
    p->fresh = false;
    return true;
}

static size_t without_blanks(const struct parser *p, size_t n)
{
    while (n > 0 && blank(p->held.p[n - 1]))
        n--;
    return n;
}

static void enter(struct parser *p, enum parser_state s)
{
    p->state = s;
    p->fresh = true;
    p->scanned = 0;
}

/* Each step returns true when it got on and another step may follow. */

static bool step_start(struct parser *p)
{
    size_t i = 0, n = strlen(think_open);
    while (i < p->held.n && blank(p->held.p[i]))
        i++;
    size_t have = p->held.n - i < n ? p->held.n - i : n;
    if (memcmp(p->held.p + i, think_open, have) != 0) {
        enter(p, PARSER_CONTENT);
        p->fresh = false; /* blanks that the model said itself stay */
        return true;
    }
    if (have < n)
        return false;
    buf_drop(&p->held, i + n);
    enter(p, PARSER_THINK);
    return true;
}

static bool step_think(struct parser *p)
{
    if (!drop_blanks(p, false))
        return false;
    size_t at = find(p, 0, think_close);
    if (at < p->held.n) {
        size_t end = without_blanks(p, at);
        emit(p, p->ops->reasoning, end);
        buf_drop(&p->held, at - end + strlen(think_close));
        enter(p, PARSER_CONTENT);
        return true;
    }
    emit(p, p->ops->reasoning, without_blanks(p, p->held.n - partial(p, think_close)));
    return false;
}

static bool step_content(struct parser *p)
{
    if (!drop_blanks(p, true))
        return false;
    if (!p->tools) {
        emit(p, p->ops->content, p->held.n);
        return false;
    }
    size_t at = find(p, 0, call_open);
    if (at < p->held.n) {
        size_t end = without_blanks(p, at);
        emit(p, p->ops->content, end);
        buf_drop(&p->held, at - end);
        enter(p, PARSER_CALL);
        return true;
    }
    /* Blanks in front of a call belong to the call: they wait until it is known what follows. */
    emit(p, p->ops->content, without_blanks(p, p->held.n - partial(p, call_open)));
    return false;
}

/* held begins with <tool_call>. body: the text between the marks. */
static bool hand_on_call(struct parser *p, size_t body_end)
{
    char *name = NULL, *args = NULL;
    size_t from = strlen(call_open);
    if (tool_call_parse(p->held.p + from, body_end - from, &name, &args))
        return false;
    p->calls++;
    if (p->ops->tool)
        p->ops->tool(p->arg, name, args);
    free(name);
    free(args);
    return true;
}

static bool step_call(struct parser *p)
{
    size_t from = p->scanned > strlen(call_open) ? p->scanned : strlen(call_open);
    size_t at = find(p, from, call_close);
    if (at >= p->held.n) {
        p->scanned = p->held.n - partial(p, call_close);
        return false;
    }
    size_t end = at + strlen(call_close);
    if (hand_on_call(p, at)) {
        buf_drop(&p->held, end);
        enter(p, PARSER_CONTENT);
        return true;
    }
    if (tool_call_unfinished(p->held.p + strlen(call_open), at - strlen(call_open))) {
        p->scanned = end; /* the mark stood inside a string of the arguments */
        return true;
    }
    emit(p, p->ops->content, end);
    enter(p, PARSER_CONTENT);
    p->fresh = false;
    return true;
}

static bool step(struct parser *p)
{
    switch (p->state) {
    case PARSER_START: return step_start(p);
    case PARSER_THINK: return step_think(p);
    case PARSER_CONTENT: return step_content(p);
    case PARSER_CALL: return step_call(p);
    }
    return false;
}

void parser_feed(struct parser *p, const char *text, size_t n)
{
    buf_add(&p->held, text, n);
    while (!p->held.failed && p->held.n > 0 && step(p))
        ;
}

void parser_end(struct parser *p)
{
    if (p->held.failed)
        return;
    if (p->state == PARSER_CALL && hand_on_call(p, p->held.n))
        buf_clear(&p->held);
    if (p->fresh && p->state == PARSER_CONTENT && p->calls > 0)
        buf_clear(&p->held);
    if (p->state == PARSER_THINK)
        emit(p, p->ops->reasoning, without_blanks(p, p->held.n));
    else
        emit(p, p->ops->content, p->held.n);
    buf_clear(&p->held);
}
