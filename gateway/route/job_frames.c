#include "job_frames.h"

#include "hash.h"
#include "router.h"

#include <math.h>
#include <string.h>

enum { MAX_TOP = 128 };
static const char tenant[] = "default";

/* Ids travel as little-endian bytes; this is what they are in memory on every machine we run on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are sent as they lie");

static void put_resume(struct vt_enc *e, const struct job *j)
{
    bool state = !isnan(j->sampler_state);
    vt_enc_map(e, VT_SUBMIT_RESUME, 3 + state);
    vt_enc_put_u64(e, VT_RESUME_EMITTED);
    vt_enc_put_bin(e, j->tr.ids, j->tr.n * sizeof *j->tr.ids);
    vt_enc_put_u64(e, VT_RESUME_ATTEMPT);
    vt_enc_put_u64(e, j->attempts);
    vt_enc_put_u64(e, VT_RESUME_SEED);
    vt_enc_put_u64(e, j->seed);
    if (state) {
        vt_enc_put_u64(e, VT_RESUME_STATE);
        vt_enc_put_f64(e, j->sampler_state);
    }
}

int job_send_submit(const struct job *j, struct vt_link *l, struct vt_err *err)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_SUBMIT, j->handle);
    size_t n_items = j->tr.n_prompt - j->tr.n_forced;
    vt_enc_bin(e, VT_SUBMIT_RID, j->rid, sizeof j->rid);
    vt_enc_u64(e, VT_SUBMIT_OP, j->pool > 0);
    vt_enc_str(e, VT_SUBMIT_TENANT, tenant);
    vt_enc_i64(e, VT_SUBMIT_SLOT, j->slot);
    vt_enc_bin(e, VT_SUBMIT_ITEMS, j->tr.prompt, n_items * sizeof *j->tr.prompt);
    vt_enc_u64(e, VT_SUBMIT_MAX_NEW, j->max_new + j->tr.n_forced);
    vt_sampling_put(e, VT_SUBMIT_SAMPLING, &j->sampling);
    if (j->n_grammar > 0)
        vt_enc_bin(e, VT_SUBMIT_GRAMMAR, j->grammar, j->n_grammar);
    if (j->tr.logprobs)
        vt_enc_u64(e, VT_SUBMIT_LOGPROBS, j->tr.n_top + 1);
    vt_enc_u64(e, VT_SUBMIT_CREDIT, ROUTER_CREDIT);
    vt_enc_bin(e, VT_SUBMIT_PROMPT_SHA, j->sha, sizeof j->sha);
    vt_enc_u64(e, VT_SUBMIT_REUSE, j->reuse);
    if (j->told_accepted)
        put_resume(e, j);
    if (j->tr.n_forced > 0)
        vt_enc_bin(e, VT_SUBMIT_FORCED, j->tr.prompt + n_items, j->tr.n_forced * sizeof *j->tr.prompt);
    if (j->pool > 0)
        vt_enc_u64(e, VT_SUBMIT_POOL, j->pool);
    return vt_link_send(l, err);
}

int job_send_attach(const struct job *j, struct vt_link *l)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_ATTACH, j->handle);
    vt_enc_bin(e, VT_ATTACH_RID, j->rid, sizeof j->rid);
    vt_enc_u64(e, VT_ATTACH_NEXT, j->tr.n);
    return vt_link_send(l, NULL);
}

int job_send_cancel(struct vt_link *l, uint64_t handle, uint8_t why)
{
    vt_enc_u64(vt_link_begin(l, VT_F_CANCEL, handle), VT_CANCEL_WHY, why);
    return vt_link_send(l, NULL);
}

int job_send_credit(struct vt_link *l, uint64_t handle, uint32_t add)
{
    vt_enc_u64(vt_link_begin(l, VT_F_CREDIT, handle), VT_CREDIT_ADD, add);
    return vt_link_send(l, NULL);
}

int job_send_slots_ask(struct vt_link *l, uint64_t id)
{
    vt_link_begin(l, VT_F_SLOTS_ASK, id);
    return vt_link_send(l, NULL);
}

int job_send_slot_op(struct vt_link *l, uint64_t id, uint32_t slot, unsigned verb, const char *name)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_SLOT_OP, id);
    vt_enc_u64(e, VT_SLOT_OP_SLOT, slot);
    vt_enc_u64(e, VT_SLOT_OP_VERB, verb);
    if (name)
        vt_enc_str(e, VT_SLOT_OP_NAME, name);
    vt_enc_str(e, VT_SLOT_OP_TENANT, tenant);
    return vt_link_send(l, NULL);
}

static unsigned read_top(const msgpack_object_array *list, unsigned i, struct transcript_top *top)
{
    const msgpack_object_array *row = list ? vt_array_array(list, i) : NULL;
    unsigned n = 0;
    for (unsigned k = 0; row && k + 1 < row->size && n < MAX_TOP; k += 2, n++) {
        top[n].id = (uint32_t)vt_array_u64(row, k, 0);
        top[n].logprob = (float)vt_array_f64(row, k + 1, 0);
    }
    return n;
}

void job_tokens_of(struct job_tokens *t, const struct vt_frame *f)
{
    t->first = vt_frame_u64(f, VT_TOKENS_FIRST, 0);
    t->ids = vt_frame_bin(f, VT_TOKENS_IDS, &t->bytes);
    t->logprobs = vt_frame_bin(f, VT_TOKENS_LOGPROBS, &t->logprob_bytes);
    t->top = vt_frame_array(f, VT_TOKENS_TOP);
    t->state = vt_frame_f64(f, VT_TOKENS_STATE, NAN);
}

int job_take_tokens(struct job *j, const struct job_tokens *t)
{
    size_t n = t->bytes / 4;
    if (t->bytes % 4 != 0 || n > UINT16_MAX || (t->logprobs && t->logprob_bytes != t->bytes))
        return -1;
    int64_t known = transcript_known(&j->tr, t->first, n);
    if (known < 0)
        return -1;
    for (size_t i = (size_t)known; i < n; i++) {
        struct transcript_top top[MAX_TOP];
        uint32_t id;
        float lp = 0;
        memcpy(&id, t->ids + 4 * i, 4);
        if (t->logprobs)
            memcpy(&lp, t->logprobs + 4 * i, 4);
        unsigned n_top = j->tr.n_top > 0 ? read_top(t->top, (unsigned)i, top) : 0;
        if (transcript_push(&j->tr, id, lp, top, n_top))
            return -1;
    }
    if ((size_t)known < n)
        j->sampler_state = t->state;
    return (int)n;
}
