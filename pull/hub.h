/* The hub's listing of a repository (JSON from /api/models/OWNER/REPO/revision/REV?blobs=true), and the choice of a file
 * in it by the name of its quantization. Pure; any thread. */
#ifndef PULL_HUB_H
#define PULL_HUB_H

#include "err.h"
#include "source.h"

#include <stdint.h>
#include <stdio.h>

struct hub_file {
    char *path;      /* in the repository */
    uint64_t size;   /* 0 = not said */
    char sha256[65]; /* "" = not said */
};

struct hub_list {
    char commit[65];        /* "" = not said; names the content for good */
    struct hub_file *files; /* those that end with .gguf */
    size_t n;
};

int hub_parse(struct hub_list *l, const char *json, size_t len, struct vt_err *err);
void hub_free(struct hub_list *l);

/* The file of a quantization, the first part of a set. "" = Q4_K_M, else Q8_0, else the only one. Projectors and importance
 * matrices are not chosen. */
const struct hub_file *hub_choose(const struct hub_list *l, const char *quant, struct vt_err *err);
const struct hub_file *hub_find(const struct hub_list *l, const char *path); /* NULL when it is not there */
void hub_print(const struct hub_list *l, FILE *out);

#endif
