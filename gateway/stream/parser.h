/* Parser of a model's answer: splits <think>…</think> from the content and turns <tool_call>…</tool_call> into calls, in the
 * JSON form {"name":…,"arguments":{…}} and in the form <function=NAME><parameter=KEY>value</parameter></function>.
 *
 * Fed with text in pieces of any size; the parts that it hands on do not depend on where the pieces end. A call is handed on
 * whole, when its end has come; one that does not parse is content, so that nothing a model said is lost. One stream each. */
#ifndef PARSER_H
#define PARSER_H

#include "../http/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct parser_ops {
    void (*content)(void *arg, const char *text, size_t n);
    void (*reasoning)(void *arg, const char *text, size_t n);
    /* name and args (JSON text of an object) are NUL-terminated, valid during the call. */
    void (*tool)(void *arg, const char *name, const char *args);
};

enum parser_state { PARSER_START, PARSER_THINK, PARSER_CONTENT, PARSER_CALL };

struct parser {
    const struct parser_ops *ops;
    void *arg;
    bool think, tools; /* what is looked for */
    enum parser_state state;
    bool fresh; /* nothing but blanks since the state began: they are dropped */
    unsigned calls;
    struct buf held; /* text not handed on yet */
    size_t scanned;  /* PARSER_CALL: no end mark begins before this */
};

/* think: split reasoning; open: the prompt ended inside a <think>. tools: look for calls. */
void parser_init(struct parser *p, const struct parser_ops *ops, void *arg, bool think, bool open,
                 bool tools);
void parser_fini(struct parser *p);
void parser_feed(struct parser *p, const char *text, size_t n);
/* The answer is over: everything held is handed on. */
void parser_end(struct parser *p);
/* Out of memory at some point: the parts are not to be trusted. */
bool parser_failed(const struct parser *p);

#endif
