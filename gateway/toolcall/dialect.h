/* Dialects: how a model marks its reasoning and its tool calls, told from its chat template. */
#ifndef DIALECT_H
#define DIALECT_H

#include <stdbool.h>
#include <stddef.h>

enum { DIALECT_MARKS = 3 };

enum dialect_body {
    BODY_TAGGED, /* a JSON object, an array of them, or <function=…> */
    BODY_PLAIN,  /* an array of JSON objects, or NAME[ARGS]{…} */
    BODY_GEMMA,
    BODY_PAIRS,  /* NAME, then keys and values in tags */
    BODY_FENCED, /* DeepSeek's */
    BODY_HARMONY /* the whole answer is messages, each with a channel */
};

struct dialect {
    const char *name;
    const char *told_by[2]; /* text of the template that tells the dialect: any of them */
    const char *open[DIALECT_MARKS];
    const char *close;     /* NULL: none */
    const char *close2;    /* the same of open[1] */
    const char *around[2]; /* marks around all calls; they say nothing */
    const char *inner[4];  /* marks inside of a call, or of a message, that may be control tokens */
    enum dialect_body body;
    const char *quote; /* BODY_GEMMA */
    bool bare;         /* an answer that begins with the JSON of a call is one, without a mark */
    bool many;         /* calls follow each other without a mark between them */
    bool short_ids;    /* the template accepts ids of nine letters and digits only */
};

struct think_marks {
    const char *open, *close;
};

/* text: the template (may be NULL); never NULL: the last resort is the form that we ask for ourselves, <tool_call> with JSON.
 * shows_tools: the template shows tools to the model. */
const struct dialect *dialect_find(const char *text, size_t n, bool shows_tools, bool has_python_tag);
const struct think_marks *think_marks_find(const char *text, size_t n);

/* The marks of d that may be control tokens of the vocabulary; NULL ends the list. */
enum { DIALECT_TOKENS = 10 };
void dialect_tokens(const struct dialect *d, const char *out[DIALECT_TOKENS + 1]);

#endif
