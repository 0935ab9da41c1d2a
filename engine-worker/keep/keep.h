/* Keep: memory of the engine that outlives it, held by a vault (vitriol-vault). The engine asks once, after it knows what it
 * needs: what the vault holds under the same name, key and size is mapped again; everything else is made anew and given to it.
 * A vault that ends is no loss to this process: the memory stays mapped, and the next vault gets it.
 *
 * The descriptors are the memory: the vault needs no GPU. Without a vault (NULL, or none that answers) nobody is asked and
 * nothing is kept. One thread at a time: the compute thread during a load, then the one that calls keep_tend. */
#ifndef KEEP_H
#define KEEP_H

#include "backend.h"
#include "err.h"

#include <stdbool.h>
#include <stdint.h>

#define KEEP_MAX  6
#define KEEP_KEY  32
#define KEEP_NAME 24

struct keep;

/* key: of everything that gives the bytes their meaning. */
struct keep_want {
    const char *name;
    bool device; /* memory of the backend, not of this process */
    uint8_t key[KEEP_KEY];
    uint64_t bytes;
};

/* path: where the vault listens. Connects when it is claimed. VT_E_NOMEM. */
int keep_new(struct keep **out, const char *path, struct vt_err *err);
/* Gives nothing back to the vault, unmaps nothing: keep_release comes first. NULL is fine. */
void keep_free(struct keep *k);

/* The n (at most KEEP_MAX) pieces of this engine; waits for the vault's answer up to wait_ms. VT_E_UNAVAILABLE: no vault;
 * VT_E_BUSY: there is one that may hold them, but it does not answer. Then no piece is held, and what is mapped is given to the
 * next vault that is found. What was claimed before must have been released. */
int keep_claim(struct keep *k, const struct keep_want *want, unsigned n, int wait_ms, struct vt_err *err);
bool keep_connected(const struct keep *k);
/* What went wrong with the vault or with a piece of it since the last claim; empty: nothing. */
const char *keep_trouble(const struct keep *k);
/* Bytes of the device that are held, not to be asked for again. */
uint64_t keep_held(const struct keep *k);

/* Piece i in the memory of be, or of this process. *old: its content is that of the engine before, and
 * *seal what was told of it. Otherwise it is zeroed, and the vault has it now. VT_E_CAPABILITY (also of a
 * piece that was not claimed), VT_E_DEVICE_MEM, VT_E_NOMEM. */
int keep_map(struct keep *k, unsigned i, struct be *be, void **out, bool *old, uint64_t *seal,
             struct vt_err *err);
/* Piece i may be given to the next engine. */
void keep_whole(struct keep *k, unsigned i, uint64_t seal);
/* Unmaps everything; the vault goes on holding it. */
void keep_release(struct keep *k, struct be *be);

/* Once a second: a vault that has ended is looked for again and given everything. true: it has just happened. */
bool keep_tend(struct keep *k);

#endif
