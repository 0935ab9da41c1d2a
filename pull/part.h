/* A file on its way: NAME.part in the models folder, and beside it NAME.part.state, which says of which content it is a part.
 * Whoever has it open holds its lock; when it is whole it takes its name in one step.
 *
 * Bytes that were written before a power cut may be missing though the length is there. The state notes up to where they
 * are known to be on the disk, and in which boot; after another boot the rest is fetched again. One thread. */
#ifndef PULL_PART_H
#define PULL_PART_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

/* What the server calls the content; "" and 0 = it did not say. */
struct part_origin {
    char url[65];   /* SHA-256 of the URL, which may hold secrets */
    char etag[160]; /* strong */
    char modified[64];
    char sha256[65];
    uint64_t size;
};

struct part {
    int dir, fd;
    char name[256];
    uint64_t have;   /* bytes in the file */
    uint64_t synced; /* of them on the disk for sure */
    struct part_origin origin;
};

/* Makes the folder when it is not there, and opens or makes NAME.part in it. VT_E_BUSY when another process holds it. */
int part_open(struct part *p, const char *dir, const char *name, struct vt_err *err);
/* Leaves the file for another time. */
void part_close(struct part *p);
/* Writes down what the part is of; drop: the bytes that are there are of something else. */
int part_start(struct part *p, const struct part_origin *o, bool drop, struct vt_err *err);
/* VT_E_DISK_FULL when there is no room; what was written stays. */
int part_write(struct part *p, const uint8_t *s, size_t n, struct vt_err *err);
/* VT_E_DISK_FULL unless `more` bytes fit beside what else is there. */
int part_room(const struct part *p, uint64_t more, struct vt_err *err);
/* Hex of the SHA-256 of the file of this name (NULL: of the part); tick is called now and then and stops it when not 0. */
int part_sha256(const struct part *p, const char *name, char hex[65], int (*tick)(void *ctx, uint64_t done),
                void *ctx, struct vt_err *err);
/* Size of NAME in the folder, false when it is not there. */
bool part_finished(const struct part *p, uint64_t *size);
/* The whole file takes its name, replacing what has it; the part is closed. */
int part_place(struct part *p, struct vt_err *err);
/* Takes the part away. */
void part_remove(struct part *p);

#endif
