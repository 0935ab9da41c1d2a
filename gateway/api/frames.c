#include "frames.h"

#include <string.h>

uint32_t frame_mark(const struct model *m, struct grammar *g, const char *text)
{
    const int32_t id = tok_find(m->tok, text, strlen(text));
    const bool control = id >= 0 && tok_kind(m->tok, (uint32_t)id) == TOK_CONTROL;
    return control ? grammar_token(g, text, strlen(text)) : grammar_text(g, text, strlen(text));
}

static uint32_t words(struct grammar *g, const char *text)
{
    return grammar_text(g, text, strlen(text));
}

/* Thoughts end with the text of the mark or, where it is one, with the control token. */
static uint32_t to_the_end(struct grammar *g, const char *close)
{
    const size_t n = strlen(close);
    const uint32_t by_token[] = {grammar_free_text(g), grammar_token(g, close, n)};
    const uint32_t ways[] = {grammar_until(g, close, n), grammar_seq(g, by_token, 2)};
    return grammar_any_of(g, ways, 2);
}

static uint32_t head(const struct model *m, struct grammar *g, const char *channel)
{
    const uint32_t parts[] = {frame_mark(m, g, "<|channel|>"), words(g, channel),
                              frame_mark(m, g, "<|message|>")};
    return grammar_seq(g, parts, 3);
}

uint32_t frame_call(const struct model *m, struct grammar *g, const char *function)
{
    const uint32_t parts[] = {frame_mark(m, g, "<|channel|>"),
                              words(g, "commentary to=functions."),
                              words(g, function),
                              words(g, " "),
                              frame_mark(m, g, "<|constrain|>"),
                              words(g, "json"),
                              frame_mark(m, g, "<|message|>")};
    return grammar_seq(g, parts, 7);
}

/* Thoughts or none, then the message. */
static uint32_t messages(const struct model *m, struct grammar *g, bool open, uint32_t root, bool calls)
{
    const uint32_t thoughts[] = {open ? words(g, "") : head(m, g, "analysis"), to_the_end(g, m->think->close),
                                 frame_mark(m, g, "<|start|>"), words(g, "assistant")};
    const uint32_t before = grammar_seq(g, thoughts, 4);
    const uint32_t all[] = {open ? before : grammar_repeat(g, before, 0, 1),
                            calls ? words(g, "") : head(m, g, "final"), root};
    return grammar_seq(g, all, 3);
}

uint32_t frame_answer(const struct model *m, struct grammar *g, const char *think_close, uint32_t root,
                      bool calls)
{
    if (m->dialect->body == BODY_HARMONY)
        return messages(m, g, think_close != NULL, root, calls);
    if (!think_close)
        return root;
    const uint32_t all[] = {to_the_end(g, think_close), grammar_repeat(g, words(g, "\n"), 0, 2), root};
    return grammar_seq(g, all, 3);
}
