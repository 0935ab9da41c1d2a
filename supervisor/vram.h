/* Vram: when the next engine may start on a GPU, and how large. Pure: readings and time come from the caller (device.h).
 *
 * Memory. A GPU's memory is free when it was measured free after the last engine's end: as much as before its start, less what
 * a vault holds now, less VRAM_SLACK. Exit and return are different events. What is not back within the bound refuses the start,
 * unless what is free would do all the same, for then somebody else took it.
 *
 * Loss. A GPU whose engine ended with a device error is lost until a probe has computed on it. Proofs that fail follow each other
 * after 1, 2, 4 … times the first wait, at most VRAM_PROOF_MAX_US.
 *
 * Ladder. With less free than the floor, or no room for the engine, the windows get smaller rung by rung; a rung is taken back
 * when so much has been free for VRAM_UNDO_US that the floor would still hold with it, and counts from the next start on: nothing
 * is restarted in order to grow. */
#ifndef VRAM_H
#define VRAM_H

#include <stdbool.h>
#include <stdint.h>

#define VRAM_SLACK        (64ull << 20)
#define VRAM_REREAD_US    250000ull
#define VRAM_PROOF_MAX_US 900000000ull
#define VRAM_LOW_US       10000000ull  /* below the floor for so long: the next rung */
#define VRAM_UNDO_US      600000000ull /* room for a rung for so long: one is taken back */
#define VRAM_OOM_US       600000000ull /* two out-of-memory ends at run within this: the next rung */

struct vram_limits {
    uint64_t return_us, proof_us, floor; /* floor: bytes */
};

struct vram {
    uint64_t baseline; /* free before the last start, and what a vault held then; 0: not known */
    uint64_t shared;   /* weights and KV of the last engine: what a vault holds */
    uint64_t work;     /* what it had beside them */
    bool held;         /* a vault holds `shared` */
    bool lost;
    unsigned unproved;   /* proofs that failed in a row */
    uint64_t next_proof; /* 0: at once */
    bool fresh;          /* free was read after the last end */
    uint64_t free, read_at;
    uint64_t waits_since; /* for memory to return; 0: it does not */
};

enum vram_step {
    VRAM_GO,
    VRAM_READ,         /* ask for a reading */
    VRAM_PROVE,        /* ask for a proof */
    VRAM_WAIT,         /* until *at: not back yet */
    VRAM_LOST,         /* until *at: the next proof */
    VRAM_NOT_RETURNED, /* refuse this start */
    VRAM_TAKEN,        /* go; but less is free than before, and not for a process of ours */
};

/* What the start of an engine has to do now. VRAM_GO, VRAM_TAKEN: the reading becomes the baseline. */
enum vram_step vram_next(struct vram *v, const struct vram_limits *l, uint64_t now, uint64_t *at);
/* What must be free for VRAM_GO. */
uint64_t vram_expected(const struct vram *v);
void vram_read(struct vram *v, uint64_t free_bytes, uint64_t now);
/* A reading or a proof that failed: the GPU is lost, if it was ever read. Where a probe has never worked (it may not, or is not
 * there) nothing follows from its failure, and engines are started as without one. */
void vram_failed(struct vram *v, const struct vram_limits *l, uint64_t now);
void vram_proved(struct vram *v, uint64_t free_bytes, uint64_t now);
void vram_ready(struct vram *v, uint64_t shared, uint64_t work, bool vault);
void vram_ended(struct vram *v, bool lost); /* lost: by a device error */
void vram_let_go(struct vram *v);           /* the vault holds nothing any more */

/* ---- ladder ---- */

struct ladder {
    unsigned rung;
    uint64_t low_since, roomy_since, oom_at; /* 0: not */
};

enum ladder_move { LADDER_STAY, LADDER_DOWN, LADDER_UP };

/* The window at a rung: tokens of a slot, a multiple of 256. It stays above 256 and above a quarter of the configured one; where
 * it would not, it is that of the last rung before. */
uint32_t ladder_window(uint32_t ctx_tokens, uint32_t slots, uint32_t rung_tokens, unsigned rung);
/* Whether a further rung makes it smaller. */
bool ladder_has(uint32_t ctx_tokens, uint32_t slots, uint32_t rung_tokens, unsigned rung, unsigned rungs);
/* One reading of a ready engine. rung_bytes: what the last rung gave back. LADDER_DOWN: windows shrink, LADDER_UP: grow. The rung
 * itself is the caller's to move. */
enum ladder_move ladder_take(struct ladder *l, uint64_t free_bytes, uint64_t floor, uint64_t rung_bytes,
                             uint64_t now);
/* The engine ended for want of device memory, while it loaded or when it ran. */
enum ladder_move ladder_oom(struct ladder *l, bool loading, uint64_t now);

#endif
