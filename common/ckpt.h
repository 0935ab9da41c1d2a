/* clang-format off
 * Checkpoint names: what engine and store must compute alike.
 *
 *     h_0  = SHA-256("VTCK1" | layout_fp | salt)                   salt: the tenant's, or a slot's private one
 *     h_i  = SHA-256("B" | h_(i-1) | u32le n | item_1 ... item_n)  one block of n = block_tokens items
 *     r_p  = SHA-256("R" | h_(p / block_tokens) | u32le p)         snapshot at position p (recurrent state,
 *                                                                  then the pages of a window that ends there)
 *     seal = SHA-256("M" | layout_fp | tenant | slot | private_salt | sampler | items)   a manifest
 *     item = 0x00 u32le token id
 *
 * In the seal, tenant and sampler are preceded by their length (u32le), slot is u32le, private_salt is absent or 32
 * bytes behind a byte that says which, so that no two different manifests hash the same bytes. Items travel and are
 * stored as plain u32le ids; the 0x00 prefix exists in the hash alone. All functions are pure; any thread.
 *
 * The conversation on a k.* link (frames CK_*; `id` is chosen by the engine, unique among its open operations):
 *
 *   ring       slots [0, n/2) are the engine's, for exports; [n/2, n) are the store's, for imports. CK_CREDIT returns
 *              an export slot to the engine, CK_DATA_ACK an import slot to the store.
 *   CK_SALT    before the first name of a tenant is computed; the store draws a salt for a new tenant. CK_SALT_IS without a salt and
 *              with id 0, unasked: checkpoints of this tenant were forgotten; its salt and what an engine believes to be
 *              stored of it hold no more.
 *   CK_FIND    layout_fp alone: answered by CK_HEADS, newest first. With tenant and slot: the head of that slot; with
 *              tenant and name: a slot file; with names: the longest stored prefix (manifest 0, no items). Answer
 *              CK_PLAN, or CK_END with ok 0 and code 501 or 503. CK_PLAN.rec_pos is the largest snapshot inside the
 *              stored prefix; absent when there is none.
 *   CK_LOAD    of the plan with the same id: its manifest, or names (the first ones of the plan's). rec_pos, the
 *              plan's: send that snapshot too, first (kind 2, index = rec_pos / block_tokens), and no block behind it,
 *              since a model that needs it could not use them. Then blocks in order (kind 1, index = block), from `skip` on,
 *              each in pieces of CKPT_PIECE, the last one shorter and marked.
 *              CK_END ok 1: everything came. ok 0: blocks says how many leading blocks are good; the bad one is
 *              already out of every later plan, so an engine that needs another snapshot asks CK_FIND again.
 *   CK_BEGIN   answered by CK_NEED (bit i of byte i/8, least significant first) once no other export runs; then only
 *              the wanted blocks are sent: whole blocks, pieces in order. Every export carries the layout's descriptor
 *              and sizes. base_gen 0: no opinion about the head; after a refusal for a stale head (506) the next one
 *              says 0, since the store may have moved it (eviction). With a name it is a slot file: no head moves.
 *              Reason client reset: a client's request put another conversation into the slot; without it a head
 *              never moves to a shorter, non-extending one (506 at once).
 *   CK_COMMIT  answered by CK_COMMITTED (durable) or CK_ABORT with a code (506, 504 disk full, 508 quota, ...).
 *
 * clang-format on */
#ifndef VT_CKPT_H
#define VT_CKPT_H

#include "hash.h"

#include <stddef.h>
#include <stdint.h>

#define CKPT_NAME_LEN 32
#define CKPT_SALT_LEN 32
#define CKPT_PIECE    (1u << 20)

enum ckpt_kind { CKPT_KV = 1, CKPT_REC = 2 };
enum ckpt_reason { CKPT_AUTOSAVE = 1, CKPT_DRAIN = 2, CKPT_BOUNCE = 3, CKPT_EXPLICIT = 4, CKPT_RESET = 5 };

void ckpt_h0(const uint8_t layout_fp[32], const uint8_t salt[CKPT_SALT_LEN], uint8_t out[CKPT_NAME_LEN]);
/* out may be prev. */
void ckpt_next(const uint8_t prev[CKPT_NAME_LEN], const uint32_t *items, uint32_t n,
               uint8_t out[CKPT_NAME_LEN]);
void ckpt_rec(const uint8_t h[CKPT_NAME_LEN], uint32_t pos, uint8_t out[CKPT_NAME_LEN]);

struct ckpt_seal {
    const uint8_t *layout_fp; /* 32 bytes */
    const char *tenant;
    uint32_t slot;
    const uint8_t *private_salt; /* 32 bytes or NULL */
    const void *sampler;         /* opaque to the store; NULL when sampler_len is 0 */
    size_t sampler_len;
    const uint32_t *items;
    uint32_t n_items;
};
void ckpt_seal(const struct ckpt_seal *s, uint8_t out[CKPT_NAME_LEN]);

/* Pieces of a block of this many bytes, and the length of one of them. */
static inline uint32_t ckpt_pieces(uint64_t bytes)
{
    return (uint32_t)((bytes + CKPT_PIECE - 1) / CKPT_PIECE);
}
static inline uint32_t ckpt_piece_len(uint64_t bytes, uint32_t piece)
{
    uint64_t left = bytes - (uint64_t)piece * CKPT_PIECE;
    return left < CKPT_PIECE ? (uint32_t)left : CKPT_PIECE;
}

#endif
