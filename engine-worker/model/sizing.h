/* Sizing: how much an engine of a given shape takes of a device, as the terms of common/plan.h, computed before any of it is
 * asked for. The engine, the probe that vitriold asks before a start, and `vitriol-tool plan` all compute it here; what the engine
 * measures after its load is compared with it. Pure, but for what the backend answers about the size of its weights. */
#ifndef MODEL_SIZING_H
#define MODEL_SIZING_H

#include "gpu.h"
#include "model.h"
#include "pool.h"

#include "plan.h"

/* Rows of logits beside those of the slots: forced ids that a step can tell the log-probabilities of. */
#define SIZING_SCORE_ROWS 32
/* Most guessed ids that a step verifies, all slots together: with many slots at work a batch is large enough without them. */
#define SIZING_DRAFT_ROWS 32
/* What a GPU takes beside what is planned to the byte: kernels, when they are first used, recorded graphs, and rounding. Measured
 * on an H200: 2 to 15 MiB. */
#define SIZING_CODE (16u << 20)
/* Left free on a GPU for the driver and for the display, where nobody says otherwise (engine.vram_floor_mib). */
#define SIZING_RESERVE (256ull << 20)

/* As the keys of [engine] say it. */
struct sizing {
    uint32_t slots, ctx_tokens, ubatch, rec_snapshots;
    uint32_t drafts;  /* guessed ids of a step, as sizing_drafts says; 0: no step guesses */
    uint64_t reserve; /* bytes that stay free on a GPU */
};

/* be: the device's backend; NULL: this processor, where the weights are the file's bytes. VT_E_CAPABILITY: the device cannot read
 * a tensor's type, which is named. */
int sizing_plan(struct vt_plan *out, const struct model *m, struct be *be, const struct sizing *s,
                struct vt_err *err);
/* All of a GPU's plan but its weights, which only its backend can tell. */
void sizing_rest(struct vt_plan *out, const struct model *m, const struct sizing *s);
/* The plan on GPU n, and its facts as they are before. A context is made there and taken apart. Errors of gpu_backend, too. */
int sizing_gpu(struct vt_plan *out, struct gpu_facts *facts, const struct model *m, const struct sizing *s,
               int n, struct vt_err *err);
/* The pools of that shape; window->n_attn is 0 when there is none. */
void sizing_pools(struct kv_shape *all, struct kv_shape *window, const struct model *m, struct be *be,
                  const struct sizing *s);
/* Guessed ids that a step verifies at most, of up to spec_n (engine.spec_n; 0: engine.spec is none) in each slot. */
uint32_t sizing_drafts(uint32_t slots, uint32_t spec_n);
/* Recurrent states beside the snapshots: of the slots, of what they go back to after a wrong guess, of the canary. */
uint64_t sizing_states(const struct sizing *s);
/* Pages of the sequence that self-test and canary use. */
uint32_t sizing_canary_pages(const struct sizing *s);
/* Rows of the largest step, and those of them that have logits. */
int64_t sizing_rows(const struct sizing *s);
uint32_t sizing_logits(const struct sizing *s);

#endif
