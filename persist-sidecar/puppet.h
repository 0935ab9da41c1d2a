/* An engine without an engine, for tests: speaks CK_* frames to a store and keeps what came back. The same puppet drives
 * serve.h directly and a real process over a link: `send` is where its frames go. */
#ifndef STORE_PUPPET_H
#define STORE_PUPPET_H

#include "fixture.h"
#include "frame.h"
#include "ring.h"

struct puppet {
    uint32_t link;
    struct vt_ring ring;
    char ring_path[160];
    struct vt_enc enc;
    uint64_t next_id;
    void (*send)(void *arg, const uint8_t *frame, size_t len);
    /* Lets the other side work until a frame for p came or it cannot: 1 one came, 0 none. */
    int (*pump)(void *arg, struct puppet *p);
    void *arg;
    /* frames that came, in order */
    uint8_t **frames;
    size_t *lens, n, cap, taken;
};

void puppet_init(struct puppet *p, uint32_t link, const char *dir);
void puppet_fini(struct puppet *p);
/* Called by the transport. */
void puppet_came(struct puppet *p, const uint8_t *frame, size_t len);
/* The next frame that came; false when there is none and pump has nothing more. Close it with vt_frame_close. */
bool puppet_next(struct puppet *p, struct vt_frame *f);

void puppet_send(struct puppet *p); /* what is in enc */
/* 0 and the salt, or the code of the refusal. */
int puppet_salt(struct puppet *p, const char *tenant, uint8_t salt[32]);

struct puppet_saved {
    uint64_t manifest, head_gen;
    uint32_t sent;
};
/* A whole save. 0, or the code of CK_ABORT, or -1 when nothing more came. */
int puppet_save(struct puppet *p, const struct talk *t, struct puppet_saved *r);
/* CK_BEGIN alone; needed: bitmap of blocks, NULL = not wanted. Returns as puppet_save; *id for what follows. */
int puppet_begin(struct puppet *p, const struct talk *t, uint64_t *id, uint8_t *needed);
/* One block in pieces, waiting for each credit. 0, a code, or -1. */
int puppet_block(struct puppet *p, const struct talk *t, uint64_t id, enum ckpt_kind kind, uint32_t index,
                 uint32_t *pieces);

struct puppet_restored {
    uint32_t ntok, blocks;
    bool poisoned, ended_ok, has_rec;
};
/* The head of the talk's slot, every byte compared. 0, or the code of CK_END to CK_FIND, or -1. */
int puppet_restore(struct puppet *p, const struct talk *t, struct puppet_restored *r);

#endif
