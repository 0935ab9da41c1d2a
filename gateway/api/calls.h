/* Calls: the tool calls of one choice, as they come: handed out piece by piece on a stream, kept whole otherwise. */
#ifndef CALLS_H
#define CALLS_H

#include "../http/buf.h"

#include <jansson.h>
#include <stdbool.h>

struct tool_call {
    char id[40];
    char *name;      /* owned */
    struct buf args; /* on a stream only what has not been handed out */
    bool told;       /* its beginning has been handed out */
    bool whole;
};

struct calls {
    struct tool_call *v;
    size_t n, cap;
    bool news; /* something has not been handed out */
};

void calls_fini(struct calls *c);
/* A call begins. short_ids: nine letters and digits. -1: out of memory. */
int calls_begin(struct calls *c, const char *name, bool short_ids);
int calls_args(struct calls *c, const char *text, size_t n);
void calls_whole(struct calls *c);
/* Takes the last call back when nothing of it has been handed out: true. */
bool calls_undo(struct calls *c);
/* There are some, and the last one, too, has come to its end. */
bool calls_are_whole(const struct calls *c);
/* The calls as a message's tool_calls. */
json_t *calls_json(const struct calls *c);

#endif
