#include "textfile.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_all(FILE *f, char **bytes, size_t *len)
{
    size_t cap = 1 << 16, n = 0;
    char *b = malloc(cap);
    while (b) {
        n += fread(b + n, 1, cap - n - 1, f);
        if (n < cap - 1)
            break;
        char *grown = realloc(b, cap *= 2);
        if (!grown)
            free(b);
        b = grown;
    }
    if (!b || ferror(f)) {
        free(b);
        return -1;
    }
    b[n] = 0;
    *bytes = b;
    *len = n;
    return 0;
}

int textfile_read(const char *path, char **bytes, size_t *len, struct vt_err *err)
{
    bool in = strcmp(path, "-") == 0;
    FILE *f = in ? stdin : fopen(path, "rb");
    if (!f)
        return vt_fail_errno(err, VT_E_NO_INPUT, "cannot open %s", path);
    int rc = read_all(f, bytes, len);
    if (rc < 0)
        vt_fail_errno(err, VT_E_IO, "cannot read %s", path);
    if (!in)
        fclose(f);
    return rc;
}

int textfile_ids(const char *path, struct tok_ids *out, struct vt_err *err)
{
    char *bytes;
    size_t len;
    if (textfile_read(path, &bytes, &len, err) < 0)
        return -1;
    int rc = 0;
    for (char *at = bytes; rc == 0 && *at;) {
        if (isspace((unsigned char)*at) || *at == ',' || *at == '[' || *at == ']') {
            at++;
            continue;
        }
        char *end;
        errno = 0;
        unsigned long v = strtoul(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno || v > UINT32_MAX)
            rc =
                vt_fail(err, VT_E_PARAM, "%s: byte %zd is not part of a list of token ids", path, at - bytes);
        else
            rc = tok_ids_push(out, (uint32_t)v, err);
        at = end;
    }
    if (rc == 0 && out->n == 0)
        rc = vt_fail(err, VT_E_PARAM, "%s holds no token ids", path);
    free(bytes);
    return rc;
}
