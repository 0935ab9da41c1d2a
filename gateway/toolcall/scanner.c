#include "scanner_priv.h"

#include <string.h>

void scan_enter(struct scanner *s, enum scan_state state)
{
    s->state = state;
    s->fresh = true;
}

void scanner_init(struct scanner *s, const struct scan_rules *rules, const struct scan_ops *ops, void *arg)
{
    *s = (struct scanner){.ops = ops, .arg = arg, .rules = *rules};
    if (rules->frames)
        scan_enter(s, rules->think && rules->think_open ? SCAN_THINK : SCAN_FRAME);
    else
        scan_enter(s, !rules->think ? SCAN_HEAD : rules->think_open ? SCAN_THINK : SCAN_START);
    s->fresh = rules->think && rules->think_open;
}

void scanner_fini(struct scanner *s)
{
    buf_fini(&s->held);
    buf_fini(&s->raw);
    call_fini(&s->call);
}

bool scanner_failed(const struct scanner *s)
{
    return s->held.failed || s->raw.failed || call_failed(&s->call);
}

/* ---- text between marks ---- */

size_t scan_find(const struct scanner *s, const char *mark)
{
    const char *p = mark && s->held.n > 0 ? memmem(s->held.p, s->held.n, mark, strlen(mark)) : NULL;
    return p ? (size_t)(p - s->held.p) : s->held.n;
}

size_t scan_partial(const struct scanner *s, const char *mark)
{
    const size_t n = mark ? strlen(mark) : 1;
    size_t k = s->held.n < n - 1 ? s->held.n : n - 1;
    while (k > 0 && memcmp(s->held.p + s->held.n - k, mark, k) != 0)
        k--;
    return k;
}

void scan_emit(struct scanner *s, void (*to)(void *, const char *, size_t), size_t n)
{
    if (n > 0 && to)
        to(s->arg, s->held.p, n);
    buf_drop(&s->held, n);
}

bool scan_drop_blanks(struct scanner *s, bool only_newlines)
{
    size_t i = 0;
    if (!s->fresh)
        return true;
    while (i < s->held.n &&
           (only_newlines ? s->held.p[i] == '\n' || s->held.p[i] == '\r' : json_blank(s->held.p[i])))
        i++;
    buf_drop(&s->held, i);
    s->fresh = s->held.n == 0;
    return !s->fresh;
}

size_t scan_without_blanks(const struct scanner *s, size_t n)
{
    while (n > 0 && json_blank(s->held.p[n - 1]))
        n--;
    return n;
}

static bool step_start(struct scanner *s)
{
    const char *open = s->rules.think->open;
    size_t i = 0, n = strlen(open);
    while (i < s->held.n && json_blank(s->held.p[i]))
        i++;
    const size_t have = s->held.n - i < n ? s->held.n - i : n;
    if (memcmp(s->held.p + i, open, have) != 0) {
        scan_enter(s, SCAN_HEAD);
        s->fresh = false; /* blanks that the model said itself stay */
        return true;
    }
    if (have < n)
        return false;
    buf_drop(&s->held, i + n);
    scan_enter(s, SCAN_THINK);
    return true;
}

static bool step_think(struct scanner *s)
{
    const char *close = s->rules.think->close;
    if (!scan_drop_blanks(s, false))
        return false;
    const size_t at = scan_find(s, close);
    if (at < s->held.n) {
        const size_t end = scan_without_blanks(s, at);
        scan_emit(s, s->ops->reasoning, end);
        buf_drop(&s->held, at - end + strlen(close));
        scan_enter(s, SCAN_HEAD);
        return true;
    }
    scan_emit(s, s->ops->reasoning, scan_without_blanks(s, s->held.n - scan_partial(s, close)));
    return false;
}

void scan_begin_call(struct scanner *s, enum call_form form)
{
    call_fini(&s->call);
    call_init(&s->call, form, s->rules.tools);
    s->named = false;
    s->state = SCAN_CALL;
}

/* Before the first word of the content: an answer that is a call from its first byte on needs no mark. */
static bool step_head(struct scanner *s)
{
    size_t i = 0;
    if (!s->rules.dialect || !s->rules.dialect->bare) {
        s->state = SCAN_CONTENT;
        return true;
    }
    while (i < s->held.n && json_blank(s->held.p[i]))
        i++;
    if (i == s->held.n)
        return false;
    if (s->held.p[i] != '{') {
        s->state = SCAN_CONTENT;
        return true;
    }
    buf_clear(&s->raw);
    buf_add(&s->raw, s->held.p, s->fresh ? 0 : i);
    buf_drop(&s->held, i);
    scan_begin_call(s, CALL_JSON);
    s->call.strict = true;
    return true;
}

const char *scan_first(const struct scanner *s, const char *const *marks, size_t n, size_t *at, size_t *maybe)
{
    const char *found = NULL;
    *at = s->held.n;
    *maybe = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t k = scan_find(s, marks[i]), p = scan_partial(s, marks[i]);
        if (marks[i] && k < *at) {
            *at = k;
            found = marks[i];
        }
        *maybe = p > *maybe ? p : *maybe;
    }
    return found;
}

static bool step_content(struct scanner *s)
{
    size_t at, maybe;
    if (!scan_drop_blanks(s, true))
        return false;
    if (!s->rules.dialect) {
        scan_emit(s, s->ops->content, s->held.n);
        return false;
    }
    const struct dialect *d = s->rules.dialect;
    const char *const marks[] = {s->expect ? d->close : NULL,
                                 s->expect ? d->close2 : NULL,
                                 d->open[0],
                                 d->open[1],
                                 d->open[2],
                                 d->around[0],
                                 d->around[1]};
    const char *mark = scan_first(s, marks, sizeof marks / sizeof *marks, &at, &maybe);
    if (!mark) {
        /* Blanks in front of a call belong to the call: they wait until it is known what follows. */
        scan_emit(s, s->ops->content, scan_without_blanks(s, s->held.n - maybe));
        return false;
    }
    const size_t end = scan_without_blanks(s, at);
    scan_emit(s, s->ops->content, end);
    const bool around = mark == d->around[0] || mark == d->around[1];
    if (around || mark == d->close || mark == d->close2) {
        buf_drop(&s->held, at - end + strlen(mark));
        s->expect &= around;
        s->fresh = true;
        return true;
    }
    buf_drop(&s->held, at - end);
    s->list = false;
    buf_clear(&s->raw);
    if (strcmp(mark, "<function=") == 0) { /* the form's own first word is the mark */
        scan_begin_call(s, CALL_XML);
        return true;
    }
    buf_add(&s->raw, mark, strlen(mark));
    buf_drop(&s->held, strlen(mark));
    s->state = SCAN_OPEN;
    return true;
}

/* ---- calls ---- */

/* What was read since the mark is no call. */
static void give_up(struct scanner *s)
{
    size_t rest = 0;
    while (rest < s->held.n && ((unsigned char)s->held.p[rest] & 0xC0) == 0x80)
        rest++;
    buf_add(&s->raw, s->held.p, rest); /* a limit in bytes may end inside of a character */
    buf_drop(&s->held, rest);
    if (s->named && s->ops->broken)
        s->ops->broken(s->arg, s->raw.p, s->raw.n);
    else if (!s->named && s->raw.n > 0 && s->ops->content)
        s->ops->content(s->arg, s->raw.p, s->raw.n);
    buf_clear(&s->raw);
    s->named = false;
    s->list = false;
    s->expect = true; /* its closing mark is content too, but for the mark alone */
    scan_enter(s, SCAN_CONTENT);
    s->fresh = false;
}

static void hand_on(struct scanner *s)
{
    if (s->call.named && !s->named) {
        s->named = true;
        if (s->ops->call)
            s->ops->call(s->arg, s->call.name);
    }
    if (s->named && s->call.args.n > 0) {
        if (s->ops->args)
            s->ops->args(s->arg, s->call.args.p, s->call.args.n);
        buf_clear(&s->call.args);
    }
}

static void call_over(struct scanner *s)
{
    const bool follows = s->list || s->rules.dialect->many;
    hand_on(s);
    s->calls++;
    if (s->ops->whole)
        s->ops->whole(s->arg);
    buf_clear(&s->raw);
    s->named = false;
    s->expect = s->rules.dialect->close != NULL;
    scan_enter(s, s->rules.single ? SCAN_OVER : follows ? SCAN_NEXT : SCAN_CONTENT);
}

/* One byte behind a mark: which form the call has. */
static void open_byte(struct scanner *s, char b)
{
    const enum dialect_body body = s->rules.dialect->body;
    if (json_blank(b) || (b == '[' && body != BODY_GEMMA && !s->list)) {
        s->list |= b == '[';
        buf_add(&s->raw, &b, 1);
        buf_drop(&s->held, 1);
        return;
    }
    if (b == '{') /* in any dialect: the form that a forced call has */
        scan_begin_call(s, CALL_JSON);
    else if (body == BODY_GEMMA)
        scan_begin_call(s, CALL_GEMMA);
    else if (b == '<' && body == BODY_TAGGED && !s->list)
        scan_begin_call(s, CALL_XML);
    else if (body == BODY_PLAIN && !s->list)
        scan_begin_call(s, CALL_PLAIN);
    else if ((body == BODY_PAIRS || body == BODY_FENCED) && !s->list)
        scan_begin_call(s, body == BODY_PAIRS ? CALL_PAIRS : CALL_FENCED);
    else
        give_up(s);
    s->call.quote = s->rules.dialect->quote;
}

/* Between two calls of a list, or of a dialect whose calls follow each other. */
static void next_byte(struct scanner *s, char b)
{
    if (json_blank(b) || (s->list ? b == ',' : b == ';')) {
        buf_drop(&s->held, 1);
        return;
    }
    if (b == '{') {
        scan_begin_call(s, CALL_JSON);
        s->call.strict = !s->list && s->rules.dialect->bare;
        return;
    }
    if (s->list && b == ']')
        buf_drop(&s->held, 1);
    s->list = false;
    scan_enter(s, SCAN_CONTENT);
}

/* The name is sure and it is that of no tool. */
static bool foreign(const struct scanner *s)
{
    return s->call.named && !s->named && s->rules.tools && !call_tool(s->rules.tools, s->call.name);
}

static bool step_call(struct scanner *s)
{
    size_t used = 0;
    enum call_step r = CALL_MORE;
    while (used < s->held.n && r == CALL_MORE && !foreign(s)) {
        const char b = s->held.p[used];
        r = call_feed(&s->call, b);
        if (r == CALL_MORE || r == CALL_DONE) {
            buf_add(&s->raw, &b, 1);
            used++;
        }
    }
    buf_drop(&s->held, used);
    if (foreign(s)) {
        give_up(s);
        return s->held.n > 0;
    }
    hand_on(s);
    if (r == CALL_DONE || r == CALL_BACK || (r == CALL_BAD && s->call.whole))
        call_over(s);
    else if (r == CALL_BAD)
        give_up(s);
    return s->held.n > 0;
}

static bool step(struct scanner *s)
{
    if (s->rules.frames && s->state != SCAN_CALL && s->state != SCAN_OVER)
        return harmony_step(s);
    switch (s->state) {
    case SCAN_START: return step_start(s);
    case SCAN_THINK: return step_think(s);
    case SCAN_HEAD: return step_head(s);
    case SCAN_CONTENT: return step_content(s);
    case SCAN_OPEN: open_byte(s, s->held.p[0]); return true;
    case SCAN_NEXT: next_byte(s, s->held.p[0]); return true;
    case SCAN_CALL: return step_call(s);
    case SCAN_OVER: buf_clear(&s->held); return false;
    default: break; /* of harmony alone */
    }
    return false;
}

void scanner_feed(struct scanner *s, const char *text, size_t n)
{
    buf_add(&s->held, text, n);
    while (!scanner_failed(s) && s->held.n > 0 && step(s))
        ;
}

/* The end came inside of a call, or of a mark before one. */
static void end_call(struct scanner *s, bool cut)
{
    const bool marked = s->state != SCAN_CALL || !s->call.strict;
    if (s->state == SCAN_FRAME_HEAD) {
        buf_add(&s->raw, s->held.p, s->held.n);
        buf_clear(&s->held);
    }
    if (!s->named && (s->rules.forced || (cut && marked))) {
        buf_clear(&s->raw);
        s->state = SCAN_OVER;
    } else {
        give_up(s);
    }
}

void scanner_end(struct scanner *s, bool cut)
{
    if (scanner_failed(s))
        return;
    if (s->state == SCAN_CALL && call_end(&s->call, cut))
        call_over(s);
    else if (s->state == SCAN_CALL || s->state == SCAN_OPEN || s->state == SCAN_FRAME_HEAD)
        end_call(s, cut);
    if (s->state == SCAN_FRAME)
        scan_drop_blanks(s, false);
    if (s->state == SCAN_THINK)
        scan_emit(s, s->ops->reasoning, scan_without_blanks(s, s->held.n));
    else if (s->state != SCAN_OVER && !s->rules.forced && !(s->fresh && s->calls > 0))
        scan_emit(s, s->ops->content, s->held.n);
    buf_clear(&s->held);
}
