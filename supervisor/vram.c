#include "vram.h"

#include <stddef.h>

#define PAGE 256u /* tokens: windows are multiples of it */

uint64_t vram_expected(const struct vram *v)
{
    uint64_t gone = VRAM_SLACK + (v->held ? v->shared : 0);
    return v->baseline > gone ? v->baseline - gone : 0;
}

/* What the last engine took, less what is still there for the next one. */
static uint64_t needed(const struct vram *v, const struct vram_limits *l)
{
    return v->work + (v->held ? 0 : v->shared) + l->floor;
}

static enum vram_step go(struct vram *v, enum vram_step how)
{
    v->baseline = v->free + (v->held ? v->shared : 0);
    v->waits_since = 0;
    v->fresh = false;
    return how;
}

enum vram_step vram_next(struct vram *v, const struct vram_limits *l, uint64_t now, uint64_t *at)
{
    *at = 0;
    if (v->lost) {
        if (now >= v->next_proof)
            return VRAM_PROVE;
        *at = v->next_proof;
        return VRAM_LOST;
    }
    if (!v->fresh || (v->waits_since != 0 && now - v->read_at >= VRAM_REREAD_US))
        return VRAM_READ;
    if (v->free >= vram_expected(v))
        return go(v, VRAM_GO);
    if (v->waits_since == 0)
        v->waits_since = now;
    if (now - v->waits_since < l->return_us) {
        *at = v->read_at + VRAM_REREAD_US;
        return VRAM_WAIT;
    }
    if (v->free >= needed(v, l))
        return go(v, VRAM_TAKEN);
    v->waits_since = 0;
    v->fresh = false;
    return VRAM_NOT_RETURNED;
}

void vram_read(struct vram *v, uint64_t free_bytes, uint64_t now)
{
    v->free = free_bytes;
    v->read_at = now;
    v->fresh = true;
}

void vram_failed(struct vram *v, const struct vram_limits *l, uint64_t now)
{
    uint64_t wait = l->proof_us;
    v->fresh = false;
    if (v->baseline == 0)
        return;
    for (unsigned i = 0; i < v->unproved && wait < VRAM_PROOF_MAX_US; i++)
        wait *= 2;
    v->lost = true;
    v->unproved++;
    v->next_proof = now + (wait < VRAM_PROOF_MAX_US ? wait : VRAM_PROOF_MAX_US);
}

void vram_proved(struct vram *v, uint64_t free_bytes, uint64_t now)
{
    v->lost = false;
    v->unproved = 0;
    v->next_proof = 0;
    vram_read(v, free_bytes, now);
}

void vram_ready(struct vram *v, uint64_t shared, uint64_t work, bool vault)
{
    v->shared = shared;
    v->work = work;
    v->held = vault;
}

void vram_ended(struct vram *v, bool lost)
{
    v->fresh = false;
    v->waits_since = 0;
    if (lost && !v->lost && v->baseline != 0) {
        v->lost = true;
        v->unproved = 0;
        v->next_proof = 0;
    }
}

void vram_let_go(struct vram *v)
{
    v->held = false;
    v->fresh = false;
}

/* ---- ladder ---- */

uint32_t ladder_window(uint32_t ctx_tokens, uint32_t slots, uint32_t rung_tokens, unsigned rung)
{
    uint32_t pages = (rung_tokens + slots * PAGE / 2) / (slots * PAGE);
    uint64_t step = (uint64_t)(pages > 0 ? pages : 1) * PAGE;
    uint64_t least = ctx_tokens / 4 > PAGE ? ctx_tokens / 4 : PAGE;
    while (rung > 0 && (uint64_t)rung * step + least > ctx_tokens)
        rung--;
    return ctx_tokens - (uint32_t)(rung * step);
}

bool ladder_has(uint32_t ctx_tokens, uint32_t slots, uint32_t rung_tokens, unsigned rung, unsigned rungs)
{
    return rung < rungs && ladder_window(ctx_tokens, slots, rung_tokens, rung + 1) <
                               ladder_window(ctx_tokens, slots, rung_tokens, rung);
}

/* Whether what began at *since has lasted. */
static bool lasts(uint64_t *since, bool is, uint64_t us, uint64_t now)
{
    if (!is) {
        *since = 0;
        return false;
    }
    if (*since == 0)
        *since = now;
    return now - *since >= us;
}

enum ladder_move ladder_take(struct ladder *l, uint64_t free_bytes, uint64_t floor, uint64_t rung_bytes,
                             uint64_t now)
{
    bool low = lasts(&l->low_since, free_bytes < floor, VRAM_LOW_US, now);
    bool roomy = lasts(&l->roomy_since, l->rung > 0 && free_bytes >= floor + rung_bytes + rung_bytes / 4,
                       VRAM_UNDO_US, now);
    if (low || roomy)
        l->low_since = l->roomy_since = 0;
    return low ? LADDER_DOWN : roomy ? LADDER_UP : LADDER_STAY;
}

enum ladder_move ladder_oom(struct ladder *l, bool loading, uint64_t now)
{
    bool again = l->oom_at != 0 && now - l->oom_at <= VRAM_OOM_US;
    l->low_since = l->roomy_since = 0;
    l->oom_at = loading || again ? 0 : now;
    return loading || again ? LADDER_DOWN : LADDER_STAY;
}
