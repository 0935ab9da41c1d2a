/* Fences of code in Markdown, read line by line: which lines are code. Pure. */
#ifndef OFF_FENCE_H
#define OFF_FENCE_H

#include <stdbool.h>
#include <stddef.h>

struct fence { /* zeroed: outside of code */
    char mark;
    size_t n;      /* its marks; 0: outside */
    size_t indent; /* of the opening line */
};

/* Does the line open code (``` or more, ~~~ or more, behind blanks), or end the code that f is in? */
bool fence_opens(const char *line, size_t n, struct fence *out);
bool fence_closes(const struct fence *f, const char *line, size_t n);
/* The next line. Code that began indented ends at a line in the first column, too: it was an item's. */
void fence_step(struct fence *f, const char *line, size_t n);

#endif
