/* NumPy's .npy file (format 1.0), written row by row: float32, C order. */
#ifndef TOOL_NPY_H
#define TOOL_NPY_H

#include "err.h"

#include <stdint.h>
#include <stdio.h>

struct npy {
    FILE *file;
    const char *path;
    uint64_t cols;
};
int npy_create(struct npy *n, const char *path, uint64_t rows, uint64_t cols, struct vt_err *err);
int npy_rows(struct npy *n, const float *values, uint64_t rows, struct vt_err *err);
/* Closes; reports a write that failed late. */
int npy_close(struct npy *n, struct vt_err *err);

#endif
