/* Ring: the shared-memory file beside a link. vitriold creates it (fallocated in full, 0600), both ends map it, vitriold
 * unlinks it. No locks and no shared counters: a slot's owner changes only by frames (CK_CHUNK, CK_CREDIT, …). Both ends
 * treat slot numbers and lengths in frames as untrusted. Any thread may use a slot it owns. */
#ifndef VT_RING_H
#define VT_RING_H

#include "err.h"

#include <stddef.h>
#include <stdint.h>

#define VT_RING_SLOTS     32
#define VT_RING_SLOT_SIZE (1u << 20)

struct vt_ring {
    uint8_t *base; /* mapping, owned */
    size_t bytes;
    uint32_t n_slots, slot_size, link;
};

/* Creates the file; fails when it exists or when space is short. */
int vt_ring_create(const char *path, uint32_t link, uint32_t n_slots, uint32_t slot_size, struct vt_err *err);
/* Maps and checks magic, version, sizes and link. */
int vt_ring_map(struct vt_ring *r, const char *path, uint32_t link, struct vt_err *err);
/* The same over a mapping made by somebody else (LINK_OPEN's bulk). The mapping stays theirs. */
int vt_ring_wrap(struct vt_ring *r, void *base, size_t bytes, uint32_t link, struct vt_err *err);
void vt_ring_unmap(struct vt_ring *r);
/* Address of a slot, or NULL when slot or len is out of range. */
uint8_t *vt_ring_slot(const struct vt_ring *r, uint32_t slot, size_t len);
/* Bytes of a ring file. */
size_t vt_ring_bytes(uint32_t n_slots, uint32_t slot_size);

#endif
