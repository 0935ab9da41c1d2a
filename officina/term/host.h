/* What the screen does outside of the terminal: copies, the editor, looks that are kept for each terminal's name. */
#ifndef OFF_HOST_H
#define OFF_HOST_H

#include "term/tty.h"

/* Writes s to PATH (mode 0600) by a new file and rename. 0, or -1 with errno. */
int host_write(const char *path, const char *s, size_t n);
/* Copies s: a helper program where there is one, else the terminal's clipboard sequence; and always HOME/last-copy.txt. Returns
 * words for the user, malloc'd. */
char *host_copy(struct tty *t, const char *home, const char *s);
/* Lets the user edit s in $VISUAL, $EDITOR or vi; the terminal is given away meanwhile. malloc'd text, or NULL with words in *why
 * (malloc'd). */
char *host_edit(struct tty *t, const char *home, const char *s, char **why);

struct looks {
    enum glyphs glyphs;
    enum tty_theme theme;
    bool mouse, motion;
};
/* HOME/looks-TERM; missing or unreadable lines leave l as it is. */
void looks_read(struct looks *l, const char *home, const char *type);
void looks_write(const struct looks *l, const char *home, const char *type);
/* "full", "blocks" or "plain", "ascii"; false: none of them. */
bool looks_glyphs(const char *word, enum glyphs *out);
bool looks_theme(const char *word, enum tty_theme *out);

#endif
