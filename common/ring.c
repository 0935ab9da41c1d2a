#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC     0x474e4952u /* "RING" */
#define VERSION   1u
#define HEAD      4096u /* one page, so that slots are aligned for direct copies from devices */
#define MAX_SLOTS 4096u
#define MAX_SIZE  (256u << 20)

struct ring_head {
    uint32_t magic, version, n_slots, slot_size, link;
};

size_t vt_ring_bytes(uint32_t n_slots, uint32_t slot_size)
{
    return HEAD + (size_t)n_slots * slot_size;
}

static int sizes_ok(uint32_t n_slots, uint32_t slot_size, struct vt_err *err)
{
    if (n_slots < 2 || n_slots > MAX_SLOTS || slot_size < 4096 || slot_size > MAX_SIZE ||
        slot_size % 4096 != 0)
        return vt_fail(err, VT_E_LIMIT, "ring of %u slots of %u bytes: outside 2..%u slots of whole pages",
                       n_slots, slot_size, MAX_SLOTS);
    return 0;
}

static int fill(int fd, const struct ring_head *h, const char *path, struct vt_err *err)
{
    /* In full, so that no later write to the mapping can find the filesystem full and fault. */
    int rc = posix_fallocate(fd, 0, (off_t)vt_ring_bytes(h->n_slots, h->slot_size));
    if (rc != 0)
        return vt_fail(err, rc == ENOSPC ? VT_E_DISK_FULL : VT_E_IO, "ring %s: no room for %zu bytes: %s",
                       path, vt_ring_bytes(h->n_slots, h->slot_size), strerror(rc));
    if (pwrite(fd, h, sizeof *h, 0) != (ssize_t)sizeof *h)
        return vt_fail_errno(err, VT_E_IO, "ring %s: write", path);
    return 0;
}

int vt_ring_create(const char *path, uint32_t link, uint32_t n_slots, uint32_t slot_size, struct vt_err *err)
{
    struct ring_head h = {MAGIC, VERSION, n_slots, slot_size, link};
    if (sizes_ok(n_slots, slot_size, err) < 0)
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_IO, "ring %s: create", path);
    int rc = fill(fd, &h, path, err);
    close(fd);
    if (rc < 0)
        unlink(path);
    return rc;
}

int vt_ring_wrap(struct vt_ring *r, void *base, size_t bytes, uint32_t link, struct vt_err *err)
{
    struct ring_head h;
    memset(r, 0, sizeof *r);
    if (base == NULL || bytes < HEAD)
        return vt_fail(err, VT_E_BAD_FRAME, "ring of link %08x: %zu bytes are too few", link, bytes);
    /* One copy: the other side can write the page, the checked values must be the used ones. */
    memcpy(&h, base, sizeof h);
    if (h.magic != MAGIC || h.version != VERSION)
        return vt_fail(err, VT_E_BAD_FRAME, "ring of link %08x: not a ring of this version", link);
    if (h.link != link)
        return vt_fail(err, VT_E_STALE_LINK, "ring of link %08x belongs to link %08x", link, h.link);
    if (sizes_ok(h.n_slots, h.slot_size, err) < 0)
        return -1;
    if (vt_ring_bytes(h.n_slots, h.slot_size) != bytes)
        return vt_fail(err, VT_E_BAD_FRAME, "ring of link %08x: %zu bytes, its header says %zu", link, bytes,
                       vt_ring_bytes(h.n_slots, h.slot_size));
    *r = (struct vt_ring){
        .base = base, .bytes = bytes, .n_slots = h.n_slots, .slot_size = h.slot_size, .link = link};
    return 0;
}

int vt_ring_map(struct vt_ring *r, const char *path, uint32_t link, struct vt_err *err)
{
    struct stat st;
    memset(r, 0, sizeof *r);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_IO, "ring %s: open", path);
    void *base = MAP_FAILED;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= HEAD)
        base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED)
        return vt_fail(err, VT_E_IO, "ring %s: cannot be mapped: not a ring file, or memory is short", path);
    if (vt_ring_wrap(r, base, (size_t)st.st_size, link, err) < 0) {
        munmap(base, (size_t)st.st_size);
        return -1;
    }
    return 0;
}

void vt_ring_unmap(struct vt_ring *r)
{
    if (r->base != NULL)
        munmap(r->base, r->bytes);
    memset(r, 0, sizeof *r);
}

uint8_t *vt_ring_slot(const struct vt_ring *r, uint32_t slot, size_t len)
{
    if (slot >= r->n_slots || len > r->slot_size)
        return NULL;
    return r->base + HEAD + (size_t)slot * r->slot_size;
}
