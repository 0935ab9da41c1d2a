#include "dialect.h"

#include <ctype.h>
#include <string.h>

#define LINE_LONGEST 8191

char *vt_trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        s[--n] = '\0';
    return s;
}

/* s is not empty. */
static int take_line(struct vt_dialect *l, char *s, bool tail_comments, vt_dialect_taker take, void *arg,
                     struct vt_err *err)
{
    l->section = l->key = l->value = NULL;
    if (*s == '[') {
        l->section = s;
        return take(arg, l, err);
    }
    char *eq = strchr(s, '=');
    if (eq == NULL)
        return vt_fail(err, VT_E_CONFIG, "%s:%u: \"%.64s\" has no =; write key = value", l->file, l->line, s);
    *eq = '\0';
    char *hash = tail_comments ? strstr(eq + 1, "  #") : NULL;
    if (hash != NULL)
        *hash = '\0';
    l->key = vt_trim(s);
    l->value = vt_trim(eq + 1);
    return take(arg, l, err);
}

int vt_dialect_read(const char *text, size_t len, const char *file, bool tail_comments, vt_dialect_taker take,
                    void *arg, struct vt_err *err)
{
    struct vt_dialect l = {.file = file};
    const char *end = text + len;
    while (text < end) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((nl != NULL ? nl : end) - text);
        char line[LINE_LONGEST + 1];
        l.line++;
        if (n > LINE_LONGEST)
            return vt_fail(err, VT_E_CONFIG, "%s:%u: the line is longer than %d bytes", file, l.line,
                           LINE_LONGEST);
        if (memchr(text, '\0', n) != NULL)
            return vt_fail(err, VT_E_CONFIG, "%s:%u: the line holds a NUL byte", file, l.line);
        memcpy(line, text, n);
        line[n] = '\0';
        text += n + 1;
        char *s = vt_trim(line);
        if (*s != '\0' && *s != '#' && take_line(&l, s, tail_comments, take, arg, err) < 0)
            return -1;
    }
    return 0;
}
