#include "npy.h"

#include <string.h>

int npy_create(struct npy *n, const char *path, uint64_t rows, uint64_t cols, struct vt_err *err)
{
    char head[128];
    *n = (struct npy){.path = path, .cols = cols, .file = fopen(path, "wb")};
    if (!n->file)
        return vt_fail_errno(err, VT_E_IO, "cannot create %s", path);
    /* Magic, version, length; the dictionary is padded so that the data begins at a multiple of 64. */
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)(sizeof head - 10);
    head[9] = 0;
    int len = snprintf(head + 10, sizeof head - 10,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %llu), }",
                       (unsigned long long)rows, (unsigned long long)cols);
    head[10 + len] = ' ';
    head[sizeof head - 1] = '\n';
    if (fwrite(head, sizeof head, 1, n->file) == 1)
        return 0;
    vt_fail_errno(err, VT_E_IO, "cannot write %s", path);
    fclose(n->file);
    return -1;
}

int npy_rows(struct npy *n, const float *values, uint64_t rows, struct vt_err *err)
{
    if (fwrite(values, n->cols * sizeof *values, rows, n->file) == rows)
        return 0;
    return vt_fail_errno(err, VT_E_IO, "cannot write %s", n->path);
}

int npy_close(struct npy *n, struct vt_err *err)
{
    if (fclose(n->file) == 0)
        return 0;
    return vt_fail_errno(err, VT_E_IO, "cannot write %s", n->path);
}
