/* Builder: a string being put together, with marks for the bytes that came from the input. Lives in an arena. */
#ifndef TEMPLATE_BUILDER_H
#define TEMPLATE_BUILDER_H

#include "value.h"

struct builder {
    struct arena *arena;
    char *p;
    size_t n, cap;
    size_t limit; /* bytes at most; 0 = as the arena allows */
    struct mark *marks;
    size_t n_marks, cap_marks;
    bool full; /* the limit was reached */
};

/* All return 0, or -1 when the arena or the builder is full. */
int builder_add(struct builder *b, const char *p, size_t n, bool input);
int builder_text(struct builder *b, const char *text); /* the template's own */
/* A part of s, with the marks of its bytes. */
int builder_slice(struct builder *b, const struct string *s, size_t from, size_t n);
int builder_string(struct builder *b, const struct string *s);
/* Room for n bytes that the caller writes at b->p + b->n and then adds with builder_wrote. */
int builder_room(struct builder *b, size_t n);
int builder_wrote(struct builder *b, size_t n, bool input);
/* The finished string; the builder must not be used afterwards. NULL when the arena is full. */
struct string *builder_end(struct builder *b);

/* Whether the byte at `at` did. */
bool string_input_at(const struct string *s, size_t at);

#endif
