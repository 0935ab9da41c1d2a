/* Vault: what one vitriol-vault holds: named pieces of memory, each an open descriptor with a key, a size and a word on whether it
 * is filled. It knows neither what is in them nor what a GPU is: the descriptors keep the memory. One thread. */
#ifndef VAULT_H
#define VAULT_H

#include "err.h"
#include "frame.h"

#include <stdbool.h>
#include <stdint.h>

#define VAULT_MAX  8
#define VAULT_NAME 24
#define VAULT_KEY  32

struct vault_piece {
    char name[VAULT_NAME];
    uint8_t key[VAULT_KEY];
    uint64_t bytes, seal;
    bool whole;
    int fd;
};

struct vault {
    struct vault_piece piece[VAULT_MAX];
    unsigned n;
};

/* One frame of an engine with the descriptors that came with it, of which those that are kept become -1 in fds. true in *answer:
 * reply holds a finished frame and out the n_out descriptors to send along, which stay the vault's. -1: it breaks the
 * protocol; what was held before is held still. */
int vault_take(struct vault *v, const struct vt_frame *f, int *fds, unsigned n_fds, struct vt_enc *reply,
               int out[VAULT_MAX], unsigned *n_out, bool *answer, struct vt_err *err);
/* Closes everything. */
void vault_drop_all(struct vault *v);
uint64_t vault_bytes(const struct vault *v);

#endif
