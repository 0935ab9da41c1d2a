#include "token.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int take(char out[TOKEN_MAX], const char *text, const char *from, struct vt_err *err)
{
    const char *s = text + strspn(text, " \t\r\n");
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++)
        if (!isgraph((unsigned char)s[i]) || n >= TOKEN_MAX)
            return vt_fail(err, VT_E_CREDENTIALS, "%s holds no token: one word of at most %d characters",
                           from, TOKEN_MAX - 1);
    memcpy(out, s, n);
    out[n] = '\0';
    return 0;
}

static int from_file(char out[TOKEN_MAX], const char *path, int must, struct vt_err *err)
{
    char text[TOKEN_MAX + 64];
    FILE *f = fopen(path, "re");
    if (!f)
        return must ? vt_fail_errno(err, VT_E_CREDENTIALS, "the token file %s", path) : 0;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    return take(out, text, path, err);
}

int token_find(char out[TOKEN_MAX], struct vt_err *err)
{
    const char *value = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH"), *hub = getenv("HF_HOME"),
               *home = getenv("HOME");
    char file[PATH_MAX];
    out[0] = '\0';
    if (value && value[0])
        return take(out, value, "HF_TOKEN", err);
    if (path && path[0])
        return from_file(out, path, 1, err);
    if (hub && hub[0])
        snprintf(file, sizeof file, "%s/token", hub);
    else if (home && home[0])
        snprintf(file, sizeof file, "%s/.cache/huggingface/token", home);
    else
        return 0;
    return from_file(out, file, 0, err);
}
