/* What a chat template can show, found out by rendering small conversations and looking at the text. */
#ifndef TEMPLATE_CAPS_H
#define TEMPLATE_CAPS_H

#include "jinja.h"

struct template_caps {
    bool system;           /* shows a system message */
    bool developer;        /* knows the developer role */
    bool parts_only;       /* wants content as a list of parts and not as a string */
    bool tools;            /* shows the tools it is given */
    bool tool_calls;       /* shows the calls of earlier turns */
    bool object_arguments; /* wants the arguments of a call as an object and not as a string of JSON */
    bool null_content;     /* wants null, and not "", as the content beside calls */
    bool thinking_switch;  /* enable_thinking changes the prompt */
};

/* text: the source that t was parsed from. Takes well under a millisecond for templates of usual size. */
void template_caps_find(const struct jinja *t, const char *text, size_t len, struct template_caps *out);

#endif
