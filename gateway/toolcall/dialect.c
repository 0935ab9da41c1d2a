#include "dialect.h"

#include <string.h>

static const struct dialect dialects[] = {
    {.name = "mistral",
     .told_by = {"[TOOL_CALLS]"},
     .open = {"[TOOL_CALLS]"},
     .inner = {"[ARGS]", "[CALL_ID]"},
     .body = BODY_PLAIN,
     .short_ids = true},
    {.name = "gemma",
     .told_by = {"<|tool_call>"},
     .open = {"<|tool_call>"},
     .close = "<tool_call|>",
     .body = BODY_GEMMA,
     .quote = "<|\"|>"},
    {.name = "functiongemma",
     .told_by = {"<start_function_call>"},
     .open = {"<start_function_call>"},
     .close = "<end_function_call>",
     .body = BODY_GEMMA,
     .quote = "<escape>"},
    {.name = "harmony",
     .told_by = {"<|channel|>"},
     .open = {"<|channel|>", "<|start|>"},
     .close = "<|end|>",
     .inner = {"<|message|>", "<|constrain|>", "<|call|>", "<|return|>"},
     .body = BODY_HARMONY},
    {.name = "deepseek",
     .told_by = {"<｜tool▁call▁begin｜>"},
     .open = {"<｜tool▁call▁begin｜>", "<tool_call>"}, /* the second where the template shows no tools */
     .close = "<｜tool▁call▁end｜>",
     .close2 = "</tool_call>",
     .around = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
     .inner = {"<｜tool▁sep｜>"},
     .body = BODY_FENCED},
    {.name = "glm",
     .told_by = {"<arg_key>"},
     .open = {"<tool_call>"},
     .close = "</tool_call>",
     .inner = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
     .body = BODY_PAIRS},
    {.name = "xml",
     .told_by = {"<function="},
     .open = {"<tool_call>", "<function="},
     .close = "</tool_call>",
     .body = BODY_TAGGED},
    {.name = "list",
     .told_by = {"<|tool_call|>"},
     .open = {"<|tool_call|>"},
     .close = "<|/tool_call|>",
     .body = BODY_TAGGED},
    {.name = "hermes",
     .told_by = {"<tool_call>"},
     .open = {"<tool_call>"},
     .close = "</tool_call>",
     .body = BODY_TAGGED},
    {.name = "llama",
     .told_by = {"<|python_tag|>", "{\"name\": function name, \"parameters\":"},
     .open = {"<|python_tag|>"},
     .body = BODY_TAGGED,
     .bare = true,
     .many = true},
};
static const struct dialect generic = {
    .name = "generic", .open = {"<tool_call>"}, .close = "</tool_call>", .body = BODY_TAGGED};

static const struct think_marks thoughts[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
    {"<|channel>thought", "<channel|>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel|>analysis<|message|>", "<|end|>"},
};

static bool holds(const char *text, size_t n, const char *what)
{
    return text && what && memmem(text, n, what, strlen(what)) != NULL;
}

const struct dialect *dialect_find(const char *text, size_t n, bool shows_tools, bool has_python_tag)
{
    const size_t count = sizeof dialects / sizeof *dialects;
    for (size_t i = 0; i < count; i++)
        if (holds(text, n, dialects[i].told_by[0]) || holds(text, n, dialects[i].told_by[1]))
            return &dialects[i];
    /* Llama's own templates need not write the mark that the model answers with. */
    return shows_tools && has_python_tag ? &dialects[count - 1] : &generic;
}

const struct think_marks *think_marks_find(const char *text, size_t n)
{
    const size_t last = sizeof thoughts / sizeof *thoughts - 1;
    if (holds(text, n, "<|channel|>"))
        return &thoughts[last];
    for (size_t i = 0; i < last; i++)
        if (holds(text, n, thoughts[i].close))
            return &thoughts[i];
    return &thoughts[0];
}

void dialect_tokens(const struct dialect *d, const char *out[DIALECT_TOKENS + 1])
{
    size_t n = 0;
    for (size_t i = 0; i < DIALECT_MARKS; i++)
        if (d->open[i])
            out[n++] = d->open[i];
    if (d->close)
        out[n++] = d->close;
    if (d->quote)
        out[n++] = d->quote;
    for (size_t i = 0; i < 2; i++)
        if (d->around[i])
            out[n++] = d->around[i];
    for (size_t i = 0; i < 4 && d->inner[i]; i++)
        out[n++] = d->inner[i];
    out[n] = NULL;
}
