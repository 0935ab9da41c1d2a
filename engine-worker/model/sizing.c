#include "sizing.h"

#include "forward.h"
#include "seq.h"
#include "upload.h"

uint32_t sizing_canary_pages(const struct sizing *s)
{
    return (s->ubatch + BE_PAGE - 1) / BE_PAGE;
}

uint32_t sizing_drafts(uint32_t slots, uint32_t spec_n)
{
    uint64_t all = (uint64_t)slots * spec_n;
    return all < SIZING_DRAFT_ROWS ? (uint32_t)all : SIZING_DRAFT_ROWS;
}

uint64_t sizing_states(const struct sizing *s)
{
    return (uint64_t)s->slots * (s->drafts > 0 ? 2 : 1) + 1;
}

int64_t sizing_rows(const struct sizing *s)
{
    return (int64_t)s->slots + s->ubatch + s->drafts;
}

uint32_t sizing_logits(const struct sizing *s)
{
    return s->slots + SIZING_SCORE_ROWS + s->drafts;
}

/* Pages of the layers with a window. A slot at work holds the window before its newest page border, what has come since and
 * the rows of a step; an export and an import hold a window each. The rest caches windows that have been left, so that a
 * conversation can go back to where a recent turn began; it is never more than whole contexts would take. */
static uint32_t window_pages(const struct model *m, const struct sizing *s)
{
    if (m->window == 0)
        return 0;
    uint32_t window = kv_window_pages((uint32_t)m->window), whole = s->ctx_tokens / BE_PAGE;
    uint32_t slot = window + 2 + s->rec_snapshots, step = s->ubatch / BE_PAGE + 1;
    uint32_t most = s->slots * whole + sizing_canary_pages(s),
             need = s->slots * slot + step + 2 * window + sizing_canary_pages(s);
    return need < most ? need : most;
}

void sizing_pools(struct kv_shape *all, struct kv_shape *window, const struct model *m, struct be *be,
                  const struct sizing *s)
{
    uint32_t pages = s->slots * (s->ctx_tokens / BE_PAGE) + sizing_canary_pages(s),
             snaps = s->slots * s->rec_snapshots + 1;
    fw_pool_shapes(all, window, m, be, false, pages, window_pages(m, s), snaps);
}

static uint64_t pool_bytes(const struct model *m, const struct sizing *s)
{
    struct kv_shape all, window;
    sizing_pools(&all, &window, m, NULL, s);
    return kv_pool_bytes(&all) + (window.n_attn > 0 ? kv_pool_bytes(&window) : 0);
}

void sizing_rest(struct vt_plan *out, const struct model *m, const struct sizing *s)
{
    *out = (struct vt_plan){
        .kv = pool_bytes(m, s),
        .work =
            fw_plan(m, sizing_rows(s), sizing_logits(s)) + sizing_states(s) * m->state_floats * sizeof(float),
        .code = SIZING_CODE,
        .reserve = s->reserve,
    };
}

int sizing_plan(struct vt_plan *out, const struct model *m, struct be *be, const struct sizing *s,
                struct vt_err *err)
{
    sizing_rest(out, m, s);
    if (be != NULL && !be_host(be))
        return upload_plan(m, be, &out->weights, err);
    out->weights = m->bytes;
    out->code = out->reserve = 0;
    return 0;
}

int sizing_gpu(struct vt_plan *out, struct gpu_facts *facts, const struct model *m, const struct sizing *s,
               int n, struct vt_err *err)
{
    struct be *be;
    if (gpu_facts(facts, n, err) < 0 || gpu_backend(&be, n, err) < 0)
        return -1;
    int rc = sizing_plan(out, m, be, s, err);
    be_free(be);
    return rc;
}
