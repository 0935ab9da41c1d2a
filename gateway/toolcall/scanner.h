/* Scanner: splits a model's answer into content, reasoning and tool calls while it comes.
 *
 * Fed with text in pieces of any size; what it hands on does not depend on where the pieces end. No part of a mark is handed
 * on as content before it is sure that it is none. A call is handed on as soon as its name is sure, its arguments as they
 * come. What turns out to be no call before that (one of a tool that is not offered, for instance) is content; what turns out to
 * be none after that is `broken`, with its raw text. A call counts when its arguments are whole, also when the mark behind it is
 * missing. What is left of a call that a limit cut before its name was sure is dropped: it would be a mark without a call. One
 * stream each. */
#ifndef SCANNER_H
#define SCANNER_H

#include "call.h"
#include "dialect.h"

struct scan_ops {
    void (*content)(void *arg, const char *text, size_t n);
    void (*reasoning)(void *arg, const char *text, size_t n);
    void (*call)(void *arg, const char *name);
    void (*args)(void *arg, const char *text,
                 size_t n);   /* of the last call; concatenated they are a JSON object */
    void (*whole)(void *arg); /* the last call is complete */
    void (*broken)(void *arg, const char *raw, size_t n); /* the last call will never be */
};

struct scan_rules {
    const struct dialect *dialect;   /* NULL: no calls are looked for */
    const struct think_marks *think; /* NULL: reasoning stays in the content */
    const json_t *tools; /* borrowed; types of parameters and known names; NULL: any name will do */
    bool frames;         /* the answer is messages with channels (BODY_HARMONY) */
    bool think_open;     /* the prompt ended inside of the reasoning */
    bool single;         /* nothing is read behind the first whole call */
    bool forced;         /* the answer is calls: a beginning of one is never content */
};

enum scan_state {
    SCAN_START,
    SCAN_THINK,
    SCAN_HEAD,
    SCAN_CONTENT,
    SCAN_OPEN,
    SCAN_CALL,
    SCAN_NEXT,
    SCAN_FRAME,      /* harmony: between messages */
    SCAN_FRAME_HEAD, /* harmony: channel and recipient of a message */
    SCAN_OVER
};

struct scanner {
    const struct scan_ops *ops;
    void *arg;
    struct scan_rules rules;
    enum scan_state state;
    bool fresh;      /* nothing but blanks since the state began: they are dropped */
    bool list;       /* inside of an array of calls */
    bool expect;     /* the mark that closes a call may come */
    bool named;      /* the call in work has been handed on */
    bool loud;       /* harmony: the mark that ends this message is text */
    unsigned calls;  /* whole ones */
    struct buf held; /* text not handed on yet */
    struct buf raw;  /* of the call in work */
    struct call call;
};

void scanner_init(struct scanner *s, const struct scan_rules *rules, const struct scan_ops *ops, void *arg);
void scanner_fini(struct scanner *s);
void scanner_feed(struct scanner *s, const char *text, size_t n);
/* The answer is over: everything held is handed on. cut: not by the model, but by a limit. */
void scanner_end(struct scanner *s, bool cut);
/* Out of memory at some point: the parts are not to be trusted. */
bool scanner_failed(const struct scanner *s);

#endif
