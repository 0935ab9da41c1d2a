/* Harmony, the form of gpt-oss: an answer is messages. Behind a mark stand channel and recipient, behind <|message|> the text, and
 * a mark ends it:
 *
 *     <|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>final<|message|>content<|return|>
 *     <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{arguments}<|call|>
 *
 * The recipient may also stand before the channel. The prompt ends with <|start|>assistant, so the answer may begin inside of the
 * head of a message. What keeps to none of this is content. */
#include "scanner_priv.h"

#include <string.h>

static const char start_mark[] = "<|start|>", channel_mark[] = "<|channel|>", message_mark[] = "<|message|>",
                  end_mark[] = "<|end|>", call_mark[] = "<|call|>", return_mark[] = "<|return|>",
                  to_word[] = "to=", functions[] = "functions.";

enum { HEAD_MAX = 640 };

static bool may_begin(const struct buf *t, const char *with)
{
    const size_t n = strlen(with) < t->n ? strlen(with) : t->n;
    return memcmp(t->p, with, n) == 0;
}

/* Before the first message, and behind each. */
static bool between(struct scanner *s)
{
    size_t i = 0;
    while (i < s->held.n && json_blank(s->held.p[i]))
        i++;
    if (i == s->held.n)
        return false;
    const struct buf rest = {.p = s->held.p + i, .n = s->held.n - i};
    const char *const heads[] = {channel_mark, start_mark, to_word};
    for (size_t k = 0; k < 3; k++) {
        if (!may_begin(&rest, heads[k]))
            continue;
        if (rest.n < strlen(heads[k]))
            return false;
        buf_drop(&s->held, i);
        buf_clear(&s->raw);
        s->state = SCAN_FRAME_HEAD;
        return true;
    }
    buf_drop(&s->held, i);
    s->state = SCAN_CONTENT;
    s->fresh = false;
    return true;
}

/* ---- the head of a message ---- */

/* The word behind `what` in the head. */
static const char *word_behind(const char *head, size_t n, const char *what, size_t *len)
{
    const char *p = memmem(head, n, what, strlen(what));
    if (!p)
        return NULL;
    p += strlen(what);
    *len = 0;
    while (p + *len < head + n && !json_blank(p[*len]) && p[*len] != '<')
        ++*len;
    return p;
}

static void not_understood(struct scanner *s, size_t n)
{
    s->loud = true;
    scan_emit(s, s->ops->content, n);
    s->state = SCAN_CONTENT;
    s->fresh = false;
}

static void begin_call(struct scanner *s, const char *name, size_t len, size_t head)
{
    char copy[CALL_NAME_MAX + 1];
    memcpy(copy, name, len);
    buf_clear(&s->raw);
    buf_add(&s->raw, s->held.p, head);
    buf_drop(&s->held, head);
    scan_begin_call(s, CALL_PLAIN);
    call_plain_named(&s->call, copy, len);
}

static bool in_head(struct scanner *s)
{
    const size_t at = scan_find(s, message_mark);
    size_t len = 0;
    if (at == s->held.n && at < HEAD_MAX + strlen(message_mark))
        return false;
    if (at > HEAD_MAX) {
        not_understood(s, HEAD_MAX);
        return true;
    }
    const size_t head = at + strlen(message_mark), fn = strlen(functions);
    const char *to = word_behind(s->held.p, at, to_word, &len);
    s->loud = false;
    if (to && len > fn && len - fn <= CALL_NAME_MAX && memcmp(to, functions, fn) == 0 && s->rules.dialect) {
        begin_call(s, to + fn, len - fn, head);
        return true;
    }
    const bool told = to && !(len == 4 && memcmp(to, "user", 4) == 0);
    const char *channel = word_behind(s->held.p, at, channel_mark, &len);
    const bool thoughts = channel && len == 8 && memcmp(channel, "analysis", 8) == 0;
    if (told || (thoughts && !s->rules.think)) {
        not_understood(s, head);
        return true;
    }
    buf_drop(&s->held, head);
    scan_enter(s, thoughts ? SCAN_THINK : SCAN_CONTENT);
    return true;
}

/* ---- the text of a message ---- */

static bool in_text(struct scanner *s)
{
    const char *const marks[] = {end_mark, call_mark, return_mark, start_mark, channel_mark};
    void (*to)(void *, const char *, size_t) = s->state == SCAN_THINK ? s->ops->reasoning : s->ops->content;
    size_t at, maybe;
    if (!s->loud && !scan_drop_blanks(s, s->state == SCAN_CONTENT))
        return false;
    const char *mark = scan_first(s, marks, 5, &at, &maybe);
    if (!mark) {
        scan_emit(s, to, scan_without_blanks(s, s->held.n - maybe));
        return false;
    }
    const size_t end = scan_without_blanks(s, at);
    scan_emit(s, to, end);
    buf_drop(&s->held, at - end);
    if (mark != start_mark && mark != channel_mark) {
        if (s->loud)
            scan_emit(s, to, strlen(mark));
        else
            buf_drop(&s->held, strlen(mark));
    }
    s->loud = false;
    scan_enter(s, SCAN_FRAME);
    return true;
}

bool harmony_step(struct scanner *s)
{
    switch (s->state) {
    case SCAN_FRAME: return between(s);
    case SCAN_FRAME_HEAD: return in_head(s);
    default: return in_text(s);
    }
}
