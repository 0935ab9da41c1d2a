/* A command of commands/NAME.md filled in with the words behind it: text, shell lines and files, in order. Pure; any
 * thread.
 *
 * $1 … $9 and $ARGUMENTS are replaced in the author's text only: what is filled in is not read again, so an argument
 * cannot bring a !{…} of its own. In a shell line an argument stays one word of data wherever it stands; where that
 * cannot be promised (inside $(…), `…`, a here-document) only plain characters are taken. */
#ifndef OFF_EXT_TEMPLATE_H
#define OFF_EXT_TEMPLATE_H

#include "err.h"

#include <stddef.h>

enum { TEMPLATE_CALLS = 16 }; /* !{…} and @{…} of one command */

enum template_kind {
    TEMPLATE_TEXT,
    TEMPLATE_SHELL, /* !{…}: a line for the shell */
    TEMPLATE_FILE,  /* @{…}: a path below the project */
};

struct template_part {
    enum template_kind kind;
    char *text;
};

/* Parts behind each other, no empty text among them; the caller frees them with template_free(), after -1 as well.
 * -1 with err: a brace that is not closed, an argument that cannot be quoted where it stands, too many. */
int template_fill(const char *body, const char *arguments, struct template_part **parts, size_t *n,
                  struct vt_err *err);
void template_free(struct template_part *parts, size_t n);

/* Words of a line, "quoted ones" whole. NULL-terminated; the caller frees each and the list. */
char **template_words(const char *s);

#endif
