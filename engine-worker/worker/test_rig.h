/* Rig: vitriold, gateway and store as one small test program plays them around a real engine process. */
#ifndef WORKER_TEST_RIG_H
#define WORKER_TEST_RIG_H

#include "ckpt.h"
#include "frame.h"
#include "handshake.h"
#include "hash.h"
#include "link.h"
#include "ring.h"
#include "sock.h"

#include <stdbool.h>
#include <sys/types.h>

#define RIG_LINK 0x11

/* A frame that came in, with its bytes. */
struct got {
    struct got *next;
    struct vt_frame f;
    uint8_t *buf;
    size_t len;
    bool own; /* the bytes are the rig's */
};

struct peer {
    struct vt_sock *s;
    uint32_t link;
    struct vt_enc enc;
    struct got *first, **tail; /* not yet asked for */
    bool deaf;                 /* does not read */
    unsigned steps;            /* STEP frames so far */
};

/* A store in memory. */
struct blob {
    uint8_t name[32], *data;
    size_t len;
    bool bad;
};
struct shelf_head {
    bool used;
    char tenant[65], name[129];
    uint32_t slot, n_items, n_blocks, rec_pos;
    uint32_t *items;
    uint8_t *names, rec_name[32];
    uint64_t gen;
};
/* What is wrong with it when prompts are looked for. */
enum shelf_lie {
    LIE_NONE,
    LIE_SILENT,    /* CK_FIND is not answered */
    LIE_NO_DATA,   /* nor CK_LOAD */
    LIE_STOPS,     /* after one block */
    LIE_ENDS,      /* after one block, and says so */
    LIE_SUM,       /* second block: another checksum */
    LIE_BYTES,     /* second block: bytes of something else under a good checksum */
    LIE_MORE,      /* more blocks than were asked for */
    LIE_REC,       /* a snapshot that lies between borders */
    LIE_MANIFEST,  /* a plan of something else */
    LIE_ORDER,     /* the second block first */
    LIE_RING_SLOT, /* data in a slot that does not exist */
    LIE_LENGTH,    /* data longer than a piece */
};

struct shelf {
    struct blob *blobs;
    unsigned n_blobs;
    struct shelf_head heads[64];
    uint64_t commits, chunks, refused_sums, aborts, bytes;
    bool mute; /* answers nothing */
    enum shelf_lie lie;
    uint64_t finds, loads; /* of prompts */
    uint32_t skipped;      /* blocks that the last load left out */
    /* the save that is open */
    struct shelf_head open;
    uint64_t open_id, reason; /* of the newest CK_BEGIN */
    uint32_t n_rec;
    uint32_t rec_pos[64];
    uint8_t rec_names[64][32];
    uint64_t block_bytes, rec_bytes;
    /* the load that is open */
    uint64_t load_id;
    bool loading, load_prompt;
    uint8_t load_names[64 * 32], load_rec[32];
    uint32_t load_rec_pos, next, piece, credit, blocks;
    bool send_rec;
};

struct rig {
    char dir[64], lifeline[108];
    pid_t pid;
    uint8_t nonce[16];
    struct peer life, gw, store;
    struct vt_ring ring;
    struct shelf *shelf; /* survives engines */
    unsigned serial, gen;
    const char *instead; /* KEY=VALUE for the next engines in place of what they have for that key; or NULL */
};

/* Starts the engine program with options and --set arguments (NULL-terminated); brings it to WELCOME. */
void rig_start(struct rig *r, const char *extra, const char *const *sets);
/* Waits for READY; with_store: opens the store link while it loads. */
void rig_ready(struct rig *r, bool with_store);
void rig_open_store(struct rig *r);
void rig_open_gateway(struct rig *r);
void rig_close_gateway(struct rig *r);
void rig_close_store(struct rig *r);
/* SIGKILL, waits, closes all; the shelf stays. */
void rig_kill(struct rig *r);
/* Limits of waits are those of a quiet machine; a busy one takes several times as long. */
enum { RIG_PATIENCE = 6 };
/* Exit code or 128 + signal within ms; -1: still there. */
int rig_exit(struct rig *r, int ms);
void rig_cleanup(struct rig *r);

/* Lets everything turn for ms. */
void rig_turn(struct rig *r, int ms);
/* The next frame of that type (and id, unless 0) within ms, else NULL. Frames before it stay. Freed by got_free. */
struct got *rig_wait(struct rig *r, struct peer *p, uint8_t type, uint64_t id, int ms);
/* The same without patience, for what need not come. */
struct got *rig_look(struct rig *r, struct peer *p, uint8_t type, uint64_t id, int ms);
void got_free(struct got *g);
/* Frames of that type that came and were not asked for. */
unsigned rig_count(const struct peer *p, uint8_t type, uint64_t id);
struct vt_enc *peer_begin(struct peer *p, uint8_t type, uint64_t id);
void peer_send(struct peer *p);

/* store side, test_shelf.c */
void shelf_frame(struct rig *r, const struct vt_frame *f);
void shelf_free(struct shelf *s);

uint64_t rig_ms(void);

/* ---- test_play.c ---- */

struct ask {
    uint64_t id, seed;
    uint32_t n_prompt, first, max_new, credit, n_emitted, logprobs;
    int slot;
    const char *tenant;
    uint8_t rid; /* fills the request id; 0: made from id */
    unsigned op, pool;
};

/* --set arguments of two small slots with short times. */
extern const char *const rig_small[];

/* Starts an engine with rig_small, its gateway and, if wanted, its store. */
void rig_up(struct rig *r, const char *extra, bool with_store);
void rig_submit(struct rig *r, const struct ask *a);
void rig_credit(struct rig *r, uint64_t id, uint64_t value);
void rig_cancel(struct rig *r, uint64_t id);
/* Each waits for its frame and fails the test without it. */
uint32_t rig_accepted(struct rig *r, uint64_t id, unsigned dup); /* returns the reused tokens */
void rig_refused(struct rig *r, uint64_t id, int code);
/* Takes tokens from `from` until there are `to`; each must be the reference's, none may be missing or twice. */
void rig_tokens(struct rig *r, uint64_t id, uint64_t seed, uint32_t from, uint32_t to);
void rig_done(struct rig *r, uint64_t id, unsigned reason, uint64_t emitted);
void rig_order(struct rig *r, unsigned verb, uint64_t id, unsigned deadline_ms);
void rig_order_done(struct rig *r, unsigned verb, uint64_t id, bool ok);

#endif
